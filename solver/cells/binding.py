"""Bind promised cells to physical ones: whole cells by buddies, their parts by their shape."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from solver.cells.free import FreeCells
from solver.cells.tree import Physical, Promised

Usable = Callable[[Physical], bool]


@dataclass(eq=False, slots=True)
class _Wanted:
    """An unbound promised cell and its unbound parts."""

    cell: Promised
    parts: list["_Wanted"] = field(default_factory=list)


def find_gpus(
    gpus: Sequence[Promised], free: FreeCells, usable: Usable
) -> dict[Promised, Physical] | None:
    """Find a physical GPU for each promised one.

    Bound cells stay as they are. A whole promised cell takes a usable cell of its level, split off
    the lowest free cell that has one (buddy allocation). A larger free cell is split if bad or
    excluded nodes make that necessary, and only if all promises can still be kept (HiveD's safe
    relaxed buddies). Among equals, cells with fewer opportunistic GPUs come first.

    Args:
        gpus: Promised GPUs, in the order in which they choose.
        free: The free cells of their pool; unchanged afterwards.
        usable: Whether an unbound physical cell has a GPU that may be used.

    Returns:
        The physical GPU of each promised one; None if some find none.
    """
    found: dict[Promised, Physical] = {}
    roots = _roots(gpus, found)
    taken: list[Physical] = []
    try:
        for wanted in roots:
            if wanted.cell.parent is None:
                whole = _whole(wanted, free, usable)
                if whole is None:
                    return None
                cell, inside = whole
                free.take(cell)
                free.owed[cell.level] -= 1
                taken.append(cell)
                found |= inside
        for siblings in _siblings(roots):
            parent = siblings[0].cell.parent
            assert parent is not None
            assert parent.bound is not None
            inside_parent = _matched(siblings, parent.bound.children, usable)
            if inside_parent is None:
                return None
            found |= inside_parent
    finally:
        for cell in reversed(taken):
            free.owed[cell.level] += 1
            free.give(cell)
    return found


def _roots(gpus: Sequence[Promised], found: dict[Promised, Physical]) -> list[_Wanted]:
    """Return the highest unbound cells above promised GPUs; add bound GPUs to `found`."""
    roots: list[_Wanted] = []
    known: dict[Promised, _Wanted] = {}
    for gpu in gpus:
        if gpu.bound is not None:
            found[gpu] = gpu.bound
            continue
        cell, part = gpu, None
        while True:
            wanted = known.get(cell)
            if wanted is not None:
                if part is not None:
                    wanted.parts.append(part)
                break
            wanted = known[cell] = _Wanted(cell, [] if part is None else [part])
            if cell.parent is None or cell.parent.bound is not None:
                roots.append(wanted)
                break
            cell, part = cell.parent, wanted
    return roots


def _siblings(roots: Sequence[_Wanted]) -> list[list[_Wanted]]:
    by_parent: dict[Promised, list[_Wanted]] = {}
    for wanted in roots:
        if wanted.cell.parent is not None:
            by_parent.setdefault(wanted.cell.parent, []).append(wanted)
    return list(by_parent.values())


def _whole(
    wanted: _Wanted, free: FreeCells, usable: Usable
) -> tuple[Physical, dict[Promised, Physical]] | None:
    """Find a free cell for a whole promised one, with the GPUs inside."""
    level = wanted.cell.level
    for source in range(level, len(free.lists)):
        if free.lists[source] and free.safe(level, source):
            for cell in _split(free.lists[source], level, usable):
                inside = _inside(wanted, cell, usable)
                if inside is not None:
                    return cell, inside
    return None


def _split(cells: Sequence[Physical], level: int, usable: Usable) -> Iterator[Physical]:
    """Yield the usable cells of a level inside free ones."""
    for cell in _preferred(cells, usable):
        if cell.level == level:
            yield cell
        else:
            yield from _split(cell.children, level, usable)


def _preferred(cells: Sequence[Physical], usable: Usable) -> list[Physical]:
    """Return usable cells, those with the fewest opportunistic GPUs first."""
    return sorted(filter(usable, cells), key=lambda cell: cell.used)


def _inside(wanted: _Wanted, cell: Physical, usable: Usable) -> dict[Promised, Physical] | None:
    """Find the GPUs of a promised cell inside a given physical one."""
    if not wanted.parts:
        return {wanted.cell: cell}
    return _matched(wanted.parts, cell.children, usable)


def _matched(
    wanted: Sequence[_Wanted], cells: Sequence[Physical], usable: Usable
) -> dict[Promised, Physical] | None:
    """Find a different cell for each promised one, by augmenting paths."""
    candidates = _preferred(cells, usable)
    if len(candidates) < len(wanted):
        return None
    owner: dict[Physical, int] = {}
    tried: dict[tuple[int, Physical], dict[Promised, Physical] | None] = {}

    def fits(place: int, cell: Physical) -> bool:
        if (place, cell) not in tried:
            tried[place, cell] = _inside(wanted[place], cell, usable)
        return tried[place, cell] is not None

    def seated(place: int, seen: set[Physical]) -> bool:
        for displace in (False, True):
            for cell in candidates:
                if (cell in owner) is displace and cell not in seen and fits(place, cell):
                    seen.add(cell)
                    if not displace or seated(owner[cell], seen):
                        owner[cell] = place
                        return True
        return False

    if not all(seated(place, set()) for place in range(len(wanted))):
        return None
    found: dict[Promised, Physical] = {}
    for cell, place in owner.items():
        found |= tried[place, cell] or {}
    return found
