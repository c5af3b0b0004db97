"""Why a job was preempted: who gets its GPUs."""

from collections.abc import Iterable, Mapping


def displaced(
    gpus: Iterable[int],
    before: Mapping[int, tuple[int, ...]],
    now: Mapping[int, tuple[int, ...]],
) -> str:
    """The reason of a preemption in words: the jobs that get the GPUs.

    Args:
        gpus: GPUs of the preempted job.
        before: GPUs by job in the last round.
        now: GPUs by job in the coming round.
    """
    lost = set(gpus)
    others = [
        job for job, held in now.items() if before.get(job) != held and not lost.isdisjoint(held)
    ]
    if not others:
        return "its GPUs are left idle"
    return f"its GPUs go to job{'s' * (len(others) > 1)} {', '.join(map(str, sorted(others)))}"
