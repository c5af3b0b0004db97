"""Max-min fairness in normalised throughput."""

from collections.abc import Sequence
from dataclasses import dataclass

from predictor.arrays import Floats
from predictor.errors import InputError
from solver.fidelity import Fidelity
from solver.plan import Plan, Policy, Situation
from solver.policies.contenders import Contenders
from solver.policies.filling import Filling, fill
from solver.policies.shares import run_shares

DIGITS = 5
"""Digits of shares that count if all types count as alike; a numerical tolerance below a solver's
precision."""


@dataclass(frozen=True)
class Gavel(Policy):
    """Least attained service as a linear program: maximise min_j g_j T_j(x) / (w_j p_j).

    T_j(x) = Σ_k T_jk x_jk is a job's throughput; p_j = Σ_k T_jk c_k / Σ_k c_k would be its
    throughput if its time were divided like the GPUs. Narayanan et al., Gavel (OSDI '20), section
    4.1. With a single GPU type, this is GPU time. Reactive: assumes that the current regime lasts
    to the end.

    Attributes:
        aware: 0 for the published policy without `_perf`: all GPU types count as alike.
        packed: 1 to run pairs of jobs on the same GPUs (section 4.4); `aware` then has no effect.
        filling: See `solver.policies.filling.Filling` (section 4.3); 0 solves only the program
            above.
    """

    name = "gavel"
    summary = "max-min fairness in throughput, by priority weight"
    source = "Narayanan et al., Gavel (OSDI '20), section 4.1"
    reads_forecasts = False
    work_conserving = True
    several_pools = True
    solver = "highs"

    fidelity: Fidelity = Fidelity.FAIR
    aware: float = 1.0
    packed: float = 0.0
    filling: float = 0.0

    def __post_init__(self) -> None:
        known = [float(filling) for filling in Filling]
        if self.filling not in known or (self.filling and self.packed):
            if self.filling in known:
                raise InputError("parameters.packed", "packed=1 needs filling=0", "leave one out")
            raise InputError(
                "parameters.filling", f"{self.filling:g} is unknown", "give 0, 1, 2 or 3"
            )

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        return run_shares(
            self,
            situation,
            packed=bool(self.packed),
            shuffled=not self.aware,
            promised=True,
        )

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`."""
        ignores_types = not (self.aware or self.packed)
        jobs = jobs.ignore_types() if ignores_types else jobs
        weights = _weights(jobs)
        if self.filling:
            shares = fill(jobs, weights, Filling(int(self.filling)))
        else:
            shares = jobs.best(floor_weights=weights)
        # On types that count as alike, only rounding errors would distinguish equal jobs.
        return (shares.round(DIGITS) if ignores_types else shares), ()


def _weights(jobs: Contenders) -> Floats:
    proportional = jobs.speeds @ jobs.gpus / jobs.gpus.sum()
    weights: Floats = jobs.gangs / jobs.weights / proportional
    return weights
