"""Restore running gangs to their promised cells, after a restart or in another layout."""

from collections.abc import Sequence

from predictor.errors import InputError
from solver.cells.gangs import CellRequest, RunningGang
from solver.cells.ground import Ground
from solver.cells.holding import Holdings
from solver.cells.tree import HeldGang, Physical, Promised


def restore(running: RunningGang, ground: Ground, holdings: Holdings) -> None:
    """Restore a running gang; if it no longer fits the promises, it continues as opportunistic.

    Removed GPUs do not count.

    Raises:
        InputError: Its name or one of its GPUs is taken.
    """
    request = running.request
    if request.name in holdings.gangs:
        raise InputError(request.name, "two gangs have this name", "restore each once")
    pairs = [
        (ground.slots[slot], level)
        for slots, levels in zip(running.slots, running.levels, strict=True)
        for slot, level in zip(slots, levels, strict=True)
        if slot in ground.slots
    ]
    for gpu, _ in pairs:
        if gpu.user is not None:
            place = f"GPU {gpu.gpu} of node {gpu.nodes[0]} is held already"
            raise InputError(request.name, place, "restore each GPU once")
    gang = HeldGang(request, running, [gpu for gpu, _ in pairs], None)
    holdings.start(gang)
    claims: list[Promised] = []
    for number, (gpu, level) in enumerate(pairs):
        claim = _claim(gpu, level, request, ground)
        if claim is None:
            holdings.demote(gang)
            return
        claims.append(claim)
        holdings.claim(gang, number, claim)
    gang.claims = claims


def _claim(gpu: Physical, level: str, request: CellRequest, ground: Ground) -> Promised | None:
    """Return a promised GPU of the tenant that a GPU can serve, or None."""
    names = [known.name for known in gpu.pool.levels]
    if not request.guaranteed or level not in names:
        return None
    whole = names.index(level)
    roots = ground.promised.get((request.tenant, gpu.pool.name), [])
    candidates: Sequence[Promised] = [root for root in roots if root.level == whole]
    claim: Promised | None = None
    for at in range(whole, -1, -1):
        claim = _serves(gpu.above(at), candidates, ground)
        if claim is None:
            return None
        candidates = claim.children
    return claim


def _serves(cell: Physical, candidates: Sequence[Promised], ground: Ground) -> Promised | None:
    """Return the promised cell that a physical one serves, or the first one that it could serve."""
    if cell.promise is not None:
        return cell.promise if cell.promise in candidates else None
    first = next((promised for promised in candidates if promised.bound is None), None)
    if first is not None and first.parent is None:
        free = ground.free[cell.pool.name]
        whole = free.whole(cell)
        if whole is None or not free.safe(cell.level, whole.level):
            return None
    return first
