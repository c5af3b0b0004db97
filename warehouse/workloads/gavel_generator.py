"""Jobs as Gavel's generator draws them (Narayanan et al., OSDI '20, section 7.1).

Model and batch size are drawn from those that a table of throughputs has for the gang. Run times on
a V100 are 60 · 10^U(1.5, 3) s for 80 % of the jobs and 60 · 10^U(3, 4) s for the rest. Arrivals are
a Poisson process, or all at once. The distributions are Gavel's, the random numbers are not. SLOs
and priorities are not drawn.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobSpec, Mode
from predictor.throughput import Profile
from tasks.sources import Workload
from warehouse.wording import counted
from warehouse.workloads.gavel import EPOCH_STEPS, USUAL_TYPE, static_truth
from warehouse.workloads.kinds import Arrivals
from warehouse.workloads.mix import check_weights, smaller_than

GANGS: Mapping[int, float] = MappingProxyType({1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05})
"""Weight of each gang size in GPUs, from the published generator."""


def generate_from_table(
    profile: Profile,
    jobs: int,
    *,
    rng: np.random.Generator,
    gpu_types: Collection[str] = (),
    arrivals: Arrivals = Arrivals.POISSON,
    mean_interarrival_seconds: float = 90.0,
    scale_factors: Mapping[int, float] = GANGS,
) -> Workload:
    """Draw a workload; the same generator state gives the same workload.

    Args:
        profile: Throughputs by GPU type. Run times are drawn on V100s; without V100s, on the first
            type.
        jobs: Number of jobs, positive.
        rng: Source of all randomness.
        gpu_types: GPU types of the cluster; each job can run on one of them. By default, the type
            on which run times are drawn.
        arrivals: Arrival process.
        mean_interarrival_seconds: Mean gap between Poisson arrivals, positive.
        scale_factors: Weight of each gang size in GPUs.

    Raises:
        InputError: The weights are invalid, or the table has no job with that many GPUs.
    """
    check_weights("scale_factors", scale_factors)
    drawn_on = USUAL_TYPE if USUAL_TYPE in profile.gpu_types else profile.gpu_types[0]
    found = profile.of_types(gpu_types or (drawn_on,))
    kinds = _kinds(profile, drawn_on, found.gpu_types)
    if not kinds:
        problem = "has no job that can run on the cluster's GPU types"
        raise InputError(profile.source, problem, "give other pools, or another table")
    for gpus in (gpus for gpus, weight in scale_factors.items() if weight and gpus not in kinds):
        some = ",".join(f"{known}=1" for known in sorted(kinds))
        raise InputError(
            "scale_factors",
            f"jobs with {counted(gpus, 'GPU')} are to be drawn, and {Path(profile.source).name} "
            "has none that can run there",
            f"give weights of those that it has, as in {some}",
        )
    weights = np.array(list(scale_factors.values())) / sum(scale_factors.values())
    at_once = arrivals is Arrivals.AT_ONCE
    gaps = np.zeros(jobs) if at_once else rng.exponential(mean_interarrival_seconds, jobs)
    specs = []
    for job_id, arrival in enumerate(np.cumsum(gaps) - gaps[0]):
        single = len(scale_factors) == 1
        gpus = next(iter(scale_factors)) if single else int(rng.choice([*scale_factors], p=weights))
        model, batch_size = kinds[gpus][rng.integers(len(kinds[gpus]))]
        power = rng.uniform(1.5, 3.0) if rng.random() < 0.8 else rng.uniform(3.0, 4.0)
        rate = profile.rates[model, batch_size, drawn_on, gpus]
        steps = max(1, int(60.0 * 10.0**power * rate))
        specs.append(
            JobSpec(
                job_id=job_id,
                model=model,
                batch_size=batch_size,
                max_batch_size=batch_size,
                demand=Demand.gang(gpus),
                mode=Mode.STATIC,
                epochs=-(-steps // EPOCH_STEPS),
                samples_per_epoch=EPOCH_STEPS * batch_size,
                arrival_seconds=float(arrival),
                total_steps=steps,
            )
        )
    pace = f"{arrivals}" + f", {mean_interarrival_seconds:g} s apart" * (not at_once)
    return Workload(
        source=f"generated from {Path(profile.source).name}: {counted(jobs, 'job')}, {pace}",
        specs=tuple(specs),
        truths=tuple(static_truth(spec, found) for spec in specs),
        profile=found,
        smaller=smaller_than(scale_factors),
    )


def _kinds(
    profile: Profile, drawn_on: str, gpu_types: Collection[str]
) -> dict[int, list[tuple[str, int]]]:
    """Return models and batch sizes by number of GPUs, sorted."""
    found: dict[int, list[tuple[str, int]]] = {}
    for (model, size, kind, gpus), rate in sorted(profile.rates.items()):
        there = any(profile.rates.get((model, size, known, gpus)) for known in gpu_types)
        if kind == drawn_on and rate > 0.0 and there:
            found.setdefault(gpus, []).append((model, size))
    return found
