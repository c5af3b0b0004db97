"""A cluster's cells, and the guaranteed and opportunistic gangs in them."""

from collections.abc import Iterable, Mapping, Sequence

from solver.cells.binding import find_gpus
from solver.cells.gangs import Answer, CellRequest, Granted, RunningGang, Slot, Waits
from solver.cells.ground import Ground
from solver.cells.holding import Holdings
from solver.cells.layout import NODE, CellPool, Layout
from solver.cells.packing import pack
from solver.cells.restoring import restore
from solver.cells.tree import HeldGang, Physical, Promised


class Cells:
    """The cells of a cluster, and the gangs that hold them (HiveD, OSDI '20).

    Deterministic: the order of the layout breaks ties. All nodes of the layout are healthy at
    first.

    Raises:
        InputError: The promises cannot be kept together.
    """

    def __init__(self, layout: Layout) -> None:
        self._ground = Ground(layout)
        self._holdings = Holdings(self._ground.free)

    def ask(self, request: CellRequest) -> Answer:
        """Place a gang in its tenant's cells, never on bad nodes; opportunistic gangs there end.

        No running gang has its name.
        """
        answer: Answer = Waits("no pool has such GPUs")
        for pool in self._pools(request):
            answer = self._ask_pool(request, pool)
            if isinstance(answer, Granted):
                break
        return answer

    def end(self, name: str) -> None:
        """Release the GPUs of a gang."""
        self._holdings.end(self._holdings.gangs[name])

    def report(self, node: str, healthy: bool) -> None:
        """Mark a node as healthy or bad. The caller ends the gangs that run there."""
        self._ground.report(node, healthy)

    def restore(self, running: Iterable[RunningGang]) -> None:
        """Restore running gangs, in the order in which they began.

        Every gang stays where it is, even if the layout has changed. A gang that no longer fits its
        tenant's cells is demoted to opportunistic. Removed GPUs do not count.

        Raises:
            InputError: Two gangs have the same name, or hold the same GPU.
        """
        for gang in running:
            restore(gang, self._ground, self._holdings)

    def gangs(self) -> tuple[RunningGang, ...]:
        """Return the running gangs, in the order in which they began."""
        return tuple(gang.running for gang in self._holdings.gangs.values())

    def demoted(self) -> tuple[str, ...]:
        """Return the names of guaranteed gangs that run as opportunistic ones."""
        gangs = self._holdings.gangs.items()
        return tuple(n for n, gang in gangs if gang.request.guaranteed and gang.claims is None)

    def safe(self) -> bool:
        """Return whether all promised cells that are not taken can be allocated at once."""
        return all(left >= 0 for free in self._ground.free.values() for _, left in free.left())

    def _pools(self, request: CellRequest) -> list[CellPool]:
        """Return the pools in which a gang can be placed, in the order of the layout."""
        ground = self._ground
        return [
            pool
            for pool in ground.layout.pools
            if request.gpu_type in ("", pool.gpu_type)
            and (request.tenant, pool.name) in ground.promised
        ]

    def _ask_pool(self, request: CellRequest, pool: CellPool) -> Answer:
        """Place a gang on promised GPUs, then find physical GPUs to serve them."""
        claims = self._claims(request, pool)
        if claims is None:
            return Waits(f"too few cells of tenant {request.tenant!r} in pool {pool.name!r}")
        flat = [claim for member in sorted(claims, key=len) for claim in member]
        found = find_gpus(flat, self._ground.free[pool.name], _usable)
        if found is None:
            return Waits(f"nodes of pool {pool.name!r} that it would need are bad")
        return self._start(request, claims, found)

    def _claims(self, request: CellRequest, pool: CellPool) -> list[list[Promised]] | None:
        cells = self._ground.promised[request.tenant, pool.name]
        lost = self._ground.lost(request.tenant, pool.name)
        level = pool.level(NODE)
        views = [node for cell in cells if cell.level >= level for node in cell.of_level(level)]
        views += sorted(
            (cell for cell in cells if cell.level < level), key=lambda cell: -cell.level
        )

        def usable(view: Promised) -> bool:
            return view not in lost if view.bound is None else not view.bound.bad

        return pack(filter(usable, views), request.members)

    def _start(
        self,
        request: CellRequest,
        claims: Sequence[Sequence[Promised]],
        serving: Mapping[Promised, Physical],
    ) -> Granted:
        """Start a gang on the GPUs that serve its promised ones; opportunistic gangs there end."""
        flat = [claim for member in claims for claim in member]
        gpus = [serving[claim] for claim in flat]
        victims = list(dict.fromkeys(gpu.user for gpu in gpus if gpu.user is not None))
        for victim in victims:
            self._holdings.end(victim)
        slots = tuple(tuple(_slot(serving[claim]) for claim in member) for member in claims)
        levels = tuple(
            tuple(claim.pool.levels[claim.root.level].name for claim in member) for member in claims
        )
        self._holdings.start(HeldGang(request, RunningGang(request, slots, levels), gpus, flat))
        return Granted(slots, tuple(victim.request.name for victim in victims))


def _slot(gpu: Physical) -> Slot:
    return Slot(gpu.nodes[0], gpu.gpu)


def _usable(cell: Physical) -> bool:
    """Return whether a cell serves no promise and has a healthy node."""
    return cell.promise is None and cell.bad < len(cell.nodes)
