"""The jobs of the fault benchmark."""

import math
from collections.abc import Sequence

from containers.virtual.truth import GroundTruth
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode, Regime
from predictor.throughput import UNTYPED, Profile
from tasks.sources import Workload

JOBS = (
    ("Recommendation", 32, 1, Mode.STATIC, 30),
    ("LM", 4, 1, Mode.GNS, 6),
    ("Recommendation", 32, 2, Mode.ACCORDION, 40),
    ("LM", 32, 1, Mode.STATIC, 8),
    ("Recommendation", 64, 1, Mode.GNS, 40),
    ("ResNet-18", 32, 1, Mode.STATIC, 4),
)


def workload(
    share: float = 1.0,
    jobs: Sequence[int] = range(len(JOBS)),
    gpu_types: Sequence[str] = (UNTYPED,),
) -> Workload:
    """Small jobs, with throughputs that are about right.

    Args:
        share: Share of their epochs, for few faults.
        jobs: Indices into `JOBS`.
        gpu_types: Types of the cluster's GPUs, which are equally fast.
    """
    specs, truths, rates = [], [], dict[tuple[str, int, str, int], float]()
    for job_id in jobs:
        model, size, gpus, mode, most = JOBS[job_id]
        epochs = math.ceil(share * most)
        samples = 256 if model == "Recommendation" else 128
        spec = JobSpec(job_id, model, size, 4 * size, Demand.gang(gpus), mode, epochs, samples, 0.0)
        specs.append(spec)
        regimes = (Regime(size, epochs),)
        truths.append(GroundTruth(job_id, 8.0, regimes, regimes))
        sizes = [(size, kind) for size in spec.batch_sizes for kind in gpu_types]
        rates |= {(model, size, kind, gpus): 10.0 for size, kind in sizes}
    return Workload("faults", tuple(specs), tuple(truths), Profile(rates))
