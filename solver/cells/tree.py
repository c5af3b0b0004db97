"""Trees of cells: physical cells, and cells promised to tenants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from solver.cells.gangs import CellRequest, RunningGang
from solver.cells.layout import NODE, CellPool


class Cell:
    """A cell, in the tree of its pool or of a tenant's cell.

    Attributes:
        level: Index of its level, 0 for a GPU.
        index: Position among all cells of the pool or tenant; breaks ties.
        used: Number of its GPUs in use: of a promised cell by gangs of the tenant, of a physical
            one by opportunistic gangs.
    """

    __slots__ = ("children", "index", "level", "parent", "pool", "used")

    def __init__(self, pool: CellPool, level: int, index: int, parent: Self | None) -> None:
        self.pool = pool
        self.level = level
        self.index = index
        self.parent = parent
        self.children: list[Self] = []
        self.used = 0
        if parent is not None:
            parent.children.append(self)

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.pool.levels[self.level].gpus

    def count(self, change: int) -> None:
        """Add `change` to the number of GPUs in use, of this cell and all above."""
        cell: Cell | None = self
        while cell is not None:
            cell.used += change
            cell = cell.parent

    def above(self, level: int) -> Self:
        """Return the containing cell of a level, or the root if that is lower."""
        cell = self
        while cell.level < level and cell.parent is not None:
            cell = cell.parent
        return cell

    def of_level(self, level: int) -> Iterator[Self]:
        """Yield its cells of a level, in order."""
        if self.level == level:
            yield self
        else:
            for child in self.children:
                yield from child.of_level(level)


class Physical(Cell):
    """A physical cell of the cluster.

    Attributes:
        promise: The promised cell that it serves.
        free: Whether it is free by itself, not as part of a larger free cell.
        bad: Number of its nodes that are bad; for parts of a node, that of the node.
        nodes: Names of its nodes; a part of a node has that node.
        gpu: Index on its node, for a GPU.
        user: The gang that runs on it, for a GPU.
    """

    __slots__ = ("bad", "free", "gpu", "nodes", "promise", "user")

    def __init__(
        self,
        pool: CellPool,
        level: int,
        index: int,
        parent: Physical | None,
        nodes: tuple[str, ...],
    ) -> None:
        super().__init__(pool, level, index, parent)
        self.promise: Promised | None = None
        self.free = False
        self.bad = 0
        self.nodes = nodes
        self.gpu = 0
        self.user: HeldGang | None = None


class Promised(Cell):
    """A cell that is promised to a tenant, or a part of one.

    Attributes:
        bound: The physical cell that serves it; None while no gang holds a GPU of it.
    """

    __slots__ = ("bound",)

    def __init__(self, pool: CellPool, level: int, index: int, parent: Promised | None) -> None:
        super().__init__(pool, level, index, parent)
        self.bound: Physical | None = None

    @property
    def root(self) -> Promised:
        """The whole promised cell."""
        return self if self.parent is None else self.parent.root


def make_physical_trees(pool: CellPool) -> list[Physical]:
    """Return the trees of a pool, with nodes and GPUs in declared order."""
    node_level, top = pool.level(NODE), len(pool.levels) - 1
    count = 0

    def grow(level: int, parent: Physical | None, nodes: tuple[str, ...]) -> Physical:
        nonlocal count
        cell = Physical(pool, level, count, parent, nodes)
        count += 1
        parts = pool.levels[level].parts
        for part in range(parts):
            share = len(nodes) // parts
            own = nodes[part * share : (part + 1) * share] if level > node_level else nodes
            grow(level - 1, cell, own)
        return cell

    share = pool.levels[top].gpus // pool.levels[node_level].gpus
    trees = [
        grow(top, None, pool.nodes[first : first + share])
        for first in range(0, len(pool.nodes), share)
    ]
    for tree in trees:
        for node in tree.of_level(node_level):
            for index, gpu in enumerate(node.of_level(0)):
                gpu.gpu = index
    return trees


def make_promised_tree(pool: CellPool, level: int, first: int) -> Promised:
    """Return the tree of a promised cell, its parts numbered from `first`."""
    count = first

    def grow(level: int, parent: Promised | None) -> Promised:
        nonlocal count
        cell = Promised(pool, level, count, parent)
        count += 1
        for _ in range(pool.levels[level].parts):
            grow(level - 1, cell)
        return cell

    return grow(level, None)


@dataclass(eq=False, slots=True)
class HeldGang:
    """A gang that holds GPUs.

    Attributes:
        placed: Its first placement.
        gpus: Its GPUs, without those that were removed from the cluster.
        claims: The promised GPU that each of them serves; None while the gang is opportunistic.
    """

    request: CellRequest
    placed: RunningGang
    gpus: list[Physical]
    claims: list[Promised] | None

    @property
    def running(self) -> RunningGang:
        """The gang as it runs now: a demoted gang stays demoted."""
        if self.claims is not None:
            return self.placed
        levels = tuple(("",) * len(member) for member in self.placed.levels)
        return replace(self.placed, levels=levels)
