"""Maximum total throughput."""

from collections.abc import Sequence
from dataclasses import dataclass

from predictor.errors import InputError
from solver.backends.interior import best_shares
from solver.fidelity import Fidelity
from solver.market import Floats
from solver.plan import Plan, Situation
from solver.policies.shares import Contenders, run_shares


@dataclass(frozen=True)
class MaxSumThroughput:
    """Maximise Σ_jk steps per second_jk · x_jk.

    Narayanan et al., Gavel (OSDI '20), section 4.2. Throughputs are not normalised, which
    favours models with short steps, as in the comparison of the Shockwave paper (NSDI '23,
    section 8). Reactive: assumes the current regime to the end.

    Attributes:
        fidelity: See `solver.policies.shares`.
        costed: 1 for steps per currency unit: throughputs are divided by the price of a GPU-hour of
            the type, as published in `max_sum_throughput_normalized_by_cost_perf`.
    """

    name = "mst"
    summary = "maximum sum of throughputs (MST), in steps per second"
    source = "Narayanan et al., Gavel (OSDI '20), section 4.2"
    looks_ahead = False
    clairvoyant = False
    work_conserving = True
    several_pools = True
    solver = "highs"

    fidelity: Fidelity = Fidelity.FAIR
    costed: float = 0.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        return run_shares(self, self.name, situation)

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`.

        Raises:
            InputError: A GPU type has no price, of those that are to be divided by.
        """
        value = jobs.rates
        if self.costed:
            if not jobs.prices.all():
                raise InputError(
                    "parameters.costed",
                    "a GPU type has no price to divide by",
                    "give each pool a price of a GPU-hour, as in v100:12x1@0.74",
                )
            value = value / jobs.prices
        return best_shares(jobs.gangs, jobs.gpus, jobs.speeds, value=value), ()
