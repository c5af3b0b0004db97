"""What a cluster has: nodes with GPUs of a type, numbered through."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from predictor.allocation import Allocation, Demand
from predictor.errors import InputError

MOST_GPUS = 1_000_000
"""Larger clusters are mistakes; which GPUs are free is a table over all of them."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one kind.

    Attributes:
        gpu_type: Type of their GPUs, a key of the throughput table; empty for the only
            type of a workload's table.
        gpus: How many GPUs in all.
        gpus_per_node: How many share a node. With one, placement changes nothing.

    Raises:
        InputError: There are none or too many, or they do not fill whole nodes.
    """

    gpu_type: str
    gpus: int
    gpus_per_node: int = 1

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InputError("gpus", f"{self.gpus} is not positive", "give at least one GPU")
        if self.gpus > MOST_GPUS:
            raise InputError("gpus", f"{self.gpus} is out of range", f"give at most {MOST_GPUS}")
        if self.gpus_per_node < 1 or self.gpus % self.gpus_per_node:
            raise InputError(
                "gpus_per_node",
                f"{self.gpus} GPUs are not whole nodes of {self.gpus_per_node}",
                "give a divisor of the number of GPUs",
            )

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return self.gpus // self.gpus_per_node

    def fewest_nodes(self, gpus: int) -> int:
        """Nodes that so many GPUs span at least."""
        return -(-gpus // self.gpus_per_node)


@dataclass(frozen=True)
class Inventory:
    """The nodes of a cluster, pool by pool; GPUs and nodes are numbered through from 0.

    Attributes:
        pools: At least one.
    """

    pools: tuple[Pool, ...]

    @cached_property
    def gpus(self) -> int:
        """GPUs in all."""
        return sum(pool.gpus for pool in self.pools)

    @cached_property
    def nodes(self) -> int:
        """Nodes in all."""
        return sum(pool.nodes for pool in self.pools)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """GPU types, in the order of the pools."""
        return tuple(dict.fromkeys(pool.gpu_type for pool in self.pools))

    @property
    def only(self) -> Pool:
        """The pool of a cluster that has one.

        Raises:
            InputError: It has several.
        """
        if len(self.pools) > 1:
            raise InputError(
                "pools", "the cluster has several", "give one: GPUs of a type, on alike nodes"
            )
        return self.pools[0]

    @cached_property
    def capacities(self) -> dict[str, int]:
        """GPUs of each type, in the order of `types`."""
        return {
            kind: sum(pool.gpus for pool in self.pools if pool.gpu_type == kind)
            for kind in self.types
        }

    def node(self, gpu: int) -> int:
        """The node of a GPU."""
        pool, first_gpu, first_node = self._pool_of(gpu)
        return first_node + (gpu - first_gpu) // pool.gpus_per_node

    def gpus_of(self, node: int) -> range:
        """The GPUs of a node."""
        for pool, first_gpu, first_node in self._offsets:
            if node < first_node + pool.nodes:
                first = first_gpu + (node - first_node) * pool.gpus_per_node
                return range(first, first + pool.gpus_per_node)
        raise IndexError(f"there is no node {node}")

    def allocation(self, placement: Sequence[int]) -> Allocation:
        """What GPUs, at least one and all of one type, are as an allocation."""
        pool, _, _ = self._pool_of(placement[0])
        return Allocation(pool.gpu_type, len(placement), len(set(map(self.node, placement))))

    def menu(self, demand: Demand) -> tuple[Allocation, ...]:
        """The allocations that a job can bid for, on as few nodes as each fits.

        Args:
            demand: What the job can train on.

        Returns:
            One for each type and number of GPUs; of a gang one for each type that it can
            run on; none where the cluster has too few GPUs for the job.
        """
        if demand not in self._menus:
            self._menus[demand] = tuple(self._menu(demand))
        return self._menus[demand]

    def _menu(self, demand: Demand) -> Iterable[Allocation]:
        found: dict[tuple[str, int], Allocation] = {}
        for pool in self.pools:
            if demand.allows(pool.gpu_type):
                for gpus in range(demand.least, min(demand.most, pool.gpus) + 1):
                    here = Allocation(pool.gpu_type, gpus, pool.fewest_nodes(gpus))
                    key = here.gpu_type, gpus
                    found[key] = min(found.get(key, here), here)
        return found.values()

    @cached_property
    def _menus(self) -> dict[Demand, tuple[Allocation, ...]]:
        return {}

    def _pool_of(self, gpu: int) -> tuple[Pool, int, int]:
        for pool, first_gpu, first_node in self._offsets:
            if gpu < first_gpu + pool.gpus:
                return pool, first_gpu, first_node
        raise IndexError(f"there is no GPU {gpu}")

    @cached_property
    def _offsets(self) -> tuple[tuple[Pool, int, int], ...]:
        """Pools with the numbers of their first GPUs and first nodes."""
        gpus = accumulate((pool.gpus for pool in self.pools), initial=0)
        nodes = accumulate((pool.nodes for pool in self.pools), initial=0)
        return tuple(zip(self.pools, gpus, nodes, strict=False))


class InService:
    """The nodes that are in service, as an inventory of their own, numbered without gaps.

    Args:
        whole: The inventory of all nodes.
        drained: Nodes out of service.

    Attributes:
        inventory: Those that are in service; None if there are none.
    """

    def __init__(self, whole: Inventory, drained: Sequence[int] = ()) -> None:
        self._whole = whole
        self.inventory: Inventory | None = whole
        self._known: tuple[int, ...] | None = None
        self._number: dict[int, int] = {}
        if drained:
            out = {*drained}
            nodes = [node for node in range(whole.nodes) if node not in out]
            self._known = tuple(gpu for node in nodes for gpu in whole.gpus_of(node))
            self._number = {gpu: number for number, gpu in enumerate(self._known)}
            self.inventory = _of_nodes(whole, nodes) if nodes else None

    def numbered(self, gpus: Sequence[int]) -> tuple[int, ...]:
        """GPUs of the whole inventory as this one numbers them; none if one is not in service."""
        if gpus and gpus[-1] >= self._whole.gpus:
            return ()  # of a larger cluster that a run was forked from
        if self._known is None:
            return tuple(gpus)
        if any(gpu not in self._number for gpu in gpus):
            return ()
        return tuple(self._number[gpu] for gpu in gpus)

    def known_as(self, gpus: Sequence[int]) -> tuple[int, ...]:
        """GPUs of this inventory as the whole one numbers them."""
        return tuple(gpus) if self._known is None else tuple(self._known[gpu] for gpu in gpus)


def _of_nodes(whole: Inventory, nodes: Sequence[int]) -> Inventory:
    """The inventory of some nodes of another."""
    pools, first = [], 0
    for pool in whole.pools:
        kept = sum(first <= node < first + pool.nodes for node in nodes)
        if kept:
            pools.append(Pool(pool.gpu_type, kept * pool.gpus_per_node, pool.gpus_per_node))
        first += pool.nodes
    return Inventory(tuple(pools))
