"""Many runs: policies × workloads × clusters × seeds × options, as cells of one plan.

Finished cells are not run again.
"""

from enum import StrEnum


class Runner(StrEnum):
    """Task runner of the cells."""

    THREADS = "threads"
    """Threads of this process, which start at once but run little in parallel."""
    PROCESSES = "processes"
    """Processes on this machine, each with one cell at a time."""
    DASK = "dask"
    """An existing Dask cluster, or a local one on this machine."""
    RAY = "ray"
    """An existing Ray cluster, or a local one on this machine."""
