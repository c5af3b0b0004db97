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
        _pair(unbound, _healthy_left(level, free, bad), _bad_left(level, free, bad), found)
    for cell in cells:
        _within(cell, found)
    return found


def _healthy_left(level: int, free: FreeCells, bad: Sequence[Physical]) -> int:
    """Count the wholly healthy cells of a level inside free cells."""
    gpus = sum(cell.gpus for cells in free.lists[level:] for cell in cells)
    levels = free.lists[level:]
    if not any(levels):
        return 0
    size = next(cells[0] for cells in levels if cells).pool.levels[level].gpus
    return gpus // size - len(_bad_left(level, free, bad))


def _bad_left(level: int, free: FreeCells, bad: Sequence[Physical]) -> list[Physical]:
    """Return the free cells of a level with a bad node, the least bad first."""
    found: dict[Physical, None] = {}
    for node in bad:
        of_level = [node.above(level)] if level >= node.level else node.of_level(level)
        found |= dict.fromkeys(cell for cell in of_level if free.holds(cell))
    return sorted(found, key=lambda cell: cell.bad)


def _within(cell: Promised, found: set[Promised]) -> None:
    """Add the lost parts of a bound cell above the level of nodes to `found`."""
    if cell.bound is None or cell.level <= cell.pool.level(NODE):
        return
    unbound = [part for part in cell.children if part.bound is None]
    rest = [part for part in cell.bound.children if part.promise is None]
    healthy = sum(not part.bad for part in rest)
    _pair(unbound, healthy, sorted(filter(_is_bad, rest), key=lambda part: part.bad), found)
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
            _pair(
                cell.children,
                sum(not part.bad for part in physical.children),
                sorted(filter(_is_bad, physical.children), key=lambda part: part.bad),
                found,
            )


def _is_bad(cell: Physical) -> bool:
    return cell.bad > 0
