"""Many runs: policies × workloads × clusters × seeds × options, as cells of one plan.

A cell that is finished is not run again.
"""
