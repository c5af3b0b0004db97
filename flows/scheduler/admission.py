"""Checks before a service accepts a job, a node or a tenant's terms."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from containers.runtime import Terms
from containers.virtual.truth import GroundTruth, check_jobs
from flows.runs.simulation import make_terms
from flows.runs.start import check_prices, make_policy_of
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobSpec
from predictor.throughput import Profile
from solver.inventory import MOST_GPUS, Inventory, Pool, add_nodes
from solver.policies import for_several_pools
from tasks.commands import CommandKind, NewNode, TenantTerms
from tasks.record import ON_MACHINES, RunHeader
from tasks.state import RunState
from tasks.tenancy import may_use_image
from warehouse.workloads.generator import declared_truth

PATTERN = re.compile(r"[A-Za-z0-9*?\[\]!._/:@-]{1,255}")
"""Form of an image pattern, as `fnmatch` takes it."""

LEAST_WINDOW, MOST_HOURS = 0.01, 1e9
"""Shortest window of a quota, in hours, and most hours of any term. Engineering bounds."""

LARGEST = 2**53
"""Largest number in a job: JSON readers use doubles, which represent integers up to 2**53."""

LEAST_BUDGET, LARGEST_BUDGET = 1e-6, 1e6
"""Bounds of budgets, so that no budget makes all others negligible. Engineering bounds."""


def find_truth_maker(header: RunHeader) -> Callable[[JobSpec], GroundTruth] | None:
    """Return the function that makes a job's ground truth; None if jobs are real."""
    if header.settings.runtime in ON_MACHINES:
        return None
    return partial(declared_truth, profile=header.throughputs, seed=header.settings.seed)


def check_budget(field: str, value: float) -> None:
    """Raise `InputError` if a budget is out of bounds."""
    if not LEAST_BUDGET <= value <= LARGEST_BUDGET:
        remedy = f"give a number from {LEAST_BUDGET:g} to {LARGEST_BUDGET:g}"
        raise InputError(field, f"{value:g} is not a valid budget", remedy)


def check_terms(terms: TenantTerms) -> None:
    """Raise `InputError` if a term of a tenant is out of bounds."""
    check_budget("budget", terms.budget)
    for name, least in (("gpu_hours", 0.0), ("window_hours", LEAST_WINDOW), ("rollover", 0.0)):
        value = getattr(terms, name)
        if not least <= value <= MOST_HOURS:
            problem, remedy = f"{value:g} is out of bounds", f"give {least:g} to {MOST_HOURS:g}"
            raise InputError(name, problem, remedy)
    for form in terms.images:
        if not PATTERN.fullmatch(form):
            problem = f"{form[:80]!r} is not an image pattern"
            raise InputError("images", problem, "give one such as team/*:v?")


def check_tenant(spec: JobSpec, terms: TenantTerms | None) -> None:
    """Raise `InputError` if a job's tenant may not use its image."""
    if not may_use_image(terms, spec.image):
        problem = f"tenant {spec.tenant} may not use {spec.image}"
        raise InputError("image", problem, "use one of its images, or ask an operator")


def _check_rate(spec: JobSpec, batch_size: int, profile: Profile) -> None:
    try:
        profile.rate(spec, batch_size, profile.reference(spec))
    except InputError as error:
        known = [key for key in profile.rates if key[0] == spec.model]
        sizes = ", ".join(map(str, sorted({key[1] for key in known})))
        gpus = ", ".join(map(str, sorted({key[3] for key in known})))
        remedy = f"known batch sizes: {sizes}; known numbers of GPUs: {gpus}"
        raise InputError("batch_size", f"the service has {error.problem}", remedy) from None


def check_node(node: NewNode, header: RunHeader, inventory: Inventory) -> None:
    """Refuse a node that a service cannot take; `inventory` has the added and removed nodes, too.

    Raises:
        InputError: Cells are promised to tenants; the cluster would be too large; the service has
            no throughputs of the GPU type; the policy schedules only one pool; or it needs a price.
    """
    if header.settings.cells:
        problem = "cells are promised to tenants on the nodes of its start"
        raise InputError("node", problem, "start a service on the new cluster")
    if inventory.gpus + node.gpus > MOST_GPUS:
        raise InputError("gpus", f"{node.gpus} are too many", f"a cluster has {MOST_GPUS} at most")
    pools = add_nodes(inventory.pools, [node.pool])
    kinds = header.throughputs.gpu_types
    if node.gpu_type not in {*inventory.types, *kinds}:
        remedy = f"choose from {', '.join(sorted(kinds))}"
        problem = f"the service has no throughputs of {node.gpu_type!r}"
        raise InputError("gpu_type", problem, remedy)
    if len(pools) > 1 and not make_policy_of(header.settings).several_pools:
        last = inventory.pools[-1]
        raise InputError(
            "node",
            f"it would form a second pool, and {header.settings.policy} schedules only one",
            f"add a node of {last.gpus_per_node} GPUs of the last type and price, "
            f"or start a service with one of {', '.join(for_several_pools())}",
        )
    check_prices(header.settings, [node.pool])


def check_order(kind: str, target: int, state: RunState, inventory: Inventory) -> None:
    """Refuse an order that would take GPUs back from users' Slurm jobs, which run on.

    `target` is a job's id or a node's index in `inventory`.

    Raises:
        InputError: The order would preempt a job whose owner did not say that it saves.
    """
    jobs = [j for j in state.leases if not state.beliefs[j].spec.preemptible]
    if kind in (CommandKind.DRAIN, CommandKind.REMOVE):
        jobs = [j for j in jobs if target in map(inventory.node, state.leases[j])]
        field, remedy = "node", "cordon it, and they run to their ends"
    elif kind in (CommandKind.HOLD, CommandKind.REQUEUE):
        jobs = [j for j in jobs if j == target]
        field, remedy = "job", "wait for its end, or cancel it"
    else:
        return
    if jobs:
        problem = f"job {min(jobs)} runs, and its owner did not say that it saves"
        raise InputError(field, problem, remedy)


def _explain_misfit(demand: Demand, pools: Sequence[Pool]) -> str:
    """Say why no pool can run a job: a gang never spans pools."""
    total, asked = sum(pool.gpus for pool in pools), f"{demand.size} are requested"
    if demand.size > total or not demand.types:
        fits = [pool.gpus for pool in pools]
        of = ""
    else:
        fits = [pool.gpus for pool in pools if demand.allows(pool.gpu_type)]
        of = f" of type {' or '.join(demand.types)}"
    if demand.size > total or len(fits) == len(pools) == 1:
        return f"{asked}, but the cluster has {total}"
    if not fits:
        return f"{asked}{of}, and the cluster has none of these"
    return f"{asked}{of} in one pool, and the largest pool of the cluster's {total} has {max(fits)}"


def check_job(
    spec: JobSpec,
    header: RunHeader,
    inventory: Inventory | None,
    truth: Callable[[JobSpec], GroundTruth] | None = None,
) -> None:
    """Refuse a job that a service cannot schedule.

    `inventory` has the nodes that were not removed; None if all were removed. `truth` makes the
    job's ground truth, by default as for a new job.

    Raises:
        InputError: The job does not fit the cluster, a number is too large to be recorded, or the
            service has no throughput for the job.
    """
    profile = header.throughputs
    for name in ("max_batch_size", "epochs", "samples_per_epoch", "total_steps", "max_seconds"):
        if getattr(spec, name) > LARGEST:
            raise InputError(name, f"is above {LARGEST:,}", "give a smaller number")
    check_budget("budget", spec.budget)
    if not (inventory and inventory.menu(spec.demand.rigid)) or spec.demand.most > LARGEST:
        problem = _explain_misfit(spec.demand, inventory.pools if inventory else ())
        raise InputError("gpus", problem, "request fewer, or other types")
    if not spec.timed:
        profile.check_model(spec.model)
    for size in spec.batch_sizes:
        _check_rate(spec, size, profile)
    made: Terms = make_terms(header)
    truth = truth or find_truth_maker(header)
    if truth:
        check_jobs([spec], {spec.job_id: truth(spec)}, made, published_rules=False)
