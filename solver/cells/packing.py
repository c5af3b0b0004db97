"""Place a gang on few nodes, with few preemptions and with GPUs near each other."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from solver.cells.gangs import OPPORTUNISTIC
from solver.cells.tree import FREE, Cell

CellT = TypeVar("CellT", bound=Cell)


def pack(
    nodes: Iterable[CellT], usable: Callable[[CellT], bool], members: Sequence[int], priority: int
) -> list[list[CellT]] | None:
    """Find GPUs for a gang, by HiveD's topology-aware packing.

    Guaranteed gangs prefer nodes with more GPUs in use. Opportunistic gangs prefer nodes with more
    GPUs in opportunistic use, then with fewer in guaranteed use. Nothing is preempted if the gang
    fits without. Within a node, the GPUs with the lowest common cell are taken. Each member goes to
    the first node that it fits on, smallest members first; if that fails, largest first.

    Args:
        nodes: Nodes, or cells that are parts of one, in order of preference among equals.
        usable: Whether a node may be used at all.
        members: GPUs of each member.
        priority: The gang's priority; gangs of lower priority can be preempted.

    Returns:
        GPUs of each member; None if it does not fit.
    """
    line = sorted(filter(usable, nodes), key=_by_use if priority > OPPORTUNISTIC else _apart)
    for floor in dict.fromkeys((OPPORTUNISTIC, priority)):
        for largest_first in (False, True):
            order = sorted(range(len(members)), key=members.__getitem__, reverse=largest_first)
            chosen = _first_fit(line, members, order, floor)
            if chosen is not None:
                return _on_nodes(chosen, members, order, floor)
    return None


def _by_use(node: Cell) -> int:
    return -sum(node.held.values())


def _apart(node: Cell) -> tuple[int, int]:
    opportunistic = node.held.get(OPPORTUNISTIC, 0)
    return -opportunistic, sum(node.held.values()) - opportunistic


def _first_fit(
    line: Sequence[CellT], members: Sequence[int], order: Sequence[int], floor: int
) -> dict[int, CellT] | None:
    """Choose the node of each member; GPUs held below the priority `floor` count as free."""
    room = [
        node.gpus - sum(gpus for held, gpus in node.held.items() if held >= floor) for node in line
    ]
    chosen: dict[int, CellT] = {}
    first = 0
    for member in order:
        while first < len(line) and not room[first]:
            first += 1
        for place in range(first, len(line)):
            if room[place] >= members[member]:
                room[place] -= members[member]
                chosen[member] = line[place]
                break
        else:
            return None
    return chosen


def _on_nodes(
    chosen: dict[int, CellT], members: Sequence[int], order: Sequence[int], floor: int
) -> list[list[CellT]]:
    rest: dict[CellT, list[CellT]] = {}
    found: list[list[CellT]] = [[] for _ in members]
    for member in order:
        node = chosen[member]
        if node not in rest:
            gpus = list(node.of_level(0))
            rest[node] = [gpu for gpu in gpus if gpu.priority == FREE]
            rest[node] += [gpu for gpu in gpus if FREE < gpu.priority < floor]
        found[member] = _nearest(rest[node], members[member])
        taken = {*found[member]}
        rest[node] = [gpu for gpu in rest[node] if gpu not in taken]
    return found


def _nearest(gpus: Sequence[CellT], number: int) -> list[CellT]:
    """Return the first GPUs of a list among those with the lowest common cell."""
    groups: dict[CellT, list[int]] = {gpu: [place] for place, gpu in enumerate(gpus)}
    while True:
        enough = [places[:number] for places in groups.values() if len(places) >= number]
        if enough:
            return [gpus[place] for place in min(enough)]
        above: dict[CellT, list[int]] = {}
        for cell, places in groups.items():
            above.setdefault(cell.parent or cell, []).extend(places)
        groups = {cell: sorted(places) for cell, places in above.items()}
