"""What a service accepts: jobs that its cluster can run, commands about what there is."""

from collections.abc import Callable
from functools import partial

from containers.runtime import Terms
from containers.virtual.truth import GroundTruth, check_jobs
from flows.runs.start import terms
from predictor.errors import InputError
from predictor.job import JobSpec
from tasks.record import RunHeader, RuntimeKind
from warehouse.workloads.generator import declared_truth


def truth_of(header: RunHeader) -> Callable[[JobSpec], GroundTruth] | None:
    """What makes the ground truths of a service's jobs; None where they are real."""
    if header.settings.runtime is RuntimeKind.DOCKER:
        return None
    return partial(declared_truth, profile=header.throughputs, seed=header.settings.seed)


def check_job(spec: JobSpec, header: RunHeader) -> None:
    """Refuse a job that a service cannot schedule.

    Raises:
        InputError: It does not fit the cluster, or the service has no throughput of it.
    """
    inventory, profile = header.settings.inventory, header.throughputs
    if not inventory.menu(spec.demand):
        raise InputError(
            "gpus",
            f"{spec.demand.least} are asked for, and the cluster has {inventory.gpus}",
            "ask for fewer, or for types that it has",
        )
    models = {key[0] for key in profile.rates}
    if not spec.timed and spec.model not in models:
        remedy = f"known are {', '.join(sorted(models))}"
        raise InputError("model", f"the service has no throughputs of {spec.model!r}", remedy)
    for size in spec.batch_sizes:
        profile.rate(spec, size, profile.reference(spec))
    made: Terms = terms(header)
    truth = truth_of(header)
    if truth:
        check_jobs([spec], {spec.job_id: truth(spec)}, made, published_rules=False)
