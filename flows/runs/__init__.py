"""One run: from a workload, a cluster and settings to records.

On a virtual clock or on Docker hosts, from its beginning or resumed.
"""
