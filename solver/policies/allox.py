"""Minimum average JCT by matching."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictor.arrays import Floats, Ints
from solver.fidelity import Fidelity
from solver.plan import Plan, Policy, Situation
from solver.policies.contenders import Contenders
from solver.policies.shares import run_shares

LEAST_RATE = 1e-10
"""Replaces a throughput of 0 so that matchings avoid it, as published; a numerical bound."""


@dataclass(frozen=True)
class AlloX(Policy):
    """Minimum-cost matching of jobs to GPUs and positions in their queues.

    Le et al., AlloX (EuroSys '20), sections 3.1 and 3.3: a job at position k from the end of a
    GPU's queue adds k times its run time there to the sum of completion times, so a bipartite
    matching of jobs to (GPU, k) minimises the sum. Jobs with an exclusive GPU keep it. To avoid
    starvation, only the oldest of the other jobs are matched: a fraction α, but at least one per
    free GPU. The head of each queue gets x_j = 1 / g_j. The paper has 1-GPU jobs only; as in the
    comparison of the Shockwave paper (NSDI '23, section 8), a gang is matched like a single GPU,
    and is never settled. A job keeps its last share until it heads a queue again. Reactive: assumes
    that the current regime lasts to the end.

    Attributes:
        alpha: α, the fraction of the oldest jobs that are matched; the default is that of the runs
            published with the Shockwave paper.
    """

    name = "allox"
    summary = "minimum average JCT by matching jobs to places in GPU queues"
    source = "Le et al., AlloX (EuroSys '20), sections 3.1 and 3.3"
    reads_forecasts = False
    work_conserving = True
    several_pools = True
    solver = "scipy"

    fidelity: Fidelity = Fidelity.FAIR
    alpha: float = 0.2

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        return run_shares(self, situation)

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`."""
        shares = jobs.shares.copy()
        settled = (shares == 1.0).any(axis=1)
        unsettled = np.flatnonzero(~settled)
        # After nodes went out of service, there may be more settled jobs than GPUs.
        free = np.maximum(jobs.gpus - shares[settled].sum(axis=0), 0.0).astype(int)
        oldest = unsettled[np.argsort(-jobs.ages[unsettled], kind="stable")]
        oldest = oldest[: max(int(self.alpha * len(oldest)), int(free.sum()))]
        seconds = jobs.steps_left[oldest, None] / np.maximum(jobs.rates[oldest], LEAST_RATE)
        for kind, heads in enumerate(match_queue_heads(seconds, jobs.ages[oldest], free)):
            for job in oldest[heads].tolist():
                shares[job] = 0.0
                shares[job, kind] = 1.0 / jobs.gangs[job]
        return shares, ()


def match_queue_heads(seconds: Floats, ages: Floats, free: Ints) -> list[list[int]]:
    """Return the heads of queues, by type and queue, that minimise the sum of completion times.

    Args:
        seconds: Residual run times on each GPU type, shape (jobs, types).
        ages: Seconds since arrival, shape (jobs,).
        free: GPUs of each type, each with a queue, shape (types,).
    """
    from scipy.optimize import linear_sum_assignment  # imported late: takes 0.5 s, rarely needed

    kinds = np.repeat(np.arange(len(free)), free)
    queues = len(kinds)
    if not len(seconds) or not queues:
        return [[] for _ in free]
    # Bounds the queues: some queue is no longer than the mean, and moving a job to its end slows
    # that job by at most `slower`.
    usable = seconds[:, free > 0]
    slower = float((usable.max(axis=1) / np.maximum(usable.min(axis=1), LEAST_RATE)).max())
    depth = int(min(len(seconds), -(-len(seconds) // queues) * max(slower, 1.0)))
    places = np.repeat(np.arange(1, depth + 1), queues)
    times = seconds[:, np.tile(kinds, depth)]

    rows, columns = linear_sum_assignment(times * places + ages[:, None])
    from_the_end, queue = np.divmod(columns, queues)
    first: dict[int, tuple[int, int]] = {}
    for row, depth_of_row, line in zip(
        rows.tolist(), from_the_end.tolist(), queue.tolist(), strict=True
    ):
        first[line] = max(first.get(line, (-1, -1)), (depth_of_row, row))
    heads: list[list[int]] = [[] for _ in free]
    for line in sorted(first):
        heads[kinds[line]].append(first[line][1])
    return heads
