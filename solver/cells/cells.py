"""A cluster's cells, and the guaranteed and opportunistic gangs that hold them."""

from collections.abc import Container, Iterable, Sequence

from predictor.errors import InputError, meant
from solver.cells.binding import bound
from solver.cells.gangs import (
    OPPORTUNISTIC,
    Answer,
    Gang,
    Placed,
    Preempts,
    PromisedCell,
    Request,
    RunningGang,
    Slot,
    Waits,
)
from solver.cells.ground import Ground
from solver.cells.holding import Holdings
from solver.cells.layout import NODE, CellPool, Layout
from solver.cells.packing import pack
from solver.cells.restoring import restore
from solver.cells.tree import Physical, Promised


class Cells:
    """The cells of a cluster, and the gangs that hold them (HiveD, OSDI '20).

    Deterministic: ties are broken by the order of the layout.

    Args:
        layout: Pools, tenants and pins. All nodes are healthy at first.

    Raises:
        InputError: The promises cannot be kept together, or a pin names a node that is missing.
    """

    def __init__(self, layout: Layout) -> None:
        self._ground = Ground(layout)
        self._holdings = Holdings(self._ground.free)

    def ask(
        self, request: Request, nodes: Container[str] | None = None, preempt: bool = True
    ) -> Answer:
        """Place a gang, or continue its preemption.

        A gang may be asked for again: where it runs, it goes on; where it preempts, it runs once
        its victims have ended, or looks for another place if one of its nodes has become bad or
        may no longer be used.

        Args:
            request: The gang.
            nodes: Names of the nodes that may be used (HiveD's suggested nodes); None for all. Bad
                ones are never used.
            preempt: Whether a preemption may begin. Lazy gangs are demoted anyway.

        Returns:
            What became of it.

        Raises:
            InputError: The tenant, its cells, the pin or the GPU type do not exist, or another
                gang has that name.
        """
        self._check(request)
        gang = self._holdings.gangs.get(request.name)
        if gang is not None:
            stays = all(_healthy(gpu, nodes) for gpu in gang.gpus)
            if stays or not (gang.waiting and preempt):
                return self._settled(gang)
            self._holdings.end(gang)
        answer: Answer = Waits("no pool has such GPUs")
        for pool in self._pools(request):
            if request.guaranteed:
                answer = self._guaranteed(request, pool, nodes, preempt)
            else:
                answer = self._opportunistic(request, pool, nodes)
            if not isinstance(answer, Waits):
                break
        return answer

    def end(self, name: str) -> None:
        """Release the cells of a gang that runs, or that waits for its victims.

        Raises:
            InputError: There is no such gang.
        """
        gangs = self._holdings.gangs
        if name not in gangs:
            raise InputError("gang", f"there is no gang {name!r}", meant(name, gangs))
        self._holdings.end(gangs[name])

    def report(self, node: str, healthy: bool) -> None:
        """Mark a node as healthy or bad. The caller ends the gangs that run there.

        Raises:
            InputError: There is no such node.
        """
        self._ground.report(node, healthy)

    def restore(self, running: Iterable[RunningGang]) -> None:
        """Restore running gangs, in the order in which they began.

        Every gang stays where it is, whatever the layout is now. A gang that no longer fits its
        tenant's cells is demoted to opportunistic; GPUs that were removed do not count.

        Raises:
            InputError: Two gangs have the same name, or hold the same GPU.
        """
        for gang in running:
            restore(gang, self._ground, self._holdings)

    def gangs(self) -> tuple[RunningGang, ...]:
        """The running gangs, in the order in which they began; reservations are not kept."""
        gangs = self._holdings.gangs.values()
        return tuple(gang.running for gang in gangs if not gang.waiting)

    def priorities(self) -> dict[str, int]:
        """Names of the gangs that run, with the priorities that they run by.

        A guaranteed gang that was demoted runs by `OPPORTUNISTIC`.
        """
        gangs = self._holdings.gangs.items()
        return {name: gang.priority for name, gang in gangs if not gang.waiting}

    def waiting(self) -> tuple[str, ...]:
        """Names of the gangs that wait for the end of their victims."""
        gangs = self._holdings.gangs.items()
        return tuple(name for name, gang in gangs if gang.waiting)

    def safe(self) -> bool:
        """Whether all promised cells that are not taken can be allocated at once."""
        return all(left >= 0 for free in self._ground.free.values() for _, left in free.left())

    def promised(self, tenant: str) -> tuple[PromisedCell, ...]:
        """State of a tenant's cells, in the order of the layout, pinned cells last."""
        ground = self._ground
        lost = {
            cell.root for pool in ground.layout.pools for cell in ground.lost(tenant, pool.name)
        }
        named = [
            ("", cell)
            for (whose, _), cells in ground.promised.items()
            for cell in cells
            if whose == tenant
        ]
        named += [(pin, cell) for (whose, pin), cell in ground.pinned.items() if whose == tenant]
        return tuple(
            PromisedCell(
                cell.pool.name,
                cell.pool.levels[cell.level].name,
                pin,
                frozenset(map(_slot, cell.bound.of_level(0))) if cell.bound else frozenset(),
                not cell.bound.bad if cell.bound else cell not in lost,
            )
            for pin, cell in named
        )

    def _check(self, request: Request) -> None:
        """Refuse requests that name unknown tenants, cells, pins or GPU types."""
        name, layout = request.name, self._ground.layout
        gang = self._holdings.gangs.get(name)
        if gang is not None and gang.request != request:
            raise InputError(name, "the gang was asked for otherwise before", "ask as before")
        tenants = [tenant.name for tenant in layout.tenants]
        if request.tenant not in tenants:
            problem = f"there is no tenant {request.tenant!r}"
            raise InputError(f"{name}.tenant", problem, meant(request.tenant, tenants))
        pins = [pin for tenant, pin in self._ground.pinned if tenant == request.tenant]
        if request.pin and request.pin not in pins:
            problem = f"tenant {request.tenant!r} has no pinned cell {request.pin!r}"
            raise InputError(f"{name}.pin", problem, meant(request.pin, pins))
        if request.gpu_type and not self._pools(request):
            types = [pool.gpu_type for pool in layout.pools]
            whose = f"tenant {request.tenant!r} has" if request.gpu_type in types else "there are"
            problem = f"{whose} no cells of {request.gpu_type!r}"
            raise InputError(f"{name}.gpu_type", problem, meant(request.gpu_type, types))

    def _pools(self, request: Request) -> list[CellPool]:
        """The pools that a gang can be placed in, in the order of the layout."""
        ground = self._ground
        if request.pin:
            return [ground.pinned[request.tenant, request.pin].pool]
        return [
            pool
            for pool in ground.layout.pools
            if request.gpu_type in ("", pool.gpu_type)
            and (not request.guaranteed or (request.tenant, pool.name) in ground.promised)
        ]

    def _opportunistic(
        self, request: Request, pool: CellPool, nodes: Container[str] | None
    ) -> Answer:
        """Place a gang on GPUs that no gang holds."""
        found = pack(
            self._ground.nodes[pool.name],
            lambda node: _healthy(node, nodes),
            request.members,
            OPPORTUNISTIC,
        )
        if found is None:
            return Waits(f"too few idle GPUs in pool {pool.name!r}")
        gang = _gang(request, found, None)
        self._holdings.start(gang)
        return self._settled(gang)

    def _guaranteed(
        self, request: Request, pool: CellPool, nodes: Container[str] | None, preempt: bool
    ) -> Answer:
        """Place a gang on promised GPUs, then find the physical ones that serve them."""
        claims = self._claims(request, pool, nodes)
        if claims is None:
            return Waits(f"too few cells of tenant {request.tenant!r} in pool {pool.name!r}")
        flat = [claim for member in sorted(claims, key=len) for claim in member]
        demoted = self._holdings.demote_for(flat)
        found = bound(flat, self._ground.free[pool.name], lambda cell: _usable(cell, nodes))
        reason = f"nodes of pool {pool.name!r} that it would need are bad or excluded"
        if found is not None:
            gang = _gang(request, [[found[claim] for claim in member] for member in claims], claims)
            if preempt or not any(gpu.user or gpu.taker for gpu in gang.gpus):
                for taker in dict.fromkeys(gpu.taker for gpu in gang.gpus):
                    if taker is not None:
                        self._holdings.end(taker)
                self._holdings.start(gang)
                return self._settled(gang)
            reason = f"its GPUs in pool {pool.name!r} are in use, and no preemption may begin"
        for victim, before in reversed(demoted):
            self._holdings.serve(victim, before)
        return Waits(reason)

    def _claims(
        self, request: Request, pool: CellPool, nodes: Container[str] | None
    ) -> list[list[Promised]] | None:
        """Promised GPUs for each member of a guaranteed gang."""
        ground = self._ground
        if request.pin:
            cells = [ground.pinned[request.tenant, request.pin]]
        else:
            cells = ground.promised[request.tenant, pool.name]
        lost = ground.lost(request.tenant, pool.name, request.pin)
        level = pool.level(NODE)
        views = [node for cell in cells if cell.level >= level for node in cell.of_level(level)]
        views += sorted(
            (cell for cell in cells if cell.level < level), key=lambda cell: -cell.level
        )

        def usable(view: Promised) -> bool:
            return view not in lost if view.bound is None else _healthy(view.bound, nodes)

        return pack(views, usable, request.members, request.priority)

    def _settled(self, gang: Gang) -> Answer:
        """The answer for a gang that has GPUs."""
        victims = self._holdings.victims(gang)
        return Preempts(victims) if victims else Placed(gang.placed.slots)


def _gang(
    request: Request,
    gpus: Sequence[Sequence[Physical]],
    claims: Sequence[Sequence[Promised]] | None,
) -> Gang:
    """A new gang on its GPUs."""
    slots = tuple(tuple(map(_slot, member)) for member in gpus)
    flat = [gpu for member in gpus for gpu in member]
    if claims is None:
        levels = tuple(tuple("" for _ in member) for member in gpus)
        return Gang(request, RunningGang(request, slots, levels), flat, None)
    levels = tuple(
        tuple(claim.pool.levels[claim.root.level].name for claim in member) for member in claims
    )
    served = [claim for member in claims for claim in member]
    return Gang(request, RunningGang(request, slots, levels), flat, served)


def _slot(gpu: Physical) -> Slot:
    """A GPU's name."""
    return Slot(gpu.nodes[0], gpu.gpu)


def _healthy(cell: Physical, nodes: Container[str] | None) -> bool:
    """Whether a node, or the node of a part, is healthy and may be used."""
    return not cell.bad and (nodes is None or cell.nodes[0] in nodes)


def _usable(cell: Physical, nodes: Container[str] | None) -> bool:
    """Whether a cell serves no promise and has a node that is healthy and may be used."""
    if cell.promise is not None or cell.bad >= len(cell.nodes):
        return False
    return nodes is None or any(node in nodes for node in cell.nodes)
