"""Minimum makespan."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solver.backends.interior import best_shares
from solver.fidelity import Fidelity
from solver.market import Floats
from solver.plan import Plan, Situation
from solver.policies.shares import Contenders, run_shares

SHORTEST_SECONDS, LONGEST_SECONDS = 100.0, 1e6
"""Initial bracket of the bisection, in seconds, as published."""

TOLERANCE = 1.05
"""Ratio of the bracket's ends at which the bisection stops, as published."""


@dataclass(frozen=True)
class OpenShop:
    """The open-shop makespan: the least T in which every job can run its remaining time.

    Narayanan et al., Gavel (OSDI '20), section 4.2 (minimum makespan), after Gonzalez
    and Sahni, Open shop scheduling to minimize finish time (JACM 1976); OSSP in the
    Shockwave paper (NSDI '23, section 8). T is bisected to within 5 % as published; among
    feasible shares it takes the centre. Reactive: assumes the current regime to the end.

    Attributes:
        fidelity: See `solver.policies.shares`.
    """

    name = "ossp"
    summary = "minimum makespan (open-shop scheduling)"
    source = "Narayanan et al., Gavel (OSDI '20), section 4.2; Gonzalez and Sahni (JACM 1976)"
    looks_ahead = False
    clairvoyant = False
    work_conserving = True
    solver = "highs"

    fidelity: Fidelity = Fidelity.FAIR

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        return run_shares(self, self.name, situation)

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`."""
        gpu_seconds = float(jobs.gangs @ np.maximum(jobs.seconds_left, 0.0))
        longest = float(jobs.seconds_left.max())

        def too_short(seconds: float) -> bool:
            return longest > seconds or gpu_seconds > jobs.gpus * seconds

        low, high = SHORTEST_SECONDS, LONGEST_SECONDS
        while too_short(high):
            low, high = high, 10.0 * high
        while TOLERANCE * low < high:
            middle = (low + high) / 2.0
            low, high = (middle, high) if too_short(middle) else (low, middle)
        lower = np.maximum(jobs.seconds_left / high, 0.0)
        return best_shares(jobs.gangs, jobs.gpus, lower=lower), ()
