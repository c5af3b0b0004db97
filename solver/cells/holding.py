"""The gangs that hold GPUs; every change of a binding happens here."""

from collections.abc import Mapping, Sequence

from solver.cells.free import FreeCells
from solver.cells.tree import HeldGang, Physical, Promised


class Holdings:
    """The gangs that hold GPUs, and the resulting bindings of cells.

    A promised cell is bound while a gang holds a GPU of it; the physical cell that serves it is
    then not free.

    Attributes:
        gangs: Gangs by name, in the order in which they began.
    """

    def __init__(self, free: Mapping[str, FreeCells]) -> None:
        self._free = free
        self.gangs: dict[str, HeldGang] = {}

    def start(self, gang: HeldGang) -> None:
        """Start a gang on its GPUs, which no other gang holds."""
        self._hold_all(gang)
        for gpu in gang.gpus:
            gpu.user = gang
        self.gangs[gang.request.name] = gang

    def end(self, gang: HeldGang) -> None:
        """Free a gang's GPUs."""
        for gpu in gang.gpus:
            gpu.user = None
            self._release(gpu)
        del self.gangs[gang.request.name]

    def demote(self, gang: HeldGang) -> None:
        """Let a gang continue as opportunistic, without claims to promised GPUs."""
        for gpu in gang.gpus:
            self._release(gpu)
        gang.claims = None
        self._hold_all(gang)

    def claim(self, gang: HeldGang, number: int, claim: Promised) -> None:
        """Let a gang's GPU serve a promised one instead of opportunistic use."""
        gpu = gang.gpus[number]
        self._release(gpu)
        self._hold(gpu, claim)

    def _hold_all(self, gang: HeldGang) -> None:
        claims: Sequence[Promised | None] = gang.claims or [None] * len(gang.gpus)
        for gpu, claim in zip(gang.gpus, claims, strict=True):
            self._hold(gpu, claim)

    def _hold(self, gpu: Physical, claim: Promised | None) -> None:
        if claim is None:
            gpu.count(1)
            return
        claim.count(1)
        at: Promised | None = claim
        cell: Physical | None = gpu
        while at is not None and cell is not None and at.bound is None:
            at.bound, cell.promise = cell, at
            if at.parent is None:
                free = self._free[cell.pool.name]
                free.take(cell)
                free.owed[cell.level] -= 1
            at, cell = at.parent, cell.parent

    def _release(self, gpu: Physical) -> None:
        if gpu.promise is None:
            gpu.count(-1)
            return
        gpu.promise.count(-1)
        at: Promised | None = gpu.promise
        cell: Physical | None = gpu
        while at is not None and cell is not None and not at.used:
            at.bound = cell.promise = None
            if at.parent is None:
                free = self._free[cell.pool.name]
                free.give(cell)
                free.owed[cell.level] += 1
            at, cell = at.parent, cell.parent
