"""What a service accepts: jobs that its cluster can run, commands about what there is."""

from collections.abc import Callable
from functools import partial

from containers.runtime import Terms
from containers.virtual.truth import GroundTruth, check_jobs
from flows.runs.prepared import terms
from predictor.errors import InputError
from predictor.job import JobSpec
from tasks.record import RunHeader, RuntimeKind
from warehouse.workloads.generator import declared_truth

LARGEST = 2**53
"""Largest number in a declaration: records hold 64 bits, and JSON's readers have doubles."""

LEAST_BUDGET, LARGEST_BUDGET = 1e-6, 1e6
"""Bounds of budgets: they are relative, and those of others must not vanish beside one."""


def truth_of(header: RunHeader) -> Callable[[JobSpec], GroundTruth] | None:
    """What makes the ground truths of a service's jobs; None where they are real."""
    if header.settings.runtime == RuntimeKind.DOCKER:
        return None
    return partial(declared_truth, profile=header.throughputs, seed=header.settings.seed)


def check_budget(field: str, value: float) -> None:
    """Refuse what is no budget.

    Raises:
        InputError: It is out of bounds.
    """
    if not LEAST_BUDGET <= value <= LARGEST_BUDGET:
        remedy = f"give a number from {LEAST_BUDGET:g} to {LARGEST_BUDGET:g}"
        raise InputError(field, f"{value:g} is no budget", remedy)


def check_job(spec: JobSpec, header: RunHeader) -> None:
    """Refuse a job that a service cannot schedule.

    Raises:
        InputError: It does not fit the cluster, a number is too large to be recorded, or the
            service has no throughput of it.
    """
    inventory, profile = header.settings.inventory, header.throughputs
    for name in ("max_batch_size", "epochs", "samples_per_epoch", "total_steps", "max_seconds"):
        if getattr(spec, name) > LARGEST:
            raise InputError(name, f"is above {LARGEST:,}", "give a smaller number")
    check_budget("budget", spec.budget)
    if not inventory.menu(spec.demand) or spec.demand.most > LARGEST:
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
