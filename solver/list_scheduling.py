"""Who gets room in the coming round, and where: list scheduling with backfilling."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from predictor.allocation import Allocation
from solver.inventory import Inventory, Pool
from solver.placement import Gang, going_on, make_room, overlap, place
from solver.plan import ActiveJob, Situation


class Claim(NamedTuple):
    """A job and an allocation that it is to get, if there is room.

    Attributes:
        job: The job.
        allocation: The allocation.
        other: A job that is to share it; None for exclusive use.
    """

    job: ActiveJob
    allocation: Allocation
    other: ActiveJob | None = None

    @property
    def job_ids(self) -> tuple[int, ...]:
        """The jobs that are to get it."""
        return (self.job.job_id,) if self.other is None else (self.job.job_id, self.other.job_id)


def claims(jobs: Iterable[ActiveJob]) -> list[Claim]:
    """Claims of jobs in their order: each on one type of its menu after the other."""
    return [Claim(job, allocation) for job in jobs for allocation in job.choices]


def next_round(situation: Situation, order: Sequence[Claim]) -> dict[int, tuple[int, ...]]:
    """Place the jobs of the coming round by list scheduling: in order, with backfilling.

    A job may have several claims, of which the first with room is met. Running jobs keep their
    GPUs where they stay in their pool, unless a consolidated job of higher priority needs some
    of them to move (`solver.placement.make_room`). Only if no lay-out of a pool has room for a
    claim is it skipped, so neither lower priorities nor fragmentation keep a job waiting.

    Args:
        situation: Policy input.
        order: Claims by descending priority.

    Returns:
        GPU indices by job, each job's of one pool.
    """
    inventory = situation.inventory
    held = _held(inventory, order)
    sharing = any(claim.other for claim in order) or overlap(held)
    skipped_from: dict[tuple[int, int], int] = {}
    while True:
        chosen = fitting(inventory, order, skipped_from)
        found: dict[int, tuple[int, ...]] = {}
        for number, first in enumerate(inventory.first_gpus):
            positions = [position for position, there in chosen.items() if there == number]
            gangs = [
                Gang(job.job_id, allocation.gpus, job.spec.consolidate)
                for job, allocation, _ in (order[position] for position in positions)
            ]
            kept = [gpu - first for gpu in inventory.kept_in(number)]
            before = held[number]
            if sharing:
                before = going_on(before, (order[position].job_ids for position in positions))
            placed = _laid_out(inventory.pools[number], gangs, before, kept)
            if len(placed) < len(gangs):
                unmet = next(n for n, gang in enumerate(gangs) if gang.job_id not in placed)
                skipped_from[number, gangs[unmet].gpus] = positions[unmet]
                break
            found |= {job: tuple([first + gpu for gpu in gpus]) for job, gpus in placed.items()}
        else:
            met = (order[position] for position in chosen)
            return {job: found[claim.job.job_id] for claim in met for job in claim.job_ids}


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


def _laid_out(
    pool: Pool,
    gangs: Sequence[Gang],
    held: dict[int, tuple[int, ...]],
    kept: Collection[int],
) -> dict[int, tuple[int, ...]]:
    """GPUs of gangs in a pool; leaves gangs out where no lay-out has room for one of them.

    Args:
        pool: The pool.
        gangs: Gangs that fit it by number, by descending priority.
        held: GPUs held in the pool, by job; updated with those who have to move.
        kept: GPUs that are not to be given out.
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
        for job_id in [job for job, gpus in held.items() if not taken.isdisjoint(gpus)]:
            del held[job_id]
        held |= layout


def fitting(
    inventory: Inventory,
    order: Sequence[Claim],
    skipped_from: Mapping[tuple[int, int], int] = MappingProxyType({}),
) -> dict[int, int]:
    """The claims that are met by number of GPUs, at most one of each job.

    Args:
        inventory: The nodes in service.
        order: Claims by descending priority.
        skipped_from: By pool and gang size, the position from which on consolidated jobs are
            skipped: a gang of that size found no room there, so later ones do not either.

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
