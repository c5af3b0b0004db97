"""Decide a round: plan around non-preemptible jobs, reserved nodes and cells.

Non-preemptible jobs, and jobs on cordoned nodes, keep their GPUs; tenants keep their cells
(`solver.promised`), and their jobs take nodes that are reserved for them in order of arrival.
Policies do not see these GPUs. A stream of non-preemptible jobs could starve a
larger gang, so the gang that has waited longest for their GPUs has a reservation: it starts once
enough of these jobs have reached their limits, and no non-preemptible job that could delay it
starts (EASY backfilling: Lifka, JSSPP '95).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from predictor.allocation import Allocation
from solver.inventory import Inventory
from solver.list_scheduling import must_consolidate
from solver.placement import GangRequest
from solver.placement import place as place_gangs
from solver.plan import (
    ActiveJob,
    Plan,
    Policy,
    Situation,
    SolveReport,
    drop_lost_gpus,
    keep_fitting,
)
from solver.policies import POLICIES, policy_plugin
from solver.policies.plugged import make_checked_plan
from solver.promised import RoundInput, around_cells

ALL_HELD = "all GPUs are held by jobs that are not preempted"


def decide(policy: Policy, situation: RoundInput) -> Plan:
    """Return a policy's plan, around non-preemptible jobs and tenants' cells.

    Raises:
        PluginError: A policy of another distribution failed, or its plan is invalid.
    """
    plugin = policy_plugin(policy.name)
    plan = policy.plan if plugin is None else partial(make_checked_plan, plugin, policy)
    return _around(policy.name, plan, situation)


def place(policy: Policy, situation: RoundInput) -> Plan:
    """Return only the placement of the coming round, as `decide` would choose it.

    Uses the policy's faster `placed` method if it has one.

    Raises:
        PluginError: A policy of another distribution failed.
    """
    placed = getattr(policy, "placed", None) if policy.name in POLICIES else None
    return _around(policy.name, placed, situation) if placed else decide(policy, situation)


def _around(name: str, plan: Callable[[Situation], Plan], situation: RoundInput) -> Plan:
    """Return a policy's plan for the GPUs that neither promises nor staying jobs need."""

    def on_policy_input(given: RoundInput) -> Plan:
        return plan(given.for_policies())

    kept = partial(around_kept, name, on_policy_input)
    if situation.promises is not None:
        return around_cells(name, kept, situation)
    return around_reserved(kept, situation) if situation.reserved else kept(situation)


def around_reserved(plan: Callable[[RoundInput], Plan], situation: RoundInput) -> Plan:
    """Return a plan for the GPUs that no tenant has reserved, plus the jobs on reserved ones.

    A tenant's jobs that do not fit there, or hold other GPUs, compete as all others do.
    """
    placement = dict[int, tuple[int, ...]]()
    for tenant, gpus in situation.reserved.items():
        placement |= _place_reserved(situation, tenant, gpus)
    taken = {*chain.from_iterable((*situation.reserved.values(), *placement.values()))}
    inventory = situation.inventory.without(taken)
    others = [job for job in situation.jobs if job.job_id not in placement]
    staying = [job for job in others if job.gpus and not job.spec.preemptible]
    asking = (drop_lost_gpus(job, inventory) for job in others if job not in staying)
    jobs = [*staying, *keep_fitting(inventory, asking)]
    jobs.sort(key=lambda job: job.job_id)
    found = plan(replace(situation, inventory=inventory, jobs=tuple(jobs)))
    return replace(found, placement={**placement, **found.placement})


def _place_reserved(
    situation: RoundInput, tenant: str, gpus: frozenset[int]
) -> dict[int, tuple[int, ...]]:
    """Return the GPUs of a tenant's jobs among those reserved for it, by job id."""
    keeping = (job for job in situation.jobs if not job.spec.preemptible)
    free = gpus.difference(*(job.gpus for job in keeping if job.spec.tenant != tenant))
    own = [job for job in situation.jobs if job.spec.tenant == tenant]
    own.sort(key=lambda job: (not free.issuperset(job.gpus or (-1,)), job.spec.arrival_seconds))
    placement = dict[int, tuple[int, ...]]()
    for job in own:
        there = job.gpus if free.issuperset(job.gpus) else ()
        if not job.gpus:
            there = _find_room(situation.inventory, job, free)
        if there:
            placement[job.job_id], free = there, free.difference(there)
    return placement


def _find_room(inventory: Inventory, job: ActiveJob, free: frozenset[int]) -> tuple[int, ...]:
    """Return free GPUs of one pool for a waiting job; none without room."""
    for wanted in job.choices:
        for number in inventory.pools_of.get(wanted.gpu_type, ()):
            there = inventory.gpus_in(number)
            kept = [gpu - there.start for gpu in there if gpu not in free]
            gang = GangRequest(job.job_id, wanted.gpus, must_consolidate(job, wanted))
            for found in place_gangs(inventory.pools[number], [gang], {}, kept).values():
                return tuple(there.start + gpu for gpu in found)
    return ()


def around_kept(name: str, plan: Callable[[RoundInput], Plan], situation: RoundInput) -> Plan:
    """Return a policy's plan for the GPUs that no job keeps, plus the leases of the others."""
    keeping = [job for job in situation.jobs if job.gpus and not job.spec.preemptible]
    if not keeping and not situation.closed and situation.inventory.gpus:
        return plan(situation)
    staying = [*_list_staying(situation)]
    pairs = tuple(tuple(sorted(job.job_id for job in on)) for on in staying if len(on) > 1)
    kept = {job.job_id: job.gpus for job in (*keeping, *chain.from_iterable(staying))}
    taken = {*chain.from_iterable(kept.values()), *situation.closed}
    inventory = situation.inventory.without(sorted(taken))
    waiting = [drop_lost_gpus(job, inventory) for job in situation.jobs if job.job_id not in kept]
    returning = [job for job in keeping if situation.closed.isdisjoint(job.gpus)]
    delayed = _delaying(situation, inventory, returning, waiting) if returning else set()
    jobs = tuple(keep_fitting(inventory, (job for job in waiting if job.job_id not in delayed)))
    if not inventory.gpus:
        return Plan(kept, SolveReport(name, reason=ALL_HELD), pairs=pairs)
    found = plan(replace(situation, inventory=inventory, jobs=jobs))
    together = tuple(sorted((*pairs, *found.pairs)))
    return replace(found, placement={**kept, **found.placement}, pairs=together)


def _list_staying(situation: RoundInput) -> Iterator[Sequence[ActiveJob]]:
    """Yield the jobs that continue on cordoned GPUs: single jobs, and pairs that still fit."""
    holders: dict[tuple[int, ...], list[ActiveJob]] = {}
    leaving = situation.maintained
    for job in situation.jobs:
        if leaving.isdisjoint(job.gpus) and not situation.cordoned.isdisjoint(job.gpus):
            holders.setdefault(job.gpus, []).append(job)
    for there in holders.values():
        if len(there) == 1 or there[0].shared_rate(there[1], there[0].own) > 0.0:
            yield there


@dataclass(frozen=True, slots=True)
class Reservation:
    """A gang's latest start, in `seconds`; it then leaves `extra` GPUs of the type free."""

    job_id: int
    gpu_type: str
    seconds: float
    extra: int


def find_reservation(situation: RoundInput) -> Reservation | None:
    """Return the reservation of the gang that has waited longest for non-preemptible jobs.

    Cordoned nodes and open windows rule out a reservation, because a bound on its wait would not
    hold.
    """
    keeping = [job for job in situation.jobs if job.gpus and not job.spec.preemptible]
    if not keeping or situation.closed or situation.reserved:
        return None
    held = {job.job_id: job.gpus for job in keeping}
    inventory = situation.inventory.without(sorted(chain.from_iterable(held.values())))
    waiting = [drop_lost_gpus(job, inventory) for job in situation.jobs if job.job_id not in held]
    return _find_reservation(situation, inventory, keeping, waiting)


def _delaying(
    situation: RoundInput,
    inventory: Inventory,
    keeping: Sequence[ActiveJob],
    waiting: Sequence[ActiveJob],
) -> set[int]:
    """Return the non-preemptible jobs that could delay the gang with the reservation."""
    reserved = _find_reservation(situation, inventory, keeping, waiting)
    found: set[int] = set()
    if reserved is None:
        return found
    extra = reserved.extra
    for job in waiting:
        spec = job.spec
        ends = spec.max_seconds + situation.round_seconds
        if spec.preemptible or not spec.demand.allows(reserved.gpu_type):
            continue
        if ends > reserved.seconds and job.gang > extra:
            found.add(job.job_id)
        elif ends > reserved.seconds:
            extra -= job.gang
    return found


def _find_reservation(
    situation: RoundInput,
    inventory: Inventory,
    keeping: Sequence[ActiveJob],
    waiting: Sequence[ActiveJob],
) -> Reservation | None:
    blocked = (job for job in waiting if not inventory.menu(job.spec.demand))
    first = min(blocked, key=lambda job: (job.spec.arrival_seconds, job.job_id), default=None)
    if first is None:
        return None
    free = inventory.capacities
    found = [_of_type(situation, free, keeping, own, first.job_id) for own in first.menu]
    return min(found, key=lambda reservation: reservation.seconds)


def _of_type(
    situation: RoundInput,
    free: Mapping[str, int],
    keeping: Sequence[ActiveJob],
    wanted: Allocation,
    job_id: int,
) -> Reservation:
    """Return when enough GPUs of a type are free, if jobs run until their limits."""
    left, seconds = free[wanted.gpu_type], 0.0
    for until, gpus in sorted(_list_limits(situation, keeping, wanted.gpu_type)):
        if left >= wanted.gpus:
            break
        left, seconds = left + gpus, until
    return Reservation(job_id, wanted.gpu_type, seconds, left - wanted.gpus)


def _list_limits(
    situation: RoundInput, keeping: Sequence[ActiveJob], gpu_type: str
) -> Iterator[tuple[float, int]]:
    """Yield the time left until each job's limit, in seconds, and its GPUs of a type."""
    for job in keeping:
        if job.own.gpu_type == gpu_type:
            held = job.lease_rounds * situation.round_seconds
            yield max(job.spec.max_seconds - held, 0.0), len(job.gpus)
