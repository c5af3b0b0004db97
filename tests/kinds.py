"""Workloads with timed jobs, for tests."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from containers.virtual.truth import GroundTruth
from predictor.allocation import Demand
from predictor.job import JobKind, JobSpec, Regime, make_timed_job
from tasks.sources import Workload, sort_by_arrival

CHECKPOINTING, OPAQUE = JobKind.CHECKPOINTING, JobKind.OPAQUE
WHOLE = (Regime(1, 1),)


def timed(
    job_id: int,
    seconds: float,
    *,
    limit: float,
    kind: JobKind = CHECKPOINTING,
    gpus: int = 1,
    at: float = 0.0,
    image: str = "python:3-slim",
    name: str = "",
) -> tuple[JobSpec, GroundTruth]:
    """A timed job that takes some seconds."""
    spec = make_timed_job(job_id, kind, Demand.gang(gpus), limit, at, image=image, name=name)
    return spec, GroundTruth(job_id, seconds, WHOLE, WHOLE)


def with_jobs(workload: Workload, jobs: Iterable[tuple[JobSpec, GroundTruth]]) -> Workload:
    """A workload with other jobs, whose ids go on from its own."""
    known: Sequence[tuple[JobSpec, GroundTruth]] = list(
        zip(workload.specs, workload.truths, strict=True)
    )
    first = max((spec.job_id for spec, _ in known), default=-1) + 1
    added = [
        (replace(spec, job_id=first + n), replace(truth, job_id=first + n))
        for n, (spec, truth) in enumerate(jobs)
    ]
    specs, truths = sort_by_arrival([*known, *added])
    return replace(workload, specs=specs, truths=truths)
