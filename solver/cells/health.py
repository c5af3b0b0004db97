"""Find promised cells that only bad nodes can serve at present."""

from collections.abc import Iterable, Sequence

from solver.cells.free import FreeCells
from solver.cells.layout import NODE
from solver.cells.tree import Physical, Promised


def find_hopeless(
    cells: Sequence[Promised], free: FreeCells, bad_nodes: Iterable[Physical]
) -> set[Promised]:
    """Return unbound promised nodes, and parts of nodes, for which no healthy node is left.

    A bad node counts against a tenant only if the tenant's promised cells of a level outnumber the
    healthy free ones (HiveD's doomed cells). The same holds for the parts of a bound cell. The
    tenant's last cells are the ones that count as bad.

    `cells` are the whole promised cells of one tenant and pool.
    """
    bad = list(bad_nodes)
    found: set[Promised] = set()
    if not bad:
        return found
    for level in {cell.level for cell in cells}:
        unbound = [cell for cell in cells if cell.level == level and cell.bound is None]
        part_bad = _bad_left(level, free, bad)
        _pair(unbound, free.count(level) - len(part_bad), part_bad, found)
    for cell in cells:
        _within(cell, found)
    return found


def _bad_left(level: int, free: FreeCells, bad: Sequence[Physical]) -> list[Physical]:
    """Return the free cells of a level with a bad node, the least bad first."""
    found: dict[Physical, None] = {}
    for node in bad:
        of_level = [node.above(level)] if level >= node.level else node.of_level(level)
        found |= dict.fromkeys(cell for cell in of_level if free.whole(cell))
    return sorted(found, key=lambda cell: cell.bad)


def _within(cell: Promised, found: set[Promised]) -> None:
    """Add the lost parts of a bound cell above the level of nodes to `found`."""
    if cell.bound is None or cell.level <= cell.pool.level(NODE):
        return
    unbound = [part for part in cell.children if part.bound is None]
    _pair_parts(unbound, [part for part in cell.bound.children if part.promise is None], found)
    for part in cell.children:
        _within(part, found)


def _pair(
    promised: Sequence[Promised], healthy: int, bad: Sequence[Physical], found: set[Promised]
) -> None:
    """Assign the least bad cells to promised cells for which healthy cells do not suffice."""
    for cell, physical in zip(promised[max(0, healthy) :], bad, strict=False):
        if cell.level <= cell.pool.level(NODE):
            found.add(cell)
        else:
            _pair_parts(cell.children, physical.children, found)


def _pair_parts(
    promised: Sequence[Promised], parts: Sequence[Physical], found: set[Promised]
) -> None:
    bad = sorted((part for part in parts if part.bad), key=lambda part: part.bad)
    _pair(promised, len(parts) - len(bad), bad, found)
