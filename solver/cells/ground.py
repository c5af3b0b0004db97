"""The declared cells of a cluster, without gangs: trees, promises, health."""

from solver.cells.free import FreeCells
from solver.cells.gangs import Slot
from solver.cells.health import find_hopeless
from solver.cells.layout import NODE, Layout
from solver.cells.tree import Physical, Promised, make_physical_trees, make_promised_tree


class Ground:
    """Physical and promised cells of a layout. All nodes are healthy at first.

    Attributes:
        nodes: Nodes by pool, in the order of the layout.
        slots: GPUs by node and index.
        free: Free cells by pool.
        promised: Promised cells by tenant and pool, in the order of the layout.

    Raises:
        InputError: The promises cannot be kept together.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.nodes: dict[str, list[Physical]] = {}
        self.slots: dict[Slot, Physical] = {}
        self.free: dict[str, FreeCells] = {}
        self.promised: dict[tuple[str, str], list[Promised]] = {}
        self._bad: dict[str, list[Physical]] = {pool.name: [] for pool in layout.pools}
        for pool in layout.pools:
            trees, level = make_physical_trees(pool), pool.level(NODE)
            self.free[pool.name] = FreeCells(pool, trees)
            self.nodes[pool.name] = [node for tree in trees for node in tree.of_level(level)]
            for node in self.nodes[pool.name]:
                for gpu in node.of_level(0):
                    self.slots[Slot(node.nodes[0], gpu.gpu)] = gpu
        for tenant in layout.tenants:
            count = 0
            for promise in tenant.cells:
                pool = layout.pool(promise.pool)
                level = pool.level(promise.level)
                for _ in range(promise.number):
                    cell = make_promised_tree(pool, level, count)
                    count += 2 * cell.gpus * len(pool.levels)
                    self.promised.setdefault((tenant.name, pool.name), []).append(cell)
                self.free[pool.name].owed[level] += promise.number
        for free in self.free.values():
            free.check()

    def report(self, name: str, healthy: bool) -> None:
        """Mark a node as healthy or bad."""
        for node in (node for nodes in self.nodes.values() for node in nodes):
            if node.nodes[0] == name and healthy is (node.bad > 0):
                bad = self._bad[node.pool.name]
                (bad.remove if healthy else bad.append)(node)
                for level in range(node.level):
                    for part in node.of_level(level):
                        part.bad = 0 if healthy else 1
                above: Physical | None = node
                while above is not None:
                    above.bad += -1 if healthy else 1
                    above = above.parent

    def lost(self, tenant: str, pool: str) -> set[Promised]:
        """Return a tenant's promised nodes, or parts of nodes, that only bad nodes can serve."""
        cells = self.promised.get((tenant, pool), [])
        return find_hopeless(cells, self.free[pool], self._bad[pool])
