"""What was and what is to be scheduled: records, views over them, traces, workloads.

Knows nothing of Prefect.
"""
