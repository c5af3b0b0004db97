"""Runs: from a workload and settings to records, on a virtual clock or on Docker hosts."""
