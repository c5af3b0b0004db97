"""Equal tickets."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictor.arrays import Floats
from solver.fidelity import Fidelity
from solver.plan import Plan, Policy, Situation
from solver.policies.contenders import Contenders
from solver.policies.shares import run_shares


@dataclass(frozen=True)
class GandivaFair(Policy):
    """Equal tickets for all jobs: x_j = min(1, G / N).

    Chaudhary et al., Gandiva-Fair (EuroSys '20), section 3: stride scheduling of jobs with equal
    tickets, on a single GPU type, without trading. As in the comparison of the Shockwave paper
    (NSDI '23, section 8), scale factors are ignored.
    """

    name = "gandiva-fair"
    summary = "equal tickets for all jobs"
    source = "Chaudhary et al., Gandiva-Fair (EuroSys '20), section 3"
    reads_forecasts = False
    work_conserving = True
    several_pools = True
    solver = "none"

    fidelity: Fidelity = Fidelity.FAIR

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        return run_shares(self, situation)

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`."""
        count = len(jobs.rates)
        shares = np.minimum(1.0, jobs.gpus / count)
        return np.tile(shares / max(1.0, shares.sum()), (count, 1)), ()
