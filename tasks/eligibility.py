"""Active jobs that may not get GPUs yet under any policy, because of other jobs or a quota."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from predictor.belief import Belief
from predictor.options import array_of
from tasks.tenancy import NO_TENANCY, Tenancy


class BlockReason(StrEnum):
    """Why a job may not get GPUs in a round."""

    AFTER = "after"
    """Jobs that it depends on have not ended."""
    ARRAY = "array"
    """The tasks of its array that hold GPUs are as many as may run at a time."""
    QUOTA = "quota"
    """Its tenant has used up its quota."""


@dataclass(frozen=True, slots=True)
class BlockedJob:
    """A job that may not get GPUs in a round.

    It waits for `jobs`, or until its tenant's next quota window begins, on the run's clock.
    """

    reason: BlockReason
    jobs: tuple[int, ...] = ()
    until_seconds: float = 0.0


def find_blocked_jobs(
    beliefs: Mapping[int, Belief],
    holding: Collection[int],
    ordered: Collection[int],
    tenancy: Tenancy = NO_TENANCY,
) -> dict[int, BlockedJob]:
    """Return the active jobs that may not get GPUs because of other jobs or a quota, by job id.

    Jobs that depend on a failed job are cancelled (`find_failed_dependencies`), so a job waits
    only for jobs that are still active. Jobs without GPUs by an order (`ordered`) do not count
    towards their array's limit.
    """
    found: dict[int, BlockedJob] = {}
    spent = {t: end for t in tenancy.usage if (end := tenancy.spent_until(t)) is not None}
    arrays: dict[int, list[int]] = {}
    for job_id, belief in beliefs.items():
        options = belief.spec.options
        waits = [other for other in options.after if other in beliefs] if options.after else ()
        until = spent.get(belief.spec.tenant) if spent else None
        if until is not None and (belief.spec.preemptible or job_id not in holding):
            found[job_id] = BlockedJob(BlockReason.QUOTA, until_seconds=until)
        elif waits:
            found[job_id] = BlockedJob(BlockReason.AFTER, tuple(sorted(waits)))
        elif options.task.at_once and job_id not in ordered:
            arrays.setdefault(array_of(job_id, options) or 0, []).append(job_id)
    for tasks in arrays.values():
        tasks.sort(key=lambda job: (job not in holding, beliefs[job].progress is None, job))
        most = beliefs[tasks[0]].spec.options.task.at_once
        first = tuple(sorted(tasks[:most]))
        found |= {job_id: BlockedJob(BlockReason.ARRAY, first) for job_id in tasks[most:]}
    return found


def find_failed_dependencies(
    beliefs: Mapping[int, Belief], finished: Collection[int]
) -> dict[int, int]:
    """Return the active jobs that depend on a job that did not finish, with that job, by job id."""
    waits = {j: b.spec.options.after for j, b in beliefs.items() if b.spec.options.after}
    failed = {
        job_id: next((job for job in after if job not in beliefs and job not in finished), None)
        for job_id, after in waits.items()
    }
    return {job_id: job for job_id, job in failed.items() if job is not None}
