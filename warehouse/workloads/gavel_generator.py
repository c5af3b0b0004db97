"""Jobs as the generator of Gavel's authors draws them (Narayanan et al., OSDI '20, section 7.1).

Model and batch size are drawn among those that the table of throughputs has for the gang. Run times
on a V100 are 60 · 10^U(1.5, 3) s for 80 % of the jobs and 60 · 10^U(3, 4) s for the rest. Arrivals
are a Poisson process, or all at once. Its distributions, not its random numbers.
"""

import numpy as np

from predictor.allocation import Demand
from predictor.job import JobSpec, Mode
from predictor.throughput import Profile
from tasks.sources import Workload
from warehouse.workloads.gavel import EPOCH_STEPS, USUAL_TYPE, static_truth

GANGS = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}
"""Weight of each number of GPUs of a gang, where gangs are drawn."""


def drawn(
    profile: Profile, jobs: int, seed: int, *, gangs: bool, per_hour: float = 0.0
) -> Workload:
    """Draw a workload.

    Args:
        profile: Throughputs by GPU type.
        jobs: Number of jobs.
        seed: Of all draws.
        gangs: Whether jobs may have several GPUs; else all have one.
        per_hour: Jobs that arrive in an hour; 0 for all at the start.
    """
    rng = np.random.default_rng(seed)
    kinds: dict[int, list[tuple[str, int]]] = {}
    for (model, batch_size, gpu_type, gpus), rate in profile.rates.items():
        if gpu_type == USUAL_TYPE and rate > 0.0:
            kinds.setdefault(gpus, []).append((model, batch_size))
    gaps = rng.exponential(3600.0 / per_hour, jobs) if per_hour else np.zeros(jobs)
    specs = []
    for job_id, arrival in enumerate(np.cumsum(gaps) - gaps[0]):
        gpus = int(rng.choice(list(GANGS), p=list(GANGS.values()))) if gangs else 1
        model, batch_size = sorted(kinds[gpus])[rng.integers(len(kinds[gpus]))]
        power = rng.uniform(1.5, 3.0) if rng.random() < 0.8 else rng.uniform(3.0, 4.0)
        rate = profile.rates[model, batch_size, USUAL_TYPE, gpus]
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
    return Workload(
        source=f"generated as by Gavel: {jobs} jobs, {per_hour:g} an hour, seed {seed}",
        specs=tuple(specs),
        truths=tuple(static_truth(spec, profile) for spec in specs),
        profile=profile,
    )
