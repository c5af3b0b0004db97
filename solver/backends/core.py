"""Solve the core of the count problem at a price by dynamic programming.

At a price λ, a count n of a job has a reduced loss d_j(n) ≥ 0 against the job's best count,
and an idle GPU-round has the loss λ. Optimal counts minimise the total loss. A job keeps its
best count if every other count loses more than the incumbent plan. The dynamic programme
covers the remaining jobs, the *core* (Balas and Zemel, 1980), over the GPU-rounds they use.
"""

import numpy as np

from predictor.arrays import Floats, Ints

STATES = 1_000_000
"""Bound on effort: states of the dynamic programme, counts × GPU-rounds. An engineering bound on
memory and time, not swept."""


def solve_core(
    losses: Floats, gangs: Ints, capacity: int, price: float, *, most_loss: float, options: int
) -> tuple[Ints, bool]:
    """Return the counts within capacity with the least total loss over the core.

    Args:
        losses: d_j(n), shape (jobs, T + 1), inf where n is not allowed; the smallest counts
            without loss must fit the capacity together.
        gangs: g_j, shape (jobs,).
        capacity: C, GPU-rounds.
        price: λ, the loss of an idle GPU-round.
        most_loss: Upper bound on the total loss of counts that improve on the incumbent.
        options: Maximum number of counts in the core besides the best counts.

    Returns:
        Counts, shape (jobs,), and whether no other counts can improve on both these and the
        incumbent.
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
        if int(allowed.sum(axis=1) @ (reach + 1)) <= STATES or len(chosen) < 2:
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
    """Return the least counts without loss, raised to the largest, widest first, if they fit."""
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
    """Return one count per job, with the least total loss within `spare` GPU-rounds.

    `options` are (GPU-rounds, loss, count) by job; `reach` are GPU-rounds that the jobs up to each
    use.
    """
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
