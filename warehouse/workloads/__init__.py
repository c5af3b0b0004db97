"""Jobs to schedule: readers of traces, the generator, and the published simulator's rules.

Knows nothing of records.
"""
