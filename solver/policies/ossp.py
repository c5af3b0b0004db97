"""Minimum makespan."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictor.arrays import Floats
from solver.fidelity import Fidelity
from solver.plan import Plan, Policy, Situation
from solver.policies.contenders import Contenders
from solver.policies.shares import run_shares

SHORTEST_SECONDS, LONGEST_SECONDS = 100.0, 1e6
"""Initial bracket of the bisection, in seconds, as published."""

TOLERANCE = 1.05
"""Ratio of the bracket's ends at which the bisection stops, as published."""


@dataclass(frozen=True)
class OpenShop(Policy):
    """The open-shop makespan: the least T in which every job can run its remaining time.

    Narayanan et al., Gavel (OSDI '20), section 4.2 (minimum makespan), after Gonzalez and Sahni,
    Open shop scheduling to minimize finish time (JACM 1976); OSSP in the Shockwave paper (NSDI '23,
    section 8). T is bisected to within 5 %, as published; the shares are the centre of those that
    are feasible. Reactive: assumes that the current regime lasts to the end.

    Attributes:
        aware: 0 for the published policy without `_perf`: all GPU types count as alike.
        packed: 1 to run pairs of jobs on the same GPUs (section 4.4); `aware` then has no effect.
    """

    name = "ossp"
    summary = "minimum makespan (open-shop scheduling)"
    source = "Narayanan et al., Gavel (OSDI '20), section 4.2; Gonzalez and Sahni (JACM 1976)"
    reads_forecasts = False
    work_conserving = True
    several_pools = True
    solver = "highs"

    fidelity: Fidelity = Fidelity.FAIR
    aware: float = 1.0
    packed: float = 0.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        return run_shares(self, situation, packed=bool(self.packed), shuffled=not self.aware)

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`."""
        return find_quickest_shares(jobs if self.aware or self.packed else jobs.ignore_types()), ()


def find_quickest_shares(jobs: Contenders) -> Floats:
    """Return shares with which every job does its work within 5 % of the least time for all."""
    shortest = find_least_time(jobs)
    low, high = SHORTEST_SECONDS, LONGEST_SECONDS
    while shortest > high:
        low, high = high, 10.0 * high
    while TOLERANCE * low < high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if shortest > middle else (low, middle)
    return jobs.best(least=np.maximum(jobs.work_left, 0.0) / high)


def find_least_time(jobs: Contenders) -> float:
    """Return the least T in which every job can do its remaining work, in seconds."""
    work_left = np.maximum(jobs.work_left, 0.0)
    if len(jobs.gpus) == 1 and jobs.rows is None:
        return max(float(work_left.max()), float(jobs.gangs @ work_left) / float(jobs.gpus[0]))
    if not work_left.any():
        return 0.0
    alone = work_left / jobs.speeds.max(axis=1)
    weights = np.divide(alone.max(), work_left, out=np.full_like(alone, np.inf), where=alone > 0.0)
    speeds = jobs.work(jobs.best(floor_weights=weights))
    return float(np.divide(work_left, speeds, out=alone, where=alone > 0.0).max())
