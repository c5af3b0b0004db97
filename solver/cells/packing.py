"""Place a gang on few promised nodes and on GPUs near each other."""

from collections.abc import Iterable, Sequence

from solver.cells.tree import Promised


def pack(nodes: Iterable[Promised], members: Sequence[int]) -> list[list[Promised]] | None:
    """Find promised GPUs for a gang, by HiveD's topology-aware packing.

    Nodes with more GPUs in use are preferred, and within a node the GPUs with the lowest common
    cell. Each member goes to the first node that it fits on, smallest members first; if that
    fails, largest first.

    Args:
        nodes: Nodes, or cells that are parts of one, in order of preference among equals.
        members: GPUs of each member.

    Returns:
        GPUs of each member; None if it does not fit.
    """
    line = sorted(nodes, key=lambda node: -node.used)
    for largest_first in (False, True):
        order = sorted(range(len(members)), key=members.__getitem__, reverse=largest_first)
        chosen = _first_fit(line, members, order)
        if chosen is not None:
            return _on_nodes(chosen, members, order)
    return None


def _first_fit(
    line: Sequence[Promised], members: Sequence[int], order: Sequence[int]
) -> dict[int, Promised] | None:
    """Choose the node of each member."""
    room = [node.gpus - node.used for node in line]
    chosen: dict[int, Promised] = {}
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
    chosen: dict[int, Promised], members: Sequence[int], order: Sequence[int]
) -> list[list[Promised]]:
    """Choose the GPUs of each member on its node."""
    rest = {node: [gpu for gpu in node.of_level(0) if not gpu.used] for node in chosen.values()}
    found: list[list[Promised]] = [[] for _ in members]
    for member in order:
        node = chosen[member]
        found[member] = _nearest(rest[node], members[member])
        taken = {*found[member]}
        rest[node] = [gpu for gpu in rest[node] if gpu not in taken]
    return found


def _nearest(gpus: Sequence[Promised], number: int) -> list[Promised]:
    """Return the first GPUs of a list among those with the lowest common cell."""
    groups: dict[Promised, list[int]] = {gpu: [place] for place, gpu in enumerate(gpus)}
    while True:
        enough = [places[:number] for places in groups.values() if len(places) >= number]
        if enough:
            return [gpus[place] for place in min(enough)]
        above: dict[Promised, list[int]] = {}
        for cell, places in groups.items():
            above.setdefault(cell.parent or cell, []).extend(places)
        groups = {cell: sorted(places) for cell, places in above.items()}
