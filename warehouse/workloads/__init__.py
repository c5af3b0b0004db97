"""Jobs to schedule: readers of traces, the generator, the published simulator's rules.

Knows nothing of records.
"""
