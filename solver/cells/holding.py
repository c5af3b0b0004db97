"""The gangs that hold GPUs: every change, in a single place."""

from collections.abc import Iterable, Mapping

from solver.cells.free import FreeCells
from solver.cells.gangs import Gang
from solver.cells.tree import Physical, Promised


class Holdings:
    """The gangs that hold GPUs, and the bindings of cells that follow from it.

    A promised cell is bound as long as a gang holds a GPU of it; the physical cell that serves it
    is then not free. A GPU is held once: by the gang that has reserved it, or else by its user.

    Args:
        free: Free cells by pool.

    Attributes:
        gangs: Gangs by name; those that run in the order in which they began.
    """

    def __init__(self, free: Mapping[str, FreeCells]) -> None:
        self._free = free
        self.gangs: dict[str, Gang] = {}

    def start(self, gang: Gang) -> None:
        """Start a gang on its GPUs or, if any is in use, reserve them and wait."""
        gang.waiting = any(gpu.user for gpu in gang.gpus)
        for gpu in gang.gpus:
            if gpu.user is not None:
                self.release(gpu)
            self.hold(gpu, gang)
            if gang.waiting:
                gpu.taker = gang
            else:
                gpu.user = gang
        self.gangs[gang.request.name] = gang

    def victims(self, gang: Gang) -> tuple[str, ...]:
        """The victims that a gang still waits for; without any, it runs from now on."""
        if not gang.waiting:
            return ()
        victims = {gpu.user.request.name: None for gpu in gang.gpus if gpu.user is not None}
        if not victims:
            for gpu in gang.gpus:
                gpu.user, gpu.taker = gang, None
            gang.waiting = False
            self.gangs[gang.request.name] = self.gangs.pop(gang.request.name)
        return tuple(victims)

    def end(self, gang: Gang) -> None:
        """Free a running gang's GPUs, or return a waiting gang's reserved GPUs to their users."""
        for gpu in gang.gpus:
            if gang.waiting:
                self.release(gpu)
                gpu.taker = None
            else:
                gpu.user = None
                if gpu.taker is None:
                    self.release(gpu)
        if gang.waiting:
            for gpu in gang.gpus:
                if gpu.user is not None:
                    self.hold(gpu, gpu.user)
        del self.gangs[gang.request.name]

    def demote_for(self, claims: Iterable[Promised]) -> list[tuple[Gang, list[Promised]]]:
        """Demote the lazy gangs that run on promised GPUs; returns them with their claims."""
        demoted: list[tuple[Gang, list[Promised]]] = []
        for claim in claims:
            gpu = claim.bound
            user = None if gpu is None or gpu.taker is not None else gpu.user
            if user is not None and user.request.lazy and user.claims is not None:
                demoted.append((user, user.claims))
                self.serve(user, None)
        return demoted

    def serve(self, gang: Gang, claims: list[Promised] | None) -> None:
        """Give a running gang other claims; without claims it goes on as opportunistic."""
        for gpu in gang.gpus:
            if gpu.taker is None:
                self.release(gpu)
        gang.claims = claims
        for gpu in gang.gpus:
            if gpu.taker is None:
                self.hold(gpu, gang)

    def hold(self, gpu: Physical, gang: Gang) -> None:
        """Count a GPU as held by a gang, and bind it to the promised GPU that it serves."""
        gpu.count(gang.priority, 1)
        claim = gang.claim(gpu)
        if claim is None:
            return
        claim.count(gang.priority, 1)
        at: Promised | None = claim
        cell: Physical | None = gpu
        while at is not None and cell is not None and at.bound is None:
            at.bound, cell.promise = cell, at
            if at.parent is None:
                free = self._free[cell.pool.name]
                free.take(cell)
                free.owed[cell.level] -= 1
            at, cell = at.parent, cell.parent

    def release(self, gpu: Physical) -> None:
        """Undo `hold`, for whichever gang."""
        priority = gpu.priority
        gpu.count(priority, -1)
        if gpu.promise is None:
            return
        gpu.promise.count(priority, -1)
        at: Promised | None = gpu.promise
        cell: Physical | None = gpu
        while at is not None and cell is not None and not at.held and not cell.pinned:
            at.bound = cell.promise = None
            if at.parent is None:
                free = self._free[cell.pool.name]
                free.give(cell)
                free.owed[cell.level] += 1
            at, cell = at.parent, cell.parent
