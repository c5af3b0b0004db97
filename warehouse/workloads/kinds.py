"""Kinds of workloads: formats of traces, and arrival processes of generated jobs."""

from enum import StrEnum

MOST_JOBS = 1_000_000
"""Upper bound on generated jobs, which are all held in memory. An engineering bound."""


class Arrivals(StrEnum):
    """Arrival process of a generated workload."""

    POISSON = "poisson"
    """The first at 0, then with exponential gaps."""
    AT_ONCE = "at_once"
    """All at 0."""


class Format(StrEnum):
    """Format of a trace."""

    PUBLIC = "public"
    """As Gavel and Shockwave do: tab-separated, with tables of throughputs and regimes."""
    TIRESIAS = "tiresias"
    """As Tiresias does: a CSV list of static jobs."""
    PHILLY = "philly"
    """The compact CSV table of the Philly trace; models and regimes are drawn."""
    TABLE = "table"
    """Any CSV table of jobs, by the meaning of its columns; models and regimes are drawn."""
    JOBS = "jobs"
    """A TOML file of jobs of any kind (docs/jobs.md)."""
