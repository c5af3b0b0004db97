"""The two-dimensional Gittins index, discretised."""

from dataclasses import dataclass

import numpy as np

from predictor.arrays import Floats, Ints
from solver.plan import Situation
from solver.policies.tiresias_las import TiresiasLas


@dataclass(frozen=True)
class TiresiasGittins(TiresiasLas):
    """The queues of discretised 2D-LAS, each ordered by Gittins index of GPU time.

    Gu et al., Tiresias (NSDI '19), sections 3.2.2 and 3.2.3. If the total GPU time S of jobs is
    distributed like that of ended jobs, a job of attained service a has the index

        P(S − a ≤ Δ | S > a) / E[min(S − a, Δ) | S > a]

    Ties are broken as in 2D-LAS. All jobs tie until enough jobs have ended to estimate the
    distribution, and so do jobs beyond its support. Short jobs end first, so early estimates are
    biased towards them.

    This is the paper's definition. The published simulator averages whole instead of residual
    sizes, compares GPU-seconds with seconds to find demotions, and reads the distribution from a
    file.

    Attributes:
        quantum: Δ in GPU-seconds, in all queues, as in the published simulator; 0 for the upper
            threshold of the queue, as in the paper, unbounded in the last queue.
        learn: Ended jobs before there is an index. Chosen by hand, not swept.
        sizes: Known distribution: GPU times of jobs in GPU-seconds; by default learnt from ended
            jobs.
    """

    name = "tiresias-gittins"
    summary = "the queues of tiresias-las, inside by Gittins index of GPU time, learnt"
    source = "Gu et al., Tiresias (NSDI '19), section 3.2"
    reads_forecasts = False

    quantum: float = 3_250.0
    learn: float = 10.0
    sizes: tuple[float, ...] = ()

    def merits(self, situation: Situation, services: Floats, queues: Ints) -> Floats:
        """Return the Gittins index of each job, shape (jobs,)."""
        sizes = self.sizes or situation.ended_gpu_seconds
        if not self.sizes and len(sizes) < max(self.learn, 1.0):
            return np.zeros(len(services))
        limits = np.array([self.first_threshold, self.second_threshold, np.inf])
        quantum = np.full(len(services), self.quantum) if self.quantum else limits[queues]
        return gittins_index(np.array(sizes), services, quantum)


def gittins_index(sizes: Floats, attained: Floats, quantum: Floats) -> Floats:
    """Return the Gittins index of jobs under an empirical distribution of sizes, shape (jobs,).

    The index is 0 where no size exceeds the attained GPU time.

    Args:
        sizes: GPU times of ended jobs, shape (sizes,).
        attained: Attained GPU time of each job, shape (jobs,).
        quantum: Δ of each job, in the same unit, positive or infinite, shape (jobs,).
    """
    ordered = np.sort(sizes)
    sums = np.append(0.0, np.cumsum(ordered))
    above = np.searchsorted(ordered, attained, side="right")
    beyond = np.searchsorted(ordered, attained + quantum, side="right")
    ending, going_on = beyond - above, len(ordered) - beyond
    cut = going_on * np.where(going_on, quantum, 0.0)
    spent = sums[beyond] - sums[above] - ending * attained + cut
    index: Floats = np.divide(ending, spent, out=np.zeros(len(attained)), where=spent > 0.0)
    return index
