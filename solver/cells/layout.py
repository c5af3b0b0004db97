"""Declaration of a cluster's cells and of the promises to its tenants, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from predictor.errors import InputError, meant

GPU = "gpu"
"""Name of the lowest level of every pool."""
NODE = "node"
"""Name of the level whose cells are machines. Members of a gang lie on one node each."""


@dataclass(frozen=True, slots=True)
class Level:
    """A level of a pool's cells.

    Attributes:
        name: Name, unique within the pool.
        parts: Number of cells of the level below in each, its buddies; 0 for GPUs.
        gpus: GPUs of each.
    """

    name: str
    parts: int
    gpus: int


@dataclass(frozen=True)
class CellPool:
    """Cells of one GPU type that nest alike: a forest of equal trees.

    Attributes:
        name: Name, unique within the cluster.
        gpu_type: GPU type.
        parts: From the level above GPUs up to that of whole trees, its name and how many cells of
            the level below each consists of. One is called `node`.
        nodes: Names of the nodes, tree by tree.
        gpus: Indices of a node's GPUs, in the order of the tree, where not 0, 1, ….

    Raises:
        InputError: Names or numbers contradict each other.
    """

    name: str
    gpu_type: str
    parts: tuple[tuple[str, int], ...]
    nodes: tuple[str, ...]
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [level.name for level in self.levels]
        if len({*names}) < len(names):
            raise InputError(self.place, "two levels have the same name", "rename one")
        if NODE not in names:
            raise InputError(self.place, f"no level is called {NODE!r}", "call one so")
        if any(parts < 1 for _, parts in self.parts):
            raise InputError(self.place, "a level has no parts", "give at least 1")
        if len({*self.nodes}) < len(self.nodes):
            raise InputError(self.place, "two nodes have the same name", "rename one")
        tree = self.levels[-1].gpus // self.levels[self.level(NODE)].gpus
        if not self.nodes or len(self.nodes) % tree:
            raise InputError(
                self.place,
                f"{len(self.nodes)} nodes are not whole {names[-1]!r} cells of {tree}",
                "name the nodes of whole ones",
            )
        for node, gpus in self.gpus.items():
            if node not in self.nodes:
                raise InputError(self.place, f"{node!r} has GPUs and is no node", "name a node")
            if len({*gpus}) != self.levels[self.level(NODE)].gpus or len({*gpus}) < len(gpus):
                raise InputError(
                    self.place, f"the GPUs of {node!r} do not fill it", "give each index once"
                )

    @property
    def place(self) -> str:
        """The pool, as an error names it."""
        return f"pools.{self.name} ({self.gpu_type})"

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """All levels, from GPUs up to whole trees."""
        found = [Level(GPU, 0, 1)]
        for name, parts in self.parts:
            found.append(Level(name, parts, found[-1].gpus * parts))
        return tuple(found)

    def level(self, name: str) -> int:
        """Index of a level.

        Raises:
            InputError: There is none of that name.
        """
        names = [level.name for level in self.levels]
        if name not in names:
            raise InputError(self.place, f"there is no level {name!r}", meant(name, names))
        return names.index(name)

    def gpus_of(self, node: str) -> tuple[int, ...]:
        """Indices of a node's GPUs, in the order of the tree."""
        return self.gpus.get(node) or tuple(range(self.levels[self.level(NODE)].gpus))


@dataclass(frozen=True, slots=True)
class Pin:
    """A certain cell that is promised, not any cell of its level.

    Attributes:
        name: Name, by which a tenant has it and a gang asks for it.
        pool: Its pool.
        level: Its level.
        node: Its node, or the first of its nodes.
        gpu: Index of its first GPU on that node; None for the node's first.
    """

    name: str
    pool: str
    level: str
    node: str
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Promise:
    """A number of cells of a level, wherever in the pool they are.

    Attributes:
        pool: The pool.
        level: The level.
        number: Number of cells.
    """

    pool: str
    level: str
    number: int = 1


@dataclass(frozen=True, slots=True)
class Tenant:
    """What a tenant is promised (HiveD's virtual cluster).

    Attributes:
        name: Name.
        cells: Its cells by level.
        pins: Names of its pinned cells.
    """

    name: str
    cells: tuple[Promise, ...] = ()
    pins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """A cluster of cells and the promises on it.

    Whether all promises fit together is found when its cells are made (`solver/cells/cells.py`).

    Attributes:
        pools: Pools, in the order in which gangs that name none are tried.
        tenants: Tenants.
        pins: Pinned cells.

    Raises:
        InputError: A promise names what is not there, or a pin has not exactly one tenant.
    """

    pools: tuple[CellPool, ...]
    tenants: tuple[Tenant, ...] = ()
    pins: tuple[Pin, ...] = ()

    def __post_init__(self) -> None:
        _unique("pools", [pool.name for pool in self.pools])
        _unique("tenants", [tenant.name for tenant in self.tenants])
        _unique("pins", [pin.name for pin in self.pins])
        _unique("pins of tenants", [pin for tenant in self.tenants for pin in tenant.pins])
        gpus = [
            f"GPU {gpu} of node {node}"
            for pool in self.pools
            for node in pool.nodes
            for gpu in pool.gpus_of(node)
        ]
        _unique("pools", gpus)
        for pin in self.pins:
            self.pool(pin.pool).level(pin.level)
        for tenant in self.tenants:
            for promise in tenant.cells:
                self.pool(promise.pool).level(promise.level)
                if promise.number < 0:
                    raise InputError(
                        f"tenants.{tenant.name}", f"{promise.number} cells", "give 0 or more"
                    )
            for name in tenant.pins:
                self.pin(name)

    def pool(self, name: str) -> CellPool:
        """A pool by name.

        Raises:
            InputError: There is none of that name.
        """
        return _named("pool", self.pools, name)

    def pin(self, name: str) -> Pin:
        """A pinned cell by name.

        Raises:
            InputError: There is none of that name.
        """
        return _named("pin", self.pins, name)


Part = TypeVar("Part", CellPool, Pin)


def _named(kind: str, parts: Sequence[Part], name: str) -> Part:
    """The one of pools or of pins with a name."""
    for part in parts:
        if part.name == name:
            return part
    known = [part.name for part in parts]
    raise InputError(f"{kind}s", f"there is no {kind} {name!r}", meant(name, known))


def _unique(place: str, names: list[str]) -> None:
    """Refuse names that occur twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(place, f"{name} is named twice", "name each once")
        seen.add(name)
