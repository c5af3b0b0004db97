"""What a log does not say, and how the simulations treat it."""

from warehouse.hindsight.jobs import LoggedJobs
from warehouse.workloads.logs.log import TYPES, UNKNOWN

FIXED = (
    (
        "Nodes out of service",
        "The simulated cluster is whole at all times. If the real one was not, its waits were "
        "longer for that reason.",
    ),
    (
        "Preemption",
        "Every job can be preempted, at the cost of a restart. If some cannot, policies that "
        "preempt would do worse.",
    ),
    (
        "Run times",
        "Policies know each job's run time to the second. With estimates in its place they would "
        "do worse.",
    ),
    ("Elasticity", "Jobs hold as many GPUs as they held, whatever they could have used."),
    (
        "Failures and limits",
        "Jobs that failed, were cancelled while they ran, or reached their limit end after the "
        "same run time. Jobs that ran several times run once, for as long in total.",
    ),
    (
        "Jobs cancelled before they started",
        "They are left out, as nobody knows how long they would have run.",
    ),
    (
        "The edges of the log",
        "Jobs that still ran when the log was written are left out: their GPUs are free in the "
        "simulation, and were not. Jobs from before its first day ran among others that it lacks.",
    ),
    (
        "When jobs come",
        "As in the log, once they could start. Users who wait less would submit more.",
    ),
    (
        "Priorities, quotas, reservations, partitions",
        "Policies have none of them: any job may hold any GPU of its type. Actual waits that they "
        "caused count as waits.",
    ),
)
"""Caveats of all logs."""


def list_caveats(jobs: LoggedJobs, cluster: str) -> list[tuple[str, str]]:
    """Return caveats by subject; `cluster` says what the cluster is, and how it is known."""
    settings = jobs.settings
    restarts = (
        f"Jobs start when a round begins, every {settings.round_seconds:g} s, and lose "
        f"{settings.restart_seconds:g} s when they start or resume, unless they end within the "
        "round. The actual schedule has no rounds, and no job in it resumes. With shorter "
        "rounds, waits under policies would be shorter."
    )
    further = [
        (
            f"{item[:1].upper()}{item[1:]}",
            "All GPUs count as alike." if item == TYPES else "The log does not say it.",
        )
        for item in jobs.log.unknown
        if item not in UNKNOWN
    ]
    return [("The cluster", cluster), ("Restarts and rounds", restarts), *FIXED, *further]
