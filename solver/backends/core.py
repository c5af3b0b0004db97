"""Counts at a price, made to fit the capacity: a small exact search where it matters.

At a price λ each count n of a job loses something, d_j(n) ≥ 0, against the job's best, and
each GPU-round that stays idle loses λ. The best counts are those with the least loss in
all. Jobs whose every other count loses more than a plan at hand does keep their best; the
few others, the *core* (Balas and Zemel, 1980), go through a dynamic programme over the
GPU-rounds that they use.
"""

import numpy as np

from solver.market import Floats, Ints

CELLS = 1_000_000
"""Bound on effort: options times GPU-rounds that the dynamic programme goes through."""


def settle(
    losses: Floats,
    gangs: Ints,
    capacity: int,
    price: float,
    *,
    most_loss: float,
    options: int,
) -> tuple[Ints, bool]:
    """Counts within capacity of little loss.

    Args:
        losses: d_j(n), shape (jobs, T + 1), inf where n is not allowed; the smallest n
            that loses nothing must fit the capacity for all jobs together.
        gangs: g_j, shape (jobs,).
        capacity: C, GPU-rounds.
        price: λ, lost for each GPU-round that stays idle.
        most_loss: Counts that lose more in all than this are of no interest.
        options: How many counts other than the best are considered at most.

    Returns:
        Counts, shape (jobs,), and whether no others lose less or all lose too much.
    """
    counts = _filled(losses, gangs, capacity)
    flat = losses.ravel()
    others = np.flatnonzero((flat <= most_loss) & np.isfinite(flat))
    width = losses.shape[1]
    others = others[others % width != counts[others // width]]
    ranked = others[np.argsort(flat[others], kind="stable")]
    chosen = ranked[:options]
    while True:
        core = np.unique(chosen // width)
        allowed = np.zeros((len(core), width), dtype=bool)
        allowed[np.searchsorted(core, chosen // width), chosen % width] = True
        allowed[np.arange(len(core)), counts[core]] = True
        least, largest = allowed.argmax(axis=1), width - 1 - allowed[:, ::-1].argmax(axis=1)
        spare = capacity - int(gangs @ counts) + int(gangs[core] @ (counts[core] - least))
        reach = np.minimum(np.cumsum(gangs[core] * (largest - least)), spare)
        if int(allowed.sum(axis=1) @ (reach + 1)) <= CELLS or len(chosen) < 2:
            break
        chosen = chosen[: len(chosen) // 2]
    table = [
        [(int(g * (n - low)), float(losses[job, n]), int(n)) for n in np.flatnonzero(row)]
        for job, g, low, row in zip(
            core.tolist(), gangs[core].tolist(), least.tolist(), allowed, strict=True
        )
    ]
    counts[core] = _least_loss(table, reach.tolist(), spare, price)
    return counts, len(chosen) == len(ranked)


def _filled(losses: Floats, gangs: Ints, capacity: int) -> Ints:
    """The least counts that lose nothing, then the largest such, widest first, that fit."""
    free = losses <= 0.0
    least: Ints = free.argmax(axis=1)
    largest = losses.shape[1] - 1 - free[:, ::-1].argmax(axis=1)
    spare = capacity - int(gangs @ least)
    more = (gangs * (largest - least)).tolist()
    for job in sorted(np.flatnonzero(largest > least).tolist(), key=lambda job: -more[job]):
        if more[job] <= spare:
            spare -= more[job]
            least[job] = largest[job]
    return least


def _least_loss(
    options: list[list[tuple[int, float, int]]], reach: list[int], spare: int, price: float
) -> list[int]:
    """One option (GPU-rounds, loss, count) a job, of least loss within `spare` GPU-rounds."""
    loss, taken = np.zeros(1), []
    for choices, most in zip(options, reach, strict=True):
        best = np.full(most + 1, np.inf)
        pick = np.zeros(most + 1, dtype=np.int64)
        for number, (use, lost, _) in enumerate(choices):
            part = loss[: max(most + 1 - use, 0)] + lost
            here = slice(use, use + len(part))
            better = part < best[here]
            best[here][better] = part[better]
            pick[here][better] = number
        loss = best
        taken.append(pick)
    at = int((loss + price * (spare - np.arange(len(loss)))).argmin())
    counts = []
    for choices, pick in zip(options[::-1], taken[::-1], strict=True):
        use, _, count = choices[int(pick[at])]
        at -= use
        counts.append(count)
    return counts[::-1]
