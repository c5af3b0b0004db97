"""Schedule the coming round in list order, with backfilling and placement."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from predictor.allocation import Allocation
from predictor.throughput import runs_on
from solver.inventory import Inventory, Pool
from solver.placement import GangRequest, find_staying, has_shared_gpus, make_room, place
from solver.plan import ActiveJob, Situation


class Claim(NamedTuple):
    """A job and an allocation that it gets if there is room; `other` is a job that shares it."""

    job: ActiveJob
    allocation: Allocation
    other: ActiveJob | None = None

    @property
    def job_ids(self) -> tuple[int, ...]:
        """The jobs of the claim."""
        return (self.job.job_id,) if self.other is None else (self.job.job_id, self.other.job_id)


def make_claims(jobs: Iterable[ActiveJob]) -> list[Claim]:
    """Return the claims of jobs, in order: one for each allocation in a job's menu."""
    return [Claim(job, allocation) for job in jobs for allocation in job.choices]


def next_round(situation: Situation, order: Sequence[Claim]) -> dict[int, tuple[int, ...]]:
    """Place the jobs of the coming round by list scheduling, with backfilling.

    The first claim of a job that has room is met. Running jobs keep their GPUs if they stay in
    their pool, unless a consolidated job of higher priority needs some of these GPUs
    (`solver.placement.make_room`). A claim is skipped only if no layout of a pool has room for it,
    so neither lower priorities nor fragmentation delay a job. If the profile has rates by number
    of nodes, a gang is consolidated where that is worth the restarts (`split_by_placement`).

    Claims are ordered by descending priority. Returns GPU indices by job, each job's in one pool.
    """
    inventory = situation.inventory
    order, consolidated = split_by_placement(situation, order)
    held = _held(inventory, order)
    sharing = any(claim.other for claim in order) or has_shared_gpus(held)
    skipped_from: dict[tuple[int, int], int] = {}
    passed: set[tuple[int, int]] = set()
    while True:
        chosen = find_fitting(inventory, order, skipped_from, consolidated, passed)
        found: dict[int, tuple[int, ...]] = {}
        for number, first in enumerate(inventory.first_gpus):
            positions = [position for position, there in chosen.items() if there == number]
            gangs = [
                GangRequest(
                    job.job_id, allocation.gpus, job.spec.consolidate or position in consolidated
                )
                for position in positions
                for job, allocation, _ in [order[position]]
            ]
            kept = [gpu - first for gpu in inventory.kept_in(number)]
            before = held[number]
            if sharing:
                before = find_staying(before, (order[position].job_ids for position in positions))
            pool = inventory.pools[number]
            if consolidated:
                moving = {order[n].job.job_id for n in positions if n in consolidated}
                before = {
                    job: gpus
                    for job, gpus in before.items()
                    if not (job in moving and _spread_over(pool, gpus))
                }
            worth = [consolidated.get(position, inf) for position in positions]
            placed = _laid_out(pool, gangs, before, kept, worth, situation.restart_seconds)
            if len(placed) < len(gangs):
                unmet = next(n for n, gang in enumerate(gangs) if gang.job_id not in placed)
                if positions[unmet] in consolidated:
                    passing = _passed_with(positions[unmet], order, consolidated, held[number])
                    passed.update((number, position) for position in passing)
                else:
                    skipped_from[number, gangs[unmet].gpus] = positions[unmet]
                break
            found |= {job: tuple([first + gpu for gpu in gpus]) for job, gpus in placed.items()}
        else:
            met = (order[position] for position in chosen)
            return {job: found[claim.job.job_id] for claim in met for job in claim.job_ids}


def split_by_placement(
    situation: Situation, order: Sequence[Claim]
) -> tuple[Sequence[Claim], dict[int, float]]:
    """Split claims by placement, if jobs run slower on more nodes than they need.

    The first claim asks for as few nodes as possible. A second claim, for more nodes, follows the
    job's last claim that is faster: the job prefers being spread to a still slower GPU type. A
    spread gang moves if that saves more than its restart. Two jobs that share GPUs are never
    spread.

    Returns:
        The claims by descending priority, and by position the worth of those that need as few nodes
        as possible: the GPU-seconds of restarts that making room may cost other gangs. The worth is
        the time that the job saves until its end compared with being spread; infinite if it cannot
        or must not be spread; 0 for two jobs that share GPUs, so that no gang moves for them.
    """
    if not order or not order[0].job.throughput.placement_matters:
        return order, {}
    inventory, restart = situation.inventory, situation.restart_seconds
    faster: dict[int, list[tuple[int, float]]] = {}
    on_few = [Claim(job, job.on_fewest_nodes(there) or there, other) for job, there, other in order]
    for position, (job, few, _) in enumerate(on_few):
        faster.setdefault(job.job_id, []).append((position, job.rate(few)))
    then: dict[int, list[Claim]] = {}
    found: list[Claim] = []
    consolidated: dict[int, float] = {}
    for position, claim in enumerate(on_few):
        job, few, other = claim
        slower = _slower_spread(job, few)
        if slower <= 1.0 and other is None:
            found.append(claim)
        elif other or _never_spread(job, slower):
            consolidated[len(found)] = 0.0 if other else inf
            found.append(claim)
        else:
            worth = job.run_time(few).remaining * (slower - 1.0) * few.gpus
            holds = inventory.allocation(job.gpus) if job.gpus else few
            spread = holds.nodes > few.nodes and holds.same_but_for_nodes(few)
            if spread and worth <= restart * few.gpus:
                found.append(Claim(job, holds))
            else:
                consolidated[len(found)] = worth - spread * restart * few.gpus
                found.append(claim)
                more = _spread(few)
                rate = job.rate(more)
                last = max(n for n, speed in faster[job.job_id] if speed > rate)
                then.setdefault(max(last, position), []).append(Claim(job, more))
        found += then.pop(position, ())
    return found, consolidated


def _spread(few: Allocation) -> Allocation:
    return replace(few, nodes=few.nodes + 1)


def _slower_spread(job: ActiveJob, few: Allocation) -> float:
    """Return the factor on a job's run time when spread over more nodes.

    Infinite if it cannot run there; 1 if each of its GPUs already has its own node.
    """
    if few.nodes >= few.gpus:
        return 1.0
    more, throughput, spec, size = _spread(few), job.throughput, job.spec, job.belief.batch_size
    if not (runs_on(throughput, spec, more) and throughput.can_run(spec, size, more)):
        return inf
    return job.rate(few) / job.rate(more)


def must_consolidate(job: ActiveJob, few: Allocation) -> bool:
    """Return whether a gang's declaration or its rates forbid more nodes than `few` has."""
    return _never_spread(job, _slower_spread(job, few))


def _never_spread(job: ActiveJob, slower: float) -> bool:
    return job.spec.consolidate or slower == inf


def _spread_over(pool: Pool, gpus: Sequence[int]) -> bool:
    """Return whether GPUs of a pool span more nodes than they need."""
    return len({pool.node(gpu) for gpu in gpus}) > pool.fewest_nodes(len(gpus))


def _held(inventory: Inventory, order: Sequence[Claim]) -> list[dict[int, tuple[int, ...]]]:
    """Return the GPUs that each job holds, by pool and numbered within it."""
    held: list[dict[int, tuple[int, ...]]] = [{} for _ in inventory.pools]
    seen: set[int] = set()
    for claim in order:
        for job in (claim.job, claim.other):
            if job and job.gpus and job.job_id not in seen:
                seen.add(job.job_id)
                number = inventory.pool(job.gpus[0])
                first = inventory.first_gpus[number]
                held[number][job.job_id] = tuple([gpu - first for gpu in job.gpus])
    return held


def _passed_with(
    first: int,
    order: Sequence[Claim],
    consolidated: Mapping[int, float],
    held: Collection[int],
) -> Iterator[int]:
    """Yield a claim without room in a pool, and the later claims that cannot have room either.

    Those ask for at least as many GPUs of the type, may cost others no more restarts, and belong
    to jobs that hold no GPUs in the pool.
    """
    yield first
    there = order[first].allocation
    for position, worth in consolidated.items():
        if position > first and worth <= consolidated[first]:
            later = order[position]
            if (
                later.allocation.gpu_type == there.gpu_type
                and later.allocation.gpus >= there.gpus
                and not any(job_id in held for job_id in later.job_ids)
            ):
                yield position


def _laid_out(
    pool: Pool,
    gangs: Sequence[GangRequest],
    held: dict[int, tuple[int, ...]],
    kept: Collection[int],
    worth: Sequence[float],
    restart_seconds: float,
) -> dict[int, tuple[int, ...]]:
    """Assign GPUs of a pool to gangs; leave gangs out if no layout has room for one of them.

    Args:
        pool: The pool.
        gangs: Gangs by descending priority; the pool has enough GPUs for them.
        held: GPUs held in the pool, by job; updated for jobs that have to move.
        kept: GPUs that may not be allocated.
        worth: Cost of restarts that each gang may cause, in GPU-seconds.
        restart_seconds: Cost of a move per GPU of the moved job.
    """
    while True:
        placed = place(pool, gangs, held, kept)
        if len(placed) == len(gangs):
            return placed
        first = next(n for n, gang in enumerate(gangs) if gang.job_id not in placed)
        layout = make_room(pool, gangs, first, placed, kept)
        if not layout:
            return placed
        taken = set(chain.from_iterable(layout.values()))
        there = {job for job, gpus in held.items() if not taken.isdisjoint(gpus)}
        if worth[first] < inf:
            moved = {
                job
                for job, gpus in held.items()
                if layout.get(job, gpus) != gpus or (job in there and job not in layout)
            }
            cost = sum(restart_seconds * gang.gpus for gang in gangs if gang.job_id in moved)
            if cost > worth[first]:
                return placed
        for job_id in there:
            del held[job_id]
        held |= layout


def find_fitting(
    inventory: Inventory,
    order: Sequence[Claim],
    skipped_from: Mapping[tuple[int, int], int] = MappingProxyType({}),
    consolidated: Collection[int] = (),
    passed: Collection[tuple[int, int]] = (),
) -> dict[int, int]:
    """Choose claims by number of GPUs, at most one per job.

    Args:
        inventory: The nodes in service.
        order: Claims by descending priority.
        skipped_from: By pool and gang size, the first position at which consolidated jobs are
            skipped: a gang of that size found no room, so later ones find none either.
        consolidated: Positions of claims that must be on as few nodes as they ask for
            (`split_by_placement`), so not in a pool whose nodes are too small.
        passed: Pool and position of claims for which no layout of the pool has room at their
            worth; they try the next pool of their type.

    Returns:
        The number of the pool by position of the claim, in order.
    """
    free, left = list(inventory.free), inventory.gpus
    chosen: dict[int, int] = {}
    met: set[int] = set()
    for position, claim in enumerate(order):
        if not left:
            break
        if claim.job.job_id in met or (claim.other and claim.other.job_id in met):
            continue
        job, allocation, _ = claim
        gpus = allocation.gpus
        for number in _pools_for(inventory, job, allocation):
            pool = inventory.pools[number]
            too_small = pool.fewest_nodes(gpus) > allocation.nodes
            if (number, position) in passed or (position in consolidated and too_small):
                continue
            if gpus <= free[number] and not (
                job.spec.consolidate and position >= skipped_from.get((number, gpus), len(order))
            ):
                chosen[position] = number
                met.update(claim.job_ids)
                free[number] -= gpus
                left -= gpus
                break
    return chosen


def _pools_for(inventory: Inventory, job: ActiveJob, allocation: Allocation) -> Sequence[int]:
    """Return the pools of an allocation's type, starting with the pool in which the job runs."""
    numbers = inventory.pools_of.get(allocation.gpu_type, ())
    if len(numbers) < 2 or not job.gpus:
        return numbers
    there = inventory.pool(job.gpus[0])
    return sorted(numbers, key=lambda number: number != there)
