"""Maximum total throughput."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from predictor.arrays import Floats
from predictor.errors import InputError
from solver.fidelity import Fidelity
from solver.inventory import Pool
from solver.plan import Plan, Policy, Situation
from solver.policies.contenders import Contenders
from solver.policies.shares import run_shares

SLACK = 1e-5
"""Share by which a job may miss its deadline's speed, so that a program whose deadlines can just be
met is well within a solver's precision; a numerical tolerance."""


@dataclass(frozen=True)
class MaxSumThroughput(Policy):
    """Maximise Σ_jk steps per second_jk · x_jk.

    Narayanan et al., Gavel (OSDI '20), section 4.2. Throughputs are not normalised, which favours
    models with short steps, as in the comparison of the Shockwave paper (NSDI '23, section 8).
    Reactive: assumes that the current regime lasts to the end.

    Attributes:
        costed: 1 for steps per currency unit: throughputs are divided by the type's price per
            GPU-hour, as published in `max_sum_throughput_normalized_by_cost_perf`.
        deadlines: 1 to require Σ_k steps per second_jk · x_jk ≥ steps left / time left of jobs with
            a future deadline, as published in `max_sum_throughput_normalized_by_cost_perf_SLOs`.
            `find_promised_speeds` chooses among deadlines that cannot all be met. With
            `Fidelity.FAIR` the shares are then computed in each round, because rounds follow shares
            only on average.
        packed: 1 to run pairs of jobs on the same GPUs (section 4.4), each worth the steps of both.
    """

    name = "mst"
    summary = "maximum sum of throughputs (MST), in steps per second"
    source = "Narayanan et al., Gavel (OSDI '20), section 4.2"
    reads_forecasts = False
    work_conserving = True
    several_pools = True
    solver = "highs"

    fidelity: Fidelity = Fidelity.FAIR
    costed: float = 0.0
    deadlines: float = 0.0
    packed: float = 0.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`.

        Raises:
            InputError: A GPU type has no price.
        """
        if self.costed:
            check_priced(situation.inventory.pools)
        due = any(job.spec.options.deadline_seconds for job in situation.jobs)
        again = bool(self.deadlines) and due and self.fidelity is Fidelity.FAIR
        return run_shares(self, situation, packed=bool(self.packed), again=again)

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`."""
        value = jobs.row_rates / jobs.prices if self.costed else jobs.row_rates
        least = (
            (1.0 - SLACK) * find_promised_speeds(jobs, self.fidelity) if self.deadlines else None
        )
        return jobs.best(value=value, least=least), ()


def check_priced(pools: Iterable[Pool]) -> None:
    """Check that all pools have a price to divide throughputs by.

    Raises:
        InputError: A pool has no price.
    """
    for pool in pools:
        if not pool.price:
            raise InputError(
                "parameters.costed",
                f"GPUs of type {pool.gpu_type!r} have no price to divide by",
                "give each pool a price of a GPU-hour, as in v100:12x1@0.74",
            )


def find_promised_speeds(jobs: Contenders, fidelity: Fidelity) -> Floats:
    """Return the minimum speeds that meet the deadlines that count, in work per second, (jobs,).

    All deadlines count if they can be met together. Otherwise none counts in Gavel's published
    code. `Fidelity.FAIR` leaves out deadlines that a job would miss even alone; of the others, as
    many count, earliest first, as can be met together. Jobs then aim to end a round before their
    deadlines, or as fast as they can. The speed is 0 where no deadline counts.
    """
    asked = _speeds(jobs, jobs.time_left)
    if fidelity is Fidelity.REFERENCE:
        return asked if _can_be_met(jobs, asked) else np.zeros_like(asked)
    fastest = jobs.speeds.max(axis=1)
    within = np.maximum(jobs.time_left - jobs.round_seconds, 1.0)
    early = np.minimum(_speeds(jobs, within), fastest)
    asked = np.where((asked > 0.0) & (asked <= fastest), early, 0.0)
    order = [job for job in np.argsort(jobs.time_left, kind="stable").tolist() if asked[job]]
    met, missed = 0, len(order) + 1  # numbers of first deadlines that can, and cannot, be met

    def first(count: int) -> Floats:
        return np.where(np.isin(np.arange(len(asked)), order[:count]), asked, 0.0)

    tried = len(order)
    while met + 1 < missed:
        met, missed = (tried, missed) if _can_be_met(jobs, first(tried)) else (met, tried)
        tried = (met + missed) // 2
    return first(met)


def _speeds(jobs: Contenders, time_left: Floats) -> Floats:
    """Return the speeds that end jobs within these times; 0 for jobs without time or work left."""
    due = (time_left > 0.0) & (jobs.work_left > 0.0)
    return np.divide(jobs.work_left, time_left, out=np.zeros_like(time_left), where=due)


def _can_be_met(jobs: Contenders, asked: Floats) -> bool:
    """Return whether all jobs can have their speeds at once, within half the slack."""
    if not asked.any():
        return True
    weights = np.divide(1.0, asked, out=np.full_like(asked, np.inf), where=asked > 0.0)
    speeds = jobs.work(jobs.best(floor_weights=weights))
    return bool((speeds >= (1.0 - SLACK / 2.0) * asked).all())
