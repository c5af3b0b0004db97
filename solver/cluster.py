"""The cluster, and which GPUs each job gets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from predictor.errors import InputError


@dataclass(frozen=True, slots=True)
class Cluster:
    """GPUs on nodes of one size; GPU i is on node i // gpus_per_node.

    Attributes:
        gpus: How many in all.
        gpus_per_node: How many share a node. With one, placement changes nothing.

    Raises:
        InputError: There are none, or they do not fill whole nodes.
    """

    gpus: int
    gpus_per_node: int = 1

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InputError("--gpus", f"{self.gpus} is not positive", "give at least one GPU")
        if self.gpus_per_node < 1 or self.gpus % self.gpus_per_node:
            raise InputError(
                "--gpus-per-node",
                f"{self.gpus} GPUs are not whole nodes of {self.gpus_per_node}",
                "give a divisor of --gpus",
            )

    def node(self, gpu: int) -> int:
        """The node of a GPU."""
        return gpu // self.gpus_per_node

    def fewest_nodes(self, gpus: int) -> int:
        """Nodes that a gang spans at least."""
        return -(-gpus // self.gpus_per_node)


@dataclass(frozen=True, slots=True)
class Gang:
    """A job that wants GPUs in the coming round.

    Attributes:
        job_id: The job.
        gpus: How many it needs, all or none.
        consolidate: Whether they must be on as few nodes as they fit.
    """

    job_id: int
    gpus: int
    consolidate: bool = False


def place(
    cluster: Cluster, gangs: Sequence[Gang], held: Mapping[int, Sequence[int]]
) -> dict[int, tuple[int, ...]]:
    """Assign GPUs to gangs in order; one that holds GPUs stays where it is.

    A gang that fits a node goes to the one with the least room that suffices; a larger
    one takes whole idle nodes and one more for the rest (Tiresias, NSDI '19, section
    4.3). Where there is no such room, a gang that need not be consolidated is spread
    over the nodes with the most room.

    Args:
        cluster: The GPUs.
        gangs: Who wants GPUs, the first to be served first.
        held: GPUs that jobs hold now; those of jobs that are no gang here are free.

    Returns:
        GPU indices by job, ascending, disjoint, in the order of `gangs`. Gangs that do
        not fit are left out.
    """
    size = cluster.gpus_per_node
    staying = {gang.job_id: tuple(held[gang.job_id]) for gang in gangs if held.get(gang.job_id)}
    taken = {gpu for gpus in staying.values() for gpu in gpus}
    room: list[list[int]] = [
        [gpu for gpu in range(first, first + size) if gpu not in taken]
        for first in range(0, cluster.gpus, size)
    ]
    free = cluster.gpus - len(taken)
    placed: dict[int, tuple[int, ...]] = {}
    for gang in gangs:
        if gang.job_id in staying:
            placed[gang.job_id] = staying[gang.job_id]
        elif gang.gpus <= free:
            shares = _consolidated(room, size, gang.gpus)
            if not shares and not gang.consolidate:
                shares = _spread(room, gang.gpus)
            if shares:
                placed[gang.job_id] = tuple(sorted(g for n, k in shares for g in room[n][:k]))
                free -= gang.gpus
                for node, count in shares:
                    del room[node][:count]
    return placed


def _consolidated(room: list[list[int]], size: int, gpus: int) -> list[tuple[int, int]]:
    """Nodes and how many GPUs of each, on as few nodes as can be; empty if there is no room."""
    whole, rest = divmod(gpus, size)
    idle = [node for node, free in enumerate(room) if len(free) == size][:whole] if whole else []
    if len(idle) < whole:
        return []
    shares = [(node, size) for node in idle]
    if rest:
        fitting = [node for node, free in enumerate(room) if len(free) >= rest and node not in idle]
        if not fitting:
            return []
        shares.append((min(fitting, key=lambda node: (len(room[node]), node)), rest))
    return shares


def _spread(room: list[list[int]], gpus: int) -> list[tuple[int, int]]:
    """Nodes and how many GPUs of each, from those with the most room."""
    shares = []
    for node in sorted(range(len(room)), key=lambda node: (-len(room[node]), node)):
        count = min(len(room[node]), gpus)
        if count:
            shares.append((node, count))
            gpus -= count
    return shares
