"""List scheduling of the coming round, with backfilling and placement."""

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
    """A job and an allocation that it gets if there is room.

    Attributes:
        job: The job.
        allocation: The allocation.
        other: A job that shares it; None for exclusive use.
    """

    job: ActiveJob
    allocation: Allocation
    other: ActiveJob | None = None

    @property
    def job_ids(self) -> tuple[int, ...]:
        """The jobs of the claim."""
        return (self.job.job_id,) if self.other is None else (self.job.job_id, self.other.job_id)


def make_claims(jobs: Iterable[ActiveJob]) -> list[Claim]:
    """Claims of jobs in their order: for each job, on the types of its menu in turn."""
    return [Claim(job, allocation) for job in jobs for allocation in job.choices]


def next_round(situation: Situation, order: Sequence[Claim]) -> dict[int, tuple[int, ...]]:
    """Place the jobs of the coming round by list scheduling: in order, with backfilling.

    A job may have several claims, of which the first with room is met. Running jobs keep their
    GPUs where they stay in their pool, unless a consolidated job of higher priority needs some
    of them to move (`solver.placement.make_room`). Only if no lay-out of a pool has room for a
    claim is it skipped, so neither lower priorities nor fragmentation keep a job waiting. Where
    the profile has rates by nodes, a gang is consolidated as far as that is worth the restarts
    (`split_by_placement`).

    Args:
        situation: Policy input.
        order: Claims by descending priority.

    Returns:
        GPU indices by job, each job's of one pool.
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
    """Claims by placement, where jobs are slower on more nodes than they need.

    Such a claim asks for as few nodes as possible. A second one, for more, follows the last of the
    job's claims on which it is faster than that: it would rather be spread than be on a type that
    is slower still. A gang that is spread moves where that saves it more than its restart; two
    that share their GPUs are never spread.

    Args:
        situation: Policy input.
        order: Claims by descending priority.

    Returns:
        The claims, and by position the worth of those that are met on as few nodes as possible or
        not at all: GPU-seconds that other gangs may lose by restarts to make room. It is the time
        that the job saves over being spread, until its end; unbounded where it cannot or must not
        be spread. No gang moves for two jobs that share their GPUs.
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
    """An allocation on more nodes."""
    return replace(few, nodes=few.nodes + 1)


def _slower_spread(job: ActiveJob, few: Allocation) -> float:
    """The factor on the job's run time on more nodes.

    Infinite if it cannot run there, 1 if each of its GPUs has a node of its own.
    """
    if few.nodes >= few.gpus:
        return 1.0
    more, throughput, spec, size = _spread(few), job.throughput, job.spec, job.belief.batch_size
    if not (runs_on(throughput, spec, more) and throughput.can_run(spec, size, more)):
        return inf
    return job.rate(few) / job.rate(more)


def must_consolidate(job: ActiveJob, few: Allocation) -> bool:
    """Whether a gang must be on as few nodes as an allocation: by its declaration or its rates.

    Args:
        job: The job.
        few: Its GPUs, on as few nodes as hold them.
    """
    return _never_spread(job, _slower_spread(job, few))


def _never_spread(job: ActiveJob, slower: float) -> bool:
    """Whether a gang may not be on more nodes, by the factor on its run time there."""
    return job.spec.consolidate or slower == inf


def _spread_over(pool: Pool, gpus: Sequence[int]) -> bool:
    """Whether GPUs of a pool span more nodes than they need."""
    return len({pool.node(gpu) for gpu in gpus}) > pool.fewest_nodes(len(gpus))


def _held(inventory: Inventory, order: Sequence[Claim]) -> list[dict[int, tuple[int, ...]]]:
    """By pool, the GPUs in it that each job holds, numbered within the pool."""
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
    """A claim without room in a pool, and the later claims that then have none there either.

    These are for as many or more GPUs of the type, are worth no more restarts of others, and their
    jobs hold no GPUs there that they could keep.
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
    """GPUs of gangs in a pool; leaves gangs out where no lay-out has room for one of them.

    Args:
        pool: The pool.
        gangs: Gangs that fit it by number, by descending priority.
        held: GPUs held in the pool, by job; updated with the jobs that have to move.
        kept: GPUs that may not be allocated.
        worth: Restarts that room for each gang may cost, in GPU-seconds.
        restart_seconds: Cost of a move for each of a job's GPUs.
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
    """The claims that are met by number of GPUs, at most one of each job.

    Args:
        inventory: The nodes in service.
        order: Claims by descending priority.
        skipped_from: By pool and gang size, the position from which on consolidated jobs are
            skipped: a gang of that size found no room there, so later ones do not either.
        consolidated: Positions of claims that are met on as few nodes as they ask for, or not at
            all (`split_by_placement`), so not in a pool whose nodes are too small.
        passed: Pool and position of those for which no lay-out of that pool has room at their
            worth. They try the next pool of their type.

    Returns:
        The number of the pool, by position of the claim, in order.
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
    """Numbers of the pools of an allocation's type, first the one in which the job runs."""
    numbers = inventory.pools_of.get(allocation.gpu_type, ())
    if len(numbers) < 2 or not job.gpus:
        return numbers
    there = inventory.pool(job.gpus[0])
    return sorted(numbers, key=lambda number: number != there)
