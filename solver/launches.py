"""How often jobs were launched, for policies that let jobs restart the less, the more they did."""

from collections.abc import Mapping

from solver.plan import ActiveJob, Situation


def is_launched(
    situation: Situation, job: ActiveJob, placement: Mapping[int, tuple[int, ...]]
) -> bool:
    """Return whether a job starts or restarts: its GPUs on some node change."""
    node = situation.inventory.node
    now = [node(gpu) for gpu in placement.get(job.job_id, ())]
    return bool(now) and now != [node(gpu) for gpu in job.gpus]


def count_launches(
    before: Mapping[int, int], situation: Situation, placement: Mapping[int, tuple[int, ...]]
) -> dict[int, int]:
    """Return how often each active job was launched, the coming round included, by job id."""
    return {
        job.job_id: before.get(job.job_id, 0) + is_launched(situation, job, placement)
        for job in situation.jobs
    }
