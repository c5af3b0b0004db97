"""Max-min fairness in GPU time."""

from collections.abc import Sequence
from dataclasses import dataclass

from solver.backends.interior import best_shares
from solver.fidelity import Fidelity
from solver.market import Floats
from solver.plan import Plan, Situation
from solver.policies.shares import Contenders, run_shares


@dataclass(frozen=True)
class Gavel:
    """Least attained service as a linear program: maximise min_j g_j x_j / w_j.

    Narayanan et al., Gavel (OSDI '20), section 4.1, on a single GPU type (there, the
    heterogeneity-agnostic policy). Reactive: assumes the current regime to the end.

    Attributes:
        fidelity: See `solver.policies.shares`.
    """

    name = "gavel"
    summary = "max-min fairness in GPU time, by priority weight"
    source = "Narayanan et al., Gavel (OSDI '20), section 4.1"
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
        weights = jobs.gangs / jobs.weights
        return best_shares(jobs.gangs, jobs.gpus, floor_weights=weights), ()
