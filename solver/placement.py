"""Place gangs within a pool: choose the GPUs of each gang.

GPUs are numbered from 0 within the pool. `solver.list_scheduling.next_round` chooses the pools.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from predictor.arrays import Bools, Ints
from solver.inventory import Pool


@dataclass(frozen=True, slots=True)
class GangRequest:
    """A gang to place in the coming round; `consolidate` requires as few nodes as possible."""

    job_id: int
    gpus: int
    consolidate: bool = False


def place(
    pool: Pool,
    gangs: Sequence[GangRequest],
    held: Mapping[int, Sequence[int]],
    kept: Collection[int] = (),
) -> dict[int, tuple[int, ...]]:
    """Assign GPUs to gangs in order; gangs that hold GPUs keep them.

    Best fit: a gang that fits a node goes to the node with the least sufficient room; a larger gang
    takes whole idle nodes and a best-fit node for the rest (Tiresias, NSDI '19, section 3.3.2). If
    there is no such room, a gang that may be spread takes GPUs from the nodes with the most room.

    Args:
        pool: The GPUs.
        gangs: Gangs by descending priority.
        held: Current leases by job. Leases of jobs that are not in `gangs` count as free.
        kept: GPUs that may not be allocated.

    Returns:
        Disjoint, ascending GPU indices by job, in the order of `gangs`, without gangs that do
        not fit.
    """
    size = pool.gpus_per_node
    staying = {
        gang.job_id: tuple(held[gang.job_id])
        for gang in gangs
        if len(held.get(gang.job_id, ())) == gang.gpus
    }
    idle = np.ones((pool.nodes, size), bool)
    idle.reshape(-1)[[*kept, *chain.from_iterable(staying.values())]] = False
    room: Ints = idle.sum(axis=1)
    free = int(room.sum())
    placed: dict[int, tuple[int, ...]] = {}
    for gang in gangs:
        if gang.job_id in staying:
            placed[gang.job_id] = staying[gang.job_id]
        elif gang.gpus <= free:
            shares = _consolidated(room, size, gang.gpus)
            if not shares and not gang.consolidate:
                shares = _spread(room, gang.gpus)
            if shares:
                placed[gang.job_id] = _take(idle, room, shares)
                free -= gang.gpus
    return placed


def has_shared_gpus(held: Iterable[Mapping[int, tuple[int, ...]]]) -> bool:
    """Return whether two jobs hold the same GPUs."""
    return any(len({gpus[0] for gpus in there.values()}) < len(there) for there in held)


def find_staying(
    held: Mapping[int, tuple[int, ...]], chosen: Iterable[Sequence[int]]
) -> dict[int, tuple[int, ...]]:
    """Return the GPUs that gangs keep when jobs share GPUs, by the first job of each gang.

    A gang keeps GPUs that one of its jobs holds. `chosen` lists the jobs of each gang by descending
    priority; if two gangs could keep the same GPUs, the first does.
    """
    kept: dict[int, tuple[int, ...]] = {}
    taken: set[int] = set()
    for job_ids in chosen:
        for job_id in job_ids:
            gpus = held.get(job_id, ())
            if gpus and taken.isdisjoint(gpus):
                kept[job_ids[0]] = gpus
                taken.update(gpus)
                break
    return kept


def make_room(
    pool: Pool,
    gangs: Sequence[GangRequest],
    first: int,
    placed: Mapping[int, Sequence[int]],
    kept: Collection[int] = (),
) -> dict[int, tuple[int, ...]]:
    """Move gangs to make room for a consolidated gang.

    Tiresias places a job anew whenever it resumes (NSDI '19, section 3.3.2) and moves no
    running job, so fragmentation can delay a consolidated job indefinitely. This function
    moves as few gangs as possible: first gangs of lower priority, from the last; then gangs of
    higher priority off the emptiest nodes; then all gangs, the largest first. The last resort
    is exact if gang and node sizes are powers of two, else a heuristic.

    Args:
        pool: The GPUs.
        gangs: Gangs by descending priority.
        first: Position of the first gang without room.
        placed: Placement of the gangs before it, and of later gangs that found room.
        kept: GPUs that may not be allocated.

    Returns:
        GPU indices by job for all gangs up to and including `first`; empty if it cannot be placed.
    """
    wanted, gang = gangs[: first + 1], gangs[first]
    after = [other for other in gangs[first + 1 :] if other.job_id in placed]

    def beside(others: int) -> dict[int, tuple[int, ...]]:
        return place(pool, [*gangs[:first], *after[:others], gang], placed, kept)

    too_many = bisect_left(
        range(len(after) + 1), True, key=lambda others: gang.job_id not in beside(others)
    )
    if too_many:
        layout = beside(too_many - 1)
        return {other.job_id: layout[other.job_id] for other in wanted}
    by_size = sorted(wanted, key=lambda other: (not other.consolidate, -other.gpus))
    gang_first = [gang, *(other for other in by_size if other is not gang)]
    layout = place(pool, gang_first, _off_the_emptiest_nodes(pool, wanted, placed, kept), kept)
    if len(layout) < len(wanted):
        layout = place(pool, by_size, {}, kept)
    return layout if len(layout) == len(wanted) else {}


def _off_the_emptiest_nodes(
    pool: Pool,
    gangs: Sequence[GangRequest],
    placed: Mapping[int, Sequence[int]],
    kept: Collection[int],
) -> dict[int, Sequence[int]]:
    """Return the placement of gangs outside the nodes to be cleared for the last gang."""
    *others, last = gangs
    size = pool.gpus_per_node
    busy = Counter(gpu // size for gang in others for gpu in placed[gang.job_id])
    never = {gpu // size for gpu in kept}  # none of them can be cleared
    nodes = sorted(range(pool.nodes), key=lambda node: (node in never, busy[node]))
    cleared = set(nodes[: pool.fewest_nodes(last.gpus)])
    return {
        gang.job_id: placed[gang.job_id]
        for gang in others
        if cleared.isdisjoint(gpu // size for gpu in placed[gang.job_id])
    }


def _take(idle: Bools, room: Ints, shares: list[tuple[int, int]]) -> tuple[int, ...]:
    """Allocate the first idle GPUs of nodes; returns their indices, ascending."""
    taken: list[int] = []
    for node, count in sorted(shares):
        gpus = np.flatnonzero(idle[node])[:count]
        idle[node, gpus] = False
        room[node] -= count
        taken += (node * idle.shape[1] + gpus).tolist()
    return tuple(taken)


def _consolidated(room: Ints, size: int, gpus: int) -> list[tuple[int, int]]:
    """Return (node, number of GPUs) on as few nodes as possible; empty if there is no room."""
    whole, rest = divmod(gpus, size)
    nodes = np.flatnonzero(room == size)[:whole]
    if len(nodes) < whole:
        return []
    shares = [(node, size) for node in nodes.tolist()]
    if rest:
        fitting = np.where(room >= rest, room, size + 1)
        fitting[nodes] = size + 1
        tightest = int(fitting.argmin())
        if fitting[tightest] > size:
            return []
        shares.append((tightest, rest))
    return shares


def _spread(room: Ints, gpus: int) -> list[tuple[int, int]]:
    """Return (node, number of GPUs), taken from the nodes with the most room."""
    shares = []
    for node in np.argsort(-room, kind="stable").tolist():
        count = min(int(room[node]), gpus)
        if not count:
            break
        shares.append((node, count))
        gpus -= count
    return shares
