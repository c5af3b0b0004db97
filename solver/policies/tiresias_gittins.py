"""The two-dimensional Gittins index, discretised."""

from dataclasses import dataclass

import numpy as np

from solver.market import Floats, Ints
from solver.plan import Situation
from solver.policies.tiresias_las import TiresiasLas


@dataclass(frozen=True)
class TiresiasGittins(TiresiasLas):
    """In each queue, the job most likely to end soon for the GPU time that it takes.

    Gu et al., Tiresias (NSDI '19), sections 3.2.2 and 3.2.3: the queues of discretised
    2D-LAS, and inside them the highest index first. With the GPU time S of jobs
    distributed as that of the jobs that ended so far, a job that attained a has the index

        P(S − a ≤ Δ | S > a) / E[min(S − a, Δ) | S > a]

    Jobs of one index, among them those that outlived all that ended, go as in 2D-LAS; so
    do all until enough jobs have ended to learn from. Those that ended early are the short
    ones, so what is learnt is too hopeful at first.

    The published simulator averages whole sizes instead of what is left of them, holds
    GPU-seconds against seconds to find when a job falls, and reads the distribution from
    a file; this is the paper's definition.

    Attributes:
        quantum: Δ in GPU-seconds, as in the published simulator the same in all queues;
            0 for the upper threshold of the queue, as in the paper, and no end in the last.
        learn: Ended jobs before which there is no index.
        sizes: GPU times of jobs in GPU-seconds, where they are known beforehand; by
            default they are learnt.
    """

    name = "tiresias-gittins"
    summary = "the queues of tiresias-las, inside by Gittins index of GPU time, learnt"
    source = "Gu et al., Tiresias (NSDI '19), section 3.2"

    quantum: float = 3_250.0
    learn: float = 10.0
    sizes: tuple[float, ...] = ()

    def merits(self, situation: Situation, services: Floats, queues: Ints) -> Floats:
        """Gittins indices, by job."""
        sizes = self.sizes or situation.ended_gpu_seconds
        if not self.sizes and len(sizes) < max(self.learn, 1.0):
            return np.zeros(len(services))
        limits = np.array([self.first_threshold, self.second_threshold, np.inf])
        quantum = np.full(len(services), self.quantum) if self.quantum else limits[queues]
        return gittins_index(np.array(sizes), services, quantum)


def gittins_index(sizes: Floats, attained: Floats, quantum: Floats) -> Floats:
    """Gittins index of jobs under an empirical distribution of sizes.

    Args:
        sizes: GPU times of ended jobs, shape (sizes,).
        attained: GPU time of each job so far, shape (jobs,).
        quantum: Δ of each job, in the same unit, positive and maybe infinite, shape (jobs,).

    Returns:
        Index by job, shape (jobs,); 0 where no size is above what a job attained.
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
