"""Kinds of workloads: formats of traces, and arrival processes of generated jobs."""

from collections.abc import Mapping
from enum import StrEnum

MOST_JOBS = 1_000_000
"""Most generated jobs; all are held in memory. An engineering bound."""


class Arrivals(StrEnum):
    """Arrival process of a generated workload."""

    POISSON = "poisson"
    """The first job arrives at 0; gaps are exponential."""
    AT_ONCE = "at_once"
    """All jobs arrive at 0."""


class Format(StrEnum):
    """Format of a trace."""

    PUBLIC = "public"
    """Gavel's and Shockwave's: tab-separated, with tables of throughputs and regimes."""
    TIRESIAS = "tiresias"
    """Tiresias's: a CSV list of static jobs."""
    PHILLY = "philly"
    """The compact CSV table of the Philly trace; models and regimes are drawn."""
    TABLE = "table"
    """Any CSV table of jobs, with columns mapped to roles; models and regimes are drawn."""
    JOBS = "jobs"
    """A TOML file of jobs of any kind (docs/jobs.md)."""


TABLE_COLUMNS: Mapping[str, Mapping[str, str]] = {
    Format.PHILLY: {"arrival": "timestamp", "duration": "duration", "gpus": "num_gpus"}
}
"""Columns by role of published tables, which `job_table.read_job_table` reads. For a format of this
kind, its name and columns are all that must be added."""
