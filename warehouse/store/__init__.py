"""Records on disk: append-only Parquet, hash-chained, with checksums.

Knows nothing of SQL.
"""
