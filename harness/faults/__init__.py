"""Schedulers, jobs, daemons and nodes of Docker or Slurm fail: `python -m harness.faults`."""
