"""Min-max finish-time fairness."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictor.arrays import Bools, Floats
from predictor.errors import InputError
from solver.fidelity import Fidelity
from solver.plan import Plan, Policy, Situation
from solver.policies.contenders import Contenders
from solver.policies.shares import run_shares

PRECISION = 1e-9
"""Relative precision of the bisection for the best ρ, a numerical tolerance."""

STEP = 1e-6
"""Relative improvement of ρ below which Dinkelbach's method stops, a numerical tolerance."""


@dataclass(frozen=True)
class Themis(Policy):
    """Minimise the worst finish-time fairness ρ.

    Mahajan et al., Themis (NSDI '20), section 3.2, as a program over shares (Narayanan et al.,
    Gavel, OSDI '20, section 4.2):

        min max_j (age_j + left_j / x_j) / (isolated_j + left_j / e_j)

    left_j is the run time left at the present speed, e_j = min(1, G / (N g_j)) an equal share, and
    isolated_j the time that the completed steps would have taken at the equal shares of their time.
    The result is the centre of the optimal face. Reactive: assumes that the current regime lasts to
    the end. Themis itself auctions GPUs as leases end; here all shares are computed at once.

    Notes: a row per job with its id, isolated_j, steps left and equal-share throughput at the last
    computation. Steps are counted at the batch size of their time, as in the published simulator,
    so a doubling counts as progress and a halving as regress. If that leaves a job past its end or
    without isolated run time, the program is not convex: every job gets its equal share and the
    last two notes are kept, so `Fidelity.REFERENCE` counts that interval twice, as published.

    Attributes:
        aware: 0 for the published policy without `_perf`: all GPU types count as alike.
        filter: f (section 3.3): only the fraction 1 − f of jobs with the worst ρ, at least one job,
            takes part; the others get the rest.
        lease_seconds: Length of a lease, during which a job keeps its GPUs (section 3.3); a round
            by default.
        packed: 1 to run pairs of jobs on the same GPUs (OSDI '20, section 4.4); `aware` then has no
            effect, and there are no leases.
    """

    name = "themis"
    summary = "min-max finish-time fairness"
    source = "Mahajan et al., Themis (NSDI '20), section 3; Gavel (OSDI '20), section 4.2"
    reads_forecasts = False
    work_conserving = True
    several_pools = True
    solver = "highs"

    fidelity: Fidelity = Fidelity.FAIR
    aware: float = 1.0
    filter: float = 0.0
    lease_seconds: float = 0.0
    packed: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.filter < 1.0:
            raise InputError(
                "parameters.filter", f"{self.filter:g} is not in [0, 1)", "give a share"
            )
        if self.packed and self.lease_seconds:
            raise InputError(
                "parameters.lease_seconds", "needs packed=0", "leave out one of the two"
            )

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        return run_shares(
            self,
            situation,
            packed=bool(self.packed),
            lease_seconds=self.lease_seconds,
            shuffled=not self.aware,
            promised=True,
        )

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`."""
        if not (self.aware or self.packed):
            jobs = jobs.ignore_types()
        by_job = {int(job): note for job, *note in jobs.notes}
        earlier = [by_job.get(job, [0.0, 0.0, 0.0]) for job in jobs.job_ids]
        shares, later = self._fairest(jobs, earlier)
        return shares, [(job, *note) for job, note in zip(jobs.job_ids, later, strict=True)]

    def _fairest(
        self, jobs: Contenders, earlier: Sequence[Sequence[float]]
    ) -> tuple[Floats, Sequence[Sequence[float]]]:
        """Return the shares and the notes on each job, given the last computation's notes."""
        isolated_rates = (jobs.rates * jobs.equal_shares).sum(axis=1)
        isolated = np.array(
            [
                before + ((steps - left) / rate if rate else 0.0)
                for (before, steps, rate), left in zip(earlier, jobs.steps_left, strict=True)
            ]
        )
        alone = isolated + jobs.steps_left / isolated_rates
        if (jobs.steps_left < 0).any() or (alone <= 0.0).any():
            if self.fidelity is Fidelity.FAIR:
                return jobs.by_row(jobs.equal_shares), earlier
            return jobs.by_row(jobs.equal_shares), [
                (done, steps, rate)
                for done, (_, steps, rate) in zip(isolated.tolist(), earlier, strict=True)
            ]
        notes = zip(
            isolated.tolist(), jobs.steps_left.tolist(), isolated_rates.tolist(), strict=True
        )
        part = self._taking_part(jobs, alone)
        if len(jobs.gpus) > 1 or jobs.rows is not None:
            return find_fairest_shares(jobs, alone, part), list(notes)
        return jobs.best(least=find_least_shares(jobs, alone, part)), list(notes)

    def _taking_part(self, jobs: Contenders, alone: Floats) -> Bools:
        """Return the fraction 1 − f of jobs with the worst ρ on equal shares, shape (jobs,)."""
        equal = (jobs.speeds * jobs.equal_shares).sum(axis=1)
        fairness = (jobs.ages + jobs.work_left / equal) / alone
        count = max(1, math.ceil((1.0 - self.filter) * len(fairness)))
        taking_part = np.zeros(len(fairness), dtype=bool)
        taking_part[np.argsort(-fairness, kind="stable")[:count]] = True
        return taking_part


def find_least_shares(jobs: Contenders, alone: Floats, taking_part: Bools) -> Floats:
    """Return the least shares of a single type that minimise the worst ρ, shape (jobs,).

    Args:
        jobs: The jobs.
        alone: Isolated run times on equal shares, in seconds, shape (jobs,).
        taking_part: Jobs whose ρ counts, shape (jobs,); the others have no lower bound.
    """

    def needed(fairness: float) -> Floats:
        time_left = fairness * alone - jobs.ages
        left = jobs.work_left
        never = np.where((left > 0.0) | (time_left < 0.0), np.inf, 0.0)
        shares = np.divide(left, time_left, out=never, where=time_left > 0.0)
        return np.where(taking_part, shares, 0.0)

    def attainable(fairness: float) -> bool:
        shares = needed(fairness)
        return bool((shares <= 1.0).all() and jobs.gangs @ shares <= jobs.gpus[0])

    low, high = 0.0, 1.0
    while not attainable(high):
        low, high = high, 2.0 * high
    while high - low > PRECISION * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if attainable(middle) else (middle, high)
    return needed(high)


def find_fairest_shares(jobs: Contenders, alone: Floats, taking_part: Bools) -> Floats:
    """Return shares of several types, or with pairs, that minimise the worst ρ.

    For a given ρ, the program maximises the common multiple of the speeds that jobs need for that
    ρ. The ρ that its shares attain is the next one, until it no longer falls (Dinkelbach's method).
    The arguments are those of `find_least_shares`.
    """
    ages, left = jobs.ages[taking_part], jobs.work_left[taking_part]
    alone = alone[taking_part]

    def attained(shares: Floats) -> float:
        speeds = jobs.work(shares)[taking_part]
        times = np.divide(left, speeds, out=np.full_like(left, np.inf), where=speeds > 0.0)
        return float(((ages + np.where(left > 0.0, times, 0.0)) / alone).max())

    shares = jobs.by_row(jobs.equal_shares)
    fairness = attained(shares)
    while True:
        weights = np.full(len(jobs.gangs), np.inf)
        time_left = np.maximum(fairness * alone - ages, 0.0)
        weights[taking_part] = np.divide(
            time_left, left, out=np.full_like(left, np.inf), where=left > 0.0
        )
        better = jobs.best(floor_weights=weights)
        before, fairness = fairness, attained(better)
        if fairness > (1.0 - STEP) * before:
            return better if fairness <= before else shares
        shares = better
