"""The cluster's inventory: typed nodes and their consecutively numbered GPUs."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from predictor.allocation import Allocation, Demand
from predictor.errors import InputError
from predictor.job import JobSpec, Mode
from predictor.throughput import Throughput

MOST_GPUS = 1_000_000
"""Maximum cluster size, an engineering bound: placement keeps a table over all GPUs."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Identical nodes.

    Attributes:
        gpu_type: GPU type, a key of the throughput table; empty for the only type of a
            workload's table.
        gpus: Number of GPUs in total.
        gpus_per_node: GPUs per node. With 1, placement has no effect.
        price: Price of a GPU-hour, in any currency; 0 if unset, and then omitted from rows.

    Raises:
        InputError: The number of GPUs or the price is out of range, or the GPUs do not fill
            whole nodes.
    """

    gpu_type: str
    gpus: int
    gpus_per_node: int = 1
    price: float = 0.0

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InputError("gpus", f"{self.gpus} is not positive", "give at least one GPU")
        if self.gpus > MOST_GPUS:
            problem, remedy = f"{self.gpus} is out of range", f"give at most {MOST_GPUS} GPUs"
            raise InputError("gpus", problem, remedy)
        if self.gpus_per_node < 1 or self.gpus % self.gpus_per_node:
            raise InputError(
                "gpus_per_node",
                f"{self.gpus} GPUs are not whole nodes of {self.gpus_per_node}",
                "give a divisor of the number of GPUs",
            )
        if not 0.0 <= self.price < float("inf"):
            raise InputError("price", f"{self.price} is not a price", "give 0 or more")

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.gpus // self.gpus_per_node

    def node(self, gpu: int) -> int:
        """Return the node of a GPU, both numbered within the pool."""
        return gpu // self.gpus_per_node

    def fewest_nodes(self, gpus: int) -> int:
        """Return the minimum number of nodes that hold a number of GPUs."""
        return -(-gpus // self.gpus_per_node)


@dataclass(frozen=True)
class Inventory:
    """The nodes of a cluster, pool by pool; GPUs and nodes are numbered from 0.

    Attributes:
        pools: Pools of nodes, not empty.
        kept: GPUs that policies may not allocate, ascending: non-preemptible jobs hold them.
    """

    pools: tuple[Pool, ...]
    kept: tuple[int, ...] = ()

    def without(self, kept: Iterable[int]) -> "Inventory":
        """Return the inventory with further kept GPUs."""
        return replace(self, kept=tuple(sorted({*self.kept, *kept})))

    @cached_property
    def gpus(self) -> int:
        """Number of GPUs that can be allocated."""
        return sum(self.free)

    def kept_in(self, number: int) -> list[int]:
        """Return the kept GPUs of a pool, ascending."""
        there = self.gpus_in(number)
        return [gpu for gpu in self.kept if gpu in there]

    @cached_property
    def free(self) -> tuple[int, ...]:
        """Number of GPUs that can be allocated, by pool."""
        return tuple(pool.gpus - len(self.kept_in(n)) for n, pool in enumerate(self.pools))

    @cached_property
    def nodes(self) -> int:
        """Number of nodes."""
        return sum(pool.nodes for pool in self.pools)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """GPU types, in the order of the pools."""
        return tuple(dict.fromkeys(pool.gpu_type for pool in self.pools))

    @cached_property
    def mixed(self) -> bool:
        """Whether there are several GPU types, among which jobs choose."""
        return len(self.types) > 1

    @cached_property
    def capacities(self) -> dict[str, int]:
        """GPUs that can be allocated, by type, in the order of `types`."""
        return {
            kind: sum(
                free
                for pool, free in zip(self.pools, self.free, strict=True)
                if pool.gpu_type == kind
            )
            for kind in self.types
        }

    @cached_property
    def pools_of(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the pools of each type."""
        numbers = range(len(self.pools))
        return {
            kind: tuple(n for n in numbers if self.pools[n].gpu_type == kind) for kind in self.types
        }

    @cached_property
    def first_gpus(self) -> tuple[int, ...]:
        """Index of the first GPU of each pool."""
        return tuple(first_gpu for _, first_gpu, _ in self._offsets)

    def gpus_in(self, number: int) -> range:
        """Return the GPUs of a pool, including kept ones."""
        first = self.first_gpus[number]
        return range(first, first + self.pools[number].gpus)

    def node(self, gpu: int) -> int:
        """Return the node of a GPU."""
        pool, first_gpu, first_node = self._pool_of(gpu)
        return first_node + pool.node(gpu - first_gpu)

    def nodes_of(self, gpus: Iterable[int]) -> set[int]:
        """Return the nodes of GPUs; without GPUs that a fork's cluster has no more."""
        there = sum(pool.gpus for pool in self.pools)
        return {self.node(gpu) for gpu in gpus if gpu < there}

    def pool(self, gpu: int) -> int:
        """Return the number of a GPU's pool."""
        self._pool_of(gpu)
        return bisect_right(self.first_gpus, gpu) - 1

    def gpu_type(self, gpu: int) -> str:
        """Return the type of a GPU."""
        return self.pools[self.pool(gpu)].gpu_type

    def allocation(self, gpus: Sequence[int]) -> Allocation:
        """Return the allocation of GPUs of one pool; needs at least one GPU."""
        pool, first, _ = self._pool_of(gpus[0])
        held, nodes = len(gpus), len(gpus)
        if pool.gpus_per_node > 1:
            nodes = len({(gpu - first) // pool.gpus_per_node for gpu in gpus})
        for found in self._menus.get((held, held, ()), ()):  # mostly on as few nodes as possible
            if found.nodes == nodes and found.gpu_type == pool.gpu_type:
                return found
        return Allocation(pool.gpu_type, held, nodes)

    def gpus_of(self, node: int) -> range:
        """Return the GPUs of a node."""
        for pool, first_gpu, first_node in self._offsets:
            if node < first_node + pool.nodes:
                first = first_gpu + (node - first_node) * pool.gpus_per_node
                return range(first, first + pool.gpus_per_node)
        raise IndexError(f"there is no node {node}")

    def by_node(self, gpus: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """Return the GPUs of each node among some, numbered within their nodes."""
        found: dict[int, tuple[int, ...]] = {}
        for gpu in gpus:
            node = self.node(gpu)
            found[node] = (*found.get(node, ()), gpu - self.gpus_of(node).start)
        return found

    def menu(self, demand: Demand) -> tuple[Allocation, ...]:
        """Return the allocations that a job can bid for, each on as few nodes as possible.

        There is one per GPU type and number of GPUs, so one per type for a gang; none if the
        cluster is too small for the job.
        """
        key = demand.least, demand.most, demand.types  # compared faster than the dataclass
        found = self._menus.get(key)
        if found is None:
            found = self._menus[key] = tuple(self._menu(demand))
        return found

    def menu_of(
        self, job: JobSpec, batch_size: int, throughput: Throughput, *, elastic: bool = False
    ) -> tuple[Allocation, ...]:
        """Return the allocations that a job can run on: fewest GPUs first, then the fastest.

        An elastic menu has all numbers of GPUs of the job's demand with known throughputs, others
        only its gang. With a single GPU type, a gang's throughputs are not checked: it is all that
        the job can bid for.
        """
        demand = job.demand if elastic else job.demand.rigid
        if not self.mixed and len(throughput.gpu_types) < 2:
            menu = self.menu(demand)
            return throughput.keep_measured(job, menu) if len(menu) > 1 else menu
        runs = tuple(self._find_feasible(job, batch_size, throughput, demand))
        if job.mode is Mode.GOODPUT:
            kinds = {found.gpu_type for found in runs}
            speeds = {kind: throughput.relative_speed(job, kind) for kind in kinds}
            rates = [speeds[found.gpu_type] for found in runs]
        else:
            rates = [throughput.rate(job, batch_size, found) for found in runs]
        order = sorted(range(len(runs)), key=lambda place: (runs[place].gpus, -rates[place]))
        return tuple([runs[place] for place in order])

    def can_run(self, job: JobSpec, batch_size: int, throughput: Throughput) -> bool:
        """Return whether a job can run on any allocation, so whether `menu_of` has one."""
        if not self.mixed and len(throughput.gpu_types) < 2:
            return bool(self.menu(job.demand.rigid))
        return any(True for _ in self._find_feasible(job, batch_size, throughput, job.demand.rigid))

    def _find_feasible(
        self, job: JobSpec, batch_size: int, throughput: Throughput, demand: Demand
    ) -> Iterator[Allocation]:
        adapts = job.mode is Mode.GOODPUT  # its batch size follows its GPUs
        for found in throughput.keep_measured(job, self.menu(demand)):
            if adapts or throughput.can_run(job, batch_size, found):
                yield found

    def _menu(self, demand: Demand) -> Iterable[Allocation]:
        found: dict[tuple[str, int], Allocation] = {}
        for pool, free in zip(self.pools, self.free, strict=True):
            if demand.allows(pool.gpu_type):
                for gpus in range(demand.least, min(demand.most, free) + 1):
                    allocation = Allocation(pool.gpu_type, gpus, pool.fewest_nodes(gpus))
                    key = allocation.gpu_type, gpus
                    found[key] = min(found.get(key, allocation), allocation)
        return found.values()

    @cached_property
    def _menus(self) -> dict[tuple[int, int, tuple[str, ...]], tuple[Allocation, ...]]:
        return {}

    def _pool_of(self, gpu: int) -> tuple[Pool, int, int]:
        for pool, first_gpu, first_node in self._offsets:
            if gpu < first_gpu + pool.gpus:
                return pool, first_gpu, first_node
        raise IndexError(f"there is no GPU {gpu}")

    @cached_property
    def _offsets(self) -> tuple[tuple[Pool, int, int], ...]:
        """Pools with the indices of their first GPU and first node."""
        gpus = accumulate((pool.gpus for pool in self.pools), initial=0)
        nodes = accumulate((pool.nodes for pool in self.pools), initial=0)
        return tuple(zip(self.pools, gpus, nodes, strict=False))


def add_nodes(pools: Sequence[Pool], nodes: Iterable[Pool]) -> tuple[Pool, ...]:
    """Append nodes, as pools of one node each, without renumbering the present nodes.

    A node that matches the last pool joins it.
    """
    found = [*pools]
    for node in nodes:
        last = found[-1]
        alike = last.gpu_type, last.gpus_per_node, last.price
        if alike == (node.gpu_type, node.gpus_per_node, node.price):
            found[-1] = replace(last, gpus=last.gpus + node.gpus)
        else:
            found.append(node)
    return tuple(found)


class InService:
    """The nodes in service as an inventory of their own, numbered without gaps.

    Attributes:
        whole: Inventory of all nodes, drained ones included.
        inventory: Inventory of the nodes in service; None if all are drained.
    """

    def __init__(self, whole: Inventory, drained: Sequence[int] = ()) -> None:
        self.whole = whole
        self.inventory: Inventory | None = whole
        self._drained = tuple(drained)
        self._without: dict[frozenset[int], Inventory | None] = {}
        self._known: tuple[int, ...] | None = None
        self._number: dict[int, int] = {}
        if drained:
            out = {*drained}
            nodes = [node for node in range(whole.nodes) if node not in out]
            self._known = tuple(gpu for node in nodes for gpu in whole.gpus_of(node))
            self._number = {gpu: number for number, gpu in enumerate(self._known)}
            self.inventory = _of_nodes(whole, nodes) if nodes else None

    @property
    def gpus(self) -> int:
        """Number of GPUs in service."""
        return self.inventory.gpus if self.inventory else 0

    def without(self, nodes: frozenset[int]) -> Inventory | None:
        """Return the inventory without these nodes too, cached; None if no node is left."""
        if nodes not in self._without:
            self._without[nodes] = InService(self.whole, (*self._drained, *nodes)).inventory
        return self._without[nodes]

    def numbered(self, gpus: Sequence[int]) -> tuple[int, ...]:
        """Renumber GPUs of the whole inventory; returns () if any of them is drained."""
        if gpus and gpus[-1] >= self.whole.gpus:
            return ()  # the run was forked from one on a larger cluster
        if self._known is None:
            return tuple(gpus)
        if any(gpu not in self._number for gpu in gpus):
            return ()
        return tuple(self._number[gpu] for gpu in gpus)

    def known_as(self, gpus: Sequence[int]) -> tuple[int, ...]:
        """Number GPUs of this inventory as in the whole inventory."""
        return tuple(gpus) if self._known is None else tuple(self._known[gpu] for gpu in gpus)


def _of_nodes(whole: Inventory, nodes: Sequence[int]) -> Inventory:
    pools, first = [], 0
    for pool in whole.pools:
        kept = sum(first <= node < first + pool.nodes for node in nodes)
        if kept:
            pools.append(replace(pool, gpus=kept * pool.gpus_per_node))
        first += pool.nodes
    return Inventory(tuple(pools))
