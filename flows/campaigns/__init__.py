"""Many runs: policies × workloads × clusters × seeds × options, as cells of one plan.

Finished cells are not run again.
"""
