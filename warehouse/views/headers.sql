-- Run headers as stored.
-- grain: one row per run
SELECT * FROM read_parquet('{records}/run=*/header.parquet', hive_partitioning = false)
