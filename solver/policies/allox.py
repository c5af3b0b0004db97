"""Minimum average JCT by matching."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solver.fidelity import Fidelity
from solver.market import Floats
from solver.plan import Plan, Situation
from solver.policies.shares import Contenders, run_shares


@dataclass(frozen=True)
class AlloX:
    """Minimum-cost matching of jobs to GPUs and positions in their queues.

    Le et al., AlloX (EuroSys '20), sections 3.1 and 3.3: a job at position k from the end of
    a GPU's queue adds k times its run time to the sum of completion times, so the minimum
    is a bipartite matching of jobs to (GPU, k). Jobs with an exclusive GPU keep it. Against
    starvation only the oldest of the others are matched: a fraction α, but at least as many
    as there are free GPUs. The head of each queue gets x_j = 1 / g_j. The paper has jobs of
    a single GPU; as in the comparison of the Shockwave paper (NSDI '23, section 8), a gang
    is matched as a single GPU, and is never settled. A job keeps its last share until it
    heads a queue again. Reactive: assumes the current regime to the end.

    Attributes:
        fidelity: See `solver.policies.shares`.
        alpha: α, the fraction of the oldest jobs that are matched.
    """

    name = "allox"
    summary = "minimum average JCT by matching jobs to places in GPU queues"
    source = "Le et al., AlloX (EuroSys '20), sections 3.1 and 3.3"
    looks_ahead = False
    clairvoyant = False
    work_conserving = True
    solver = "scipy"

    fidelity: Fidelity = Fidelity.FAIR
    alpha: float = 0.2

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        return run_shares(self, self.name, situation)

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`."""
        shares = np.array([max(account.share, 0.0) for account in jobs.accounts])
        unsettled = np.flatnonzero(shares != 1.0)
        free = jobs.gpus - (len(shares) - len(unsettled))
        oldest = unsettled[np.argsort(-jobs.ages[unsettled], kind="stable")]
        oldest = oldest[: max(int(self.alpha * len(oldest)), free)]
        for job in oldest[first_in_line(jobs.seconds_left[oldest], jobs.ages[oldest], free)]:
            shares[job] = 1.0 / jobs.gangs[job]
        return shares, ()


def first_in_line(seconds: Floats, ages: Floats, queues: int) -> list[int]:
    """Heads of the queues in a matching with the least sum of completion times.

    Args:
        seconds: Residual run times, shape (jobs,).
        ages: Seconds since arrival, shape (jobs,).
        queues: Number of queues.

    Returns:
        Indices of jobs, by queue.
    """
    from scipy.optimize import linear_sum_assignment  # half a second that others need not wait

    if not len(seconds) or not queues:
        return []
    depth = -(-len(seconds) // queues)  # no optimum has a longer queue
    places = np.repeat(np.arange(1, depth + 1), queues)

    rows, columns = linear_sum_assignment(seconds[:, None] * places + ages[:, None])
    from_the_end, queue = np.divmod(columns, queues)
    first: dict[int, tuple[int, int]] = {}
    for row, depth_of_row, line in zip(
        rows.tolist(), from_the_end.tolist(), queue.tolist(), strict=True
    ):
        first[line] = max(first.get(line, (-1, -1)), (depth_of_row, row))
    return [first[line][1] for line in sorted(first)]
