"""Workloads of a cluster's log: its jobs as they were, or with models and regimes drawn."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median_low

import numpy as np

from containers.virtual.truth import GroundTruth
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobSpec, Mode, Regime
from predictor.throughput import UNTYPED, Profile
from tasks.sources import Workload, sort_by_arrival
from warehouse.workloads.families import FAMILIES, generated_profile
from warehouse.workloads.generator import (
    JobRequest,
    draw_family,
    draw_model,
    draw_modes,
    draw_regimes,
)
from warehouse.workloads.logs.log import TableJob
from warehouse.workloads.mix import MODE_WEIGHTS, MOST_SECONDS

SLOTS = 1, 2, 4, 5, 10, 20, 25, 50, 100
"""Numbers of slots of a GPU that are tried, from the smallest."""

MODEL = "job"
"""Model of jobs whose log names none."""


def choose_slots(jobs: Sequence[TableJob]) -> int:
    """Return the least number of slots of a GPU in which all jobs' shares are whole."""
    gpus = {job.gpus for job in jobs}
    return next(
        (n for n in SLOTS if all(_is_whole(number * n) for number in gpus)),
        SLOTS[-1],
    )


def _is_whole(number: float) -> bool:
    return abs(number - round(number)) < 1e-6


def count_slots(job: TableJob, slots: int) -> int:
    """Return the slots of a job, rounded up."""
    return math.ceil(round(job.gpus * slots, 6))


def _arrivals(jobs: Sequence[TableJob]) -> list[float]:
    """Return the times since the first arrival, in seconds."""
    times = [job.arrival_seconds for job in jobs]
    first = min(times)
    if max(times) - first > MOST_SECONDS:
        middle = median_low(times)
        worst = max(jobs, key=lambda job: abs(job.arrival_seconds - middle))
        gap = worst.arrival_seconds - middle
        problem = f"is {abs(gap):g} s {'after' if gap > 0 else 'before'} most arrivals, too far"
        raise InputError(
            f"{worst.place}, arrival", problem, "correct the field, or leave the line out"
        )
    return [arrival - first for arrival in times]


def make_workload(
    source: str, jobs: Sequence[TableJob], slots: int = 0, gpu_types: Sequence[str] = ()
) -> Workload:
    """Return a workload of jobs as they were: static, and as long as they ran, to the second.

    Jobs are numbered from 0 in their order. Each trains an epoch of one step in each second of its
    run time, rounded up.

    Args:
        source: Name of the workload.
        jobs: At least one job.
        slots: Slots of a GPU, into which shares are rounded up; 0 for as few as all shares need.
        gpu_types: GPU types of the cluster, if it names any: jobs that had one of them need it.

    Raises:
        InputError: A job arrives too long after the first one.
    """
    slots = slots or choose_slots(jobs)
    types = {kind.casefold(): (kind,) for kind in gpu_types}
    had = Counter(job.gpu_type for job in jobs if job.gpu_type and types)
    demands: dict[tuple[int, tuple[str, ...]], Demand] = {}
    made = []
    for job_id, (job, arrival) in enumerate(zip(jobs, _arrivals(jobs), strict=True)):
        key = count_slots(job, slots), types.get(job.gpu_type.casefold(), ())
        demand = demands.setdefault(key, Demand(key[0], key[0], key[1]))
        made.append(_make_static(job_id, job, arrival, demand))
    specs, truths = sort_by_arrival(made)
    cohorts = {spec.cohort for spec in specs}
    rates = {
        (model, size, kind, gpus): 1.0
        for model, size, gpus in cohorts
        for kind in gpu_types or (UNTYPED,)
    }
    return Workload(
        source=_name(source, slots),
        specs=specs,
        truths=truths,
        profile=Profile(rates, source),
        places=_places(jobs),
        slots=slots,
        lacking={kind: had[kind] for kind in sorted(had) if kind.casefold() not in types},
    )


def _make_static(
    job_id: int, job: TableJob, arrival: float, demand: Demand
) -> tuple[JobSpec, GroundTruth]:
    seconds = math.ceil(round(job.seconds, 3))
    spec = JobSpec(
        job_id=job_id,
        model=job.model or MODEL,
        batch_size=1,
        max_batch_size=1,
        demand=demand,
        mode=Mode.STATIC,
        epochs=seconds,
        samples_per_epoch=1,
        arrival_seconds=arrival,
        tenant=job.tenant,
        name=job.name,
    )
    whole = (Regime(1, seconds),)
    return spec, GroundTruth(job_id, float(seconds), whole, whole)


def _name(source: str, slots: int) -> str:
    return source if slots == 1 else f"{source}, 1/{slots} GPU a slot"


def _places(jobs: Sequence[TableJob]) -> dict[int, str]:
    return {job_id: job.place for job_id, job in enumerate(jobs) if job.place}


def draw_workload(
    source: str,
    jobs: Sequence[TableJob],
    rng: np.random.Generator,
    modes: Mapping[Mode, float] = MODE_WEIGHTS,
    slots: int = 0,
) -> Workload:
    """Return a workload of a log's jobs, with models, modes and regimes drawn as by the generator.

    Isolated run times are as close to the log's as whole epochs allow.
    """
    slots = slots or choose_slots(jobs)
    gangs = [count_slots(job, slots) for job in jobs]
    profile = generated_profile(sorted({*gangs}))
    families = {family.name: family for family in FAMILIES}
    for model in dict.fromkeys(job.model for job in jobs if job.model):
        families[model] = families.get(model) or draw_family(rng)
    made = []
    drawn = zip(jobs, gangs, _arrivals(jobs), draw_modes(rng, len(jobs), modes), strict=True)
    for job_id, (job, gpus, arrival, mode) in enumerate(drawn):
        family, batch_size = draw_model(rng, families[job.model] if job.model else None)
        request = JobRequest(job_id, mode, gpus, arrival, job.seconds, job.tenant, job.name)
        made.append(draw_regimes(rng, request, family, batch_size, profile))
    specs, truths = sort_by_arrival(made)
    return Workload(_name(source, slots), specs, truths, profile, _places(jobs), slots=slots)
