"""Placement on the nodes with the most free GPUs, as Pollux's simulator places other policies."""

from collections.abc import Iterable, Mapping

from solver.inventory import Inventory


def place_on_freest(
    inventory: Inventory,
    held: Mapping[int, tuple[int, ...]],
    wanted: Iterable[tuple[int, int]],
) -> dict[int, tuple[int, ...]]:
    """Place jobs beside those that keep their GPUs.

    A job gets GPUs on the node with the most free ones, then on the next, the first of equals. All
    must fit.

    Args:
        inventory: The nodes in service.
        held: GPUs of jobs that keep them, by job id.
        wanted: Further jobs in order, with their numbers of GPUs.
    """
    taken = {*inventory.kept}.union(*held.values())
    free = {
        node: [gpu for gpu in inventory.gpus_of(node) if gpu not in taken]
        for node in range(inventory.nodes)
    }
    placed = dict(held)
    for job_id, gpus in wanted:
        found: list[int] = []
        while len(found) < gpus:
            there = max(free.values(), key=len)
            took = min(gpus - len(found), len(there))
            found += there[:took]
            del there[:took]
        placed[job_id] = tuple(sorted(found))
    return placed
