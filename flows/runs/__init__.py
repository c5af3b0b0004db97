"""A run: from a workload, a cluster and settings to records.

Runs start or resume on a virtual clock or on Docker hosts.
"""
