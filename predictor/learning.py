"""Updates of the history with a finished job: its course, and what it says of the prior."""

from dataclasses import replace

import numpy as np

from predictor.belief import Belief
from predictor.durations import with_share
from predictor.history import KEPT, History, course
from predictor.posterior import COMPONENTS, PSEUDO_COUNTS, evidence, is_settled, sequences
from predictor.throughput import Throughput


def learned(history: History, belief: Belief, throughput: Throughput, seed: int) -> History:
    """The history with another finished job.

    Adds its course, and its final posterior over mixture components to their counts; of a timed
    job, the share of its limit that it took.

    Args:
        history: The history before the job finished.
        belief: The job's observed trajectory.
        throughput: Throughput model.
        seed: Seed of the draws from the prior.
    """
    if belief.spec.timed:
        return replace(history, shares=with_share(history.shares, belief))
    mode, counts = belief.spec.mode, dict(history.counts)
    courses = (*history.courses.get(mode, ()), course(belief, throughput))[-KEPT:]
    job = evidence(belief, throughput, history)
    if not is_settled(evidence(Belief(belief.spec), throughput, history), throughput):
        posterior = sequences([job], throughput, history, seed)
        components = np.bincount(COMPONENTS, posterior.weights[0], len(PSEUDO_COUNTS))
        counts[mode] = tuple((components + counts.get(mode, 0.0)).tolist())
    return History({**history.courses, mode: courses}, counts, history.shares)
