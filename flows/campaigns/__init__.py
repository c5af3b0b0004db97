"""Many runs: policies × workloads × clusters × seeds × options."""
