"""Declare and check a cluster's cells and the promises to its tenants."""

from dataclasses import dataclass
from functools import cached_property

from predictor.errors import InputError, meant

GPU = "gpu"
"""Name of the lowest level of every pool."""
NODE = "node"
"""Name of the level whose cells are machines. Each member of a gang is on one node."""


@dataclass(frozen=True, slots=True)
class Level:
    """A level of a pool's cells; `parts` is the number of cells of the level below, 0 for GPUs."""

    name: str
    parts: int
    gpus: int


@dataclass(frozen=True)
class CellPool:
    """Cells of one GPU type that nest alike: a forest of equal trees.

    Attributes:
        parts: Name and number of parts of each level, from the level above GPUs up to whole trees.
            One level is called `node`.
        nodes: Names of the nodes, tree by tree.

    Raises:
        InputError: Names or numbers contradict each other.
    """

    name: str
    gpu_type: str
    parts: tuple[tuple[str, int], ...]
    nodes: tuple[str, ...]

    def __post_init__(self) -> None:
        names = [level.name for level in self.levels]
        if len({*names}) < len(names):
            raise InputError(self.place, "two levels have the same name", "rename one")
        if any(parts < 1 for _, parts in self.parts):
            raise InputError(self.place, "a level has no parts", "give at least 1")
        tree = self.levels[-1].gpus // self.levels[self.level(NODE)].gpus
        if len(self.nodes) % tree:
            raise InputError(
                self.place,
                f"{len(self.nodes)} nodes are not whole {names[-1]!r} cells of {tree}",
                "name the nodes of whole ones",
            )

    @property
    def place(self) -> str:
        """The pool's name in errors."""
        return f"pools.{self.name} ({self.gpu_type})"

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """All levels, from GPUs up to whole trees."""
        found = [Level(GPU, 0, 1)]
        for name, parts in self.parts:
            found.append(Level(name, parts, found[-1].gpus * parts))
        return tuple(found)

    def level(self, name: str) -> int:
        """Return the index of a level.

        Raises:
            InputError: There is no level of that name.
        """
        names = [level.name for level in self.levels]
        if name not in names:
            raise InputError(self.place, f"there is no level {name!r}", meant(name, names))
        return names.index(name)


@dataclass(frozen=True, slots=True)
class Promise:
    """A number of cells of a level, anywhere in a pool."""

    pool: str
    level: str
    number: int = 1


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant and the cells promised to it (HiveD's virtual cluster)."""

    name: str
    cells: tuple[Promise, ...] = ()


@dataclass(frozen=True)
class Layout:
    """A cluster of cells and the promises on it; gangs that name no pool try the pools in order.

    Names of pools, nodes and tenants are unique. `solver.cells.cells.Cells` checks whether all
    promises fit together.

    Raises:
        InputError: A promise names a missing level.
    """

    pools: tuple[CellPool, ...]
    tenants: tuple[Tenant, ...] = ()

    def __post_init__(self) -> None:
        for tenant in self.tenants:
            for promise in tenant.cells:
                self.pool(promise.pool).level(promise.level)

    def pool(self, name: str) -> CellPool:
        """Return a pool by name."""
        return next(pool for pool in self.pools if pool.name == name)
