"""Kinds of workloads: formats of traces, and arrival processes of generated jobs."""

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
    SACCT = "sacct"
    """Slurm's accounting: any columns and delimiter, or JSON."""
    PHILLY = "philly"
    """A table of Microsoft's Philly trace, or its `cluster_job_log`."""
    PHILLY_JSON = "philly-json"
    """The `cluster_job_log` of the Philly trace."""
    PAI = "pai"
    """Alibaba's PAI: `pai_task_table`, with `pai_job_table` beside it."""
    HELIOS = "helios"
    """SenseTime's Helios: `cluster_log.csv`."""
    ACME = "acme"
    """Shanghai AI Laboratory's Acme: `trace_seren.csv` and `trace_kalos.csv`."""
    ITP = "itp"
    """Microsoft's ITP clusters, as ElasticFlow publishes them."""
    SUPERCLOUD = "supercloud"
    """MIT Supercloud: `slurm-log.csv`."""
    TABLE = "table"
    """Any table of jobs, with columns mapped to roles."""
    JOBS = "jobs"
    """A TOML file of jobs of any kind (docs/jobs.md)."""


LOGS = (
    *(Format.SACCT, Format.PHILLY, Format.PHILLY_JSON, Format.PAI, Format.HELIOS, Format.ACME),
    *(Format.ITP, Format.SUPERCLOUD, Format.TABLE),
)
"""Formats that say of a job when it came, how long it ran, and on how many GPUs."""
