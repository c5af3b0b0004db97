"""What workloads there are: formats of traces, and how generated jobs arrive."""

from enum import StrEnum

MOST_JOBS = 1_000_000
"""Of a generated workload; more are a mistake, and all of them are held in memory."""


class Arrivals(StrEnum):
    """When the jobs of a generated workload arrive."""

    POISSON = "poisson"
    """The first at 0, then with exponential gaps."""
    AT_ONCE = "at_once"
    """All at 0."""


class Format(StrEnum):
    """How a file tells its jobs."""

    PUBLIC = "public"
    """As Gavel and Shockwave do: tab-separated, with tables of throughputs and regimes."""
    TIRESIAS = "tiresias"
    """As Tiresias does: a CSV list of static jobs."""
    PHILLY = "philly"
    """The compact CSV table of the Philly trace; models and regimes are drawn."""
    TABLE = "table"
    """Any CSV table of jobs, by the meaning of its columns; models and regimes are drawn."""
