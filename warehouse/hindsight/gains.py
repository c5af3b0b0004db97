"""Who gains and who loses under a policy: users, accounts, and jobs of a size."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warehouse.hindsight.jobs import LoggedJobs
from warehouse.hindsight.schedules import Schedule


@dataclass(frozen=True)
class Gain:
    """What a policy changes for a group of jobs.

    Attributes:
        group: A user, an account, or a number of GPUs.
        actual_wait: Mean wait in seconds by the log.
        wait: Mean wait in seconds under the policy.
        saved: Mean time in seconds by which jobs end sooner; negative if later.
        sooner: Share of jobs that end sooner by more than a round.
        later: Share of jobs that end later by more than a round.
    """

    group: str
    policy: str
    jobs: int
    gpu_hours: float
    actual_wait: float
    wait: float
    saved: float
    sooner: float
    later: float


def measure_gains(groups: Sequence[str], actual: Schedule, policy: Schedule) -> list[Gain]:
    """Return the gains of groups of jobs, given by job id; those with the most work come first."""
    names, places = np.unique(np.array(groups, dtype=object).astype(str), return_inverse=True)
    jobs, earlier = actual.jobs, actual.ends - policy.ends
    much = jobs.settings.round_seconds
    counts = np.bincount(places)
    work = np.bincount(places, jobs.work)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(places, values) / counts

    columns = (
        *(mean(actual.waits), mean(policy.waits), mean(earlier)),
        *(mean(earlier > much), mean(earlier < -much)),
    )
    return [
        Gain(
            str(names[at]),
            policy.label,
            int(counts[at]),
            float(work[at] / 3600),
            *(float(column[at]) for column in columns),
        )
        for at in sorted(range(len(names)), key=lambda at: (-work[at], names[at]))
    ]


def group_by_user(jobs: LoggedJobs) -> list[str]:
    """Return the user of each job."""
    return [job.user or "(unknown)" for job in jobs.log.jobs]


def group_by_account(jobs: LoggedJobs) -> list[str]:
    """Return the account of each job: its tenant."""
    return [job.tenant for job in jobs.log.jobs]


def group_by_size(jobs: LoggedJobs) -> list[str]:
    """Return the number of GPUs of each job, in classes that double."""
    return [_name_class(gpus) for gpus in jobs.gpus]


def _name_class(gpus: float) -> str:
    if gpus < 1.0:
        return "less than 1 GPU"
    last = 1
    while last < gpus:
        last *= 2
    first = last // 2 + 1
    return f"{last} GPU{'s' * (last > 1)}" if first >= last else f"{first}–{last} GPUs"
