"""The Volatile Fisher Market (Shockwave, NSDI '23) of the coming round, with new bids."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from predictor.arrays import Ints
from predictor.arrivals import arrivals_left
from predictor.errors import InputError
from solver.backends.choice import Solution
from solver.backends.foresight import measure_savings
from solver.backends.makespan import find_least_makespan
from solver.bidding import (
    Outlook,
    UtilityParameters,
    find_holding,
    measure_staying,
    measure_utility,
)
from solver.clearing import solve_market
from solver.guarantees import Guarantees, audit_one_type, audit_types
from solver.inventory import Inventory
from solver.market import Market
from solver.plan import Plan, Situation
from solver.shared_cluster import simulate_shared_cluster
from solver.strategy import POLICY, Bids, Strategy, make_market

LEAST_ENDING = 0.02
"""Minimum share of `ending` that counts, however long arrivals are expected to continue, so that
makespan always has some price. Chosen by hand, not swept."""

LEAST_MAKESPAN = 1e-6
"""Minimum worth of a second of makespan, in seconds of completion of all active jobs; a numerical
bound, because at 0 the program over time has no starting point."""

TAIL_SHARE = 0.7
"""JCT at which the tail begins, as a share of the longest run time plus the time for all work.
Fitted together with μ on a model of rounds, and rounded (ADR 0047)."""

LARGEST_EXPONENT = 8.0
"""Upper bound on the exponent of the gang, an engineering bound that keeps weights of gangs finite
and comparable."""


@dataclass(frozen=True)
class OneType(UtilityParameters, Strategy):
    """Bids on GPUs of one type: contribution to completion, less expected lateness.

    Attributes:
        favour: Preemption hysteresis: factor on the bids of running jobs. A preemption costs two
            restarts, and often a third when the job resumes.
        longest_level: Quantile of the forecast at which the longest job sets the horizon. It is
            below the median because too near a horizon hurries jobs a little, whereas too far a
            horizon delays long jobs until they are late.
    """

    favour: float = 1.6
    longest_level: float = 0.3

    def make_bids(self, situation: Situation, ahead: Outlook) -> Bids:
        """See `Strategy.make_bids`.

        All active work is due by the horizon: the larger of the work left per GPU and the longest
        residual run time, but not before arrivals are expected to end. After the arrivals, the
        longest job is due as soon as it can finish, so it is never delayed for long.
        """
        even = situation.fair_share
        lost = self.lost_rounds * situation.round_seconds
        level = min(int(self.longest_level * ahead.samples.shape[1]), ahead.samples.shape[1] - 1)
        longest = float(ahead.samples[:, level].max()) * (1.0 + self.blur_share / 2.0)
        work = float(ahead.gangs @ (ahead.left + lost)) / situation.inventory.gpus
        coming = arrivals_left(situation.clock_seconds, even.arrived)
        utility = measure_utility(
            ahead,
            self,
            fair=ahead.fair(),
            horizon=max(work, longest, coming),
            tail_begins=TAIL_SHARE * (float((ahead.run + ahead.left).max()) + work),
            round_seconds=situation.round_seconds,
        )
        factors = np.where(find_holding(situation, ahead), self.favour, 1.0)
        return Bids(
            market=make_market(situation, ahead, utility, factors),
            over=ahead.service - self.overdue * (ahead.run + ahead.left),
            slowness=even.contention,
        )

    def choose(self, market: Market) -> Solution | None:
        """See `Strategy.choose`."""
        return None

    def audit(self, market: Market, rows: Ints, ahead: Outlook, solution: Solution) -> Guarantees:
        """See `Strategy.audit`."""
        return audit_one_type(market, rows, ahead.budgets)


@dataclass(frozen=True)
class SeveralTypes(Strategy):
    """Bids on several GPU types: the future cost that a round there saves.

    The market is solved first and assigns jobs to types; the list begins with the chosen rows,
    followed by all others.

    Attributes:
        gang: Exponent of the gang in the worth of a completion and in the penalty of lateness.
        due_share: Due date as a share of the fair finish time, taken from an equally shared
            cluster.
        tardiness: λ: penalty if all work of a job is late by its fair time, relative to that of
            completing a job later by the mean fair time.
        ending: Worth of a second of makespan, in seconds of completion of all active jobs, scaled
            by arrivals since the oldest active job; an array counts once. It is lower while
            arrivals are expected to continue.
        paired_ending: `ending` if jobs may share GPUs: GPUs do more work with pairs, which the
            linear program over time ignores.
        stay: Minimum preemption hysteresis of bids on the GPU type that a job holds; higher if
            restarts cost more of a round.
    """

    gang: float = 0.25
    due_share: float = 0.98
    tardiness: float = 40.0
    ending: float = 0.5
    paired_ending: float = 0.45
    stay: float = 1.1

    def __post_init__(self) -> None:
        if not 0.0 <= self.gang <= LARGEST_EXPONENT:
            raise InputError(
                "parameters.gang",
                f"{self.gang:g} is not in [0, {LARGEST_EXPONENT:g}]",
                "give an exponent within",
            )

    def make_bids(self, situation: Situation, ahead: Outlook) -> Bids:
        """See `Strategy.make_bids`."""
        inventory = situation.inventory
        lost = self.lost_rounds * situation.round_seconds
        kinds = {kind: number for number, kind in enumerate(inventory.types)}
        capacities = np.array(list(inventory.capacities.values()), dtype=np.int64)
        type_of = np.array([kinds[found.gpu_type] for found in ahead.allocations])
        firsts = np.flatnonzero(np.diff(ahead.job_of, prepend=-1))
        restarts, holding = ahead.restarts(situation), find_holding(situation, ahead)
        dearer = restarts - np.minimum.reduceat(restarts, firsts)[ahead.job_of]
        dearer[holding] = 0.0
        rows = ahead.here + lost + dearer, ahead.gangs, ahead.job_of, type_of, capacities
        least = find_least_makespan(*rows, exact=False)
        cluster, memory = simulate_shared_cluster(situation, ahead, type_of)
        fair = {sharer.job_id: sharer.fair - sharer.arrival for sharer in cluster.sharers}
        budgets, gangs = ahead.budgets[firsts], ahead.gangs[firsts]
        due = np.array([fair[job.job_id] for job in situation.jobs]) / budgets
        due = np.maximum(due, 2.0 * situation.round_seconds)
        weights = budgets * gangs**self.gang
        weights /= weights.mean()
        seen = measure_savings(
            *rows,
            weights=weights,
            due=self.due_share * due - ahead.age[firsts],
            least=least,
            round_seconds=situation.round_seconds,
            lateness=self.tardiness * weights * due.mean() / due,
            makespan=self._price_makespan(situation, least),
        )
        factors = np.where(holding, measure_staying(situation, ahead, self.stay), 1.0)
        return Bids(
            market=make_market(situation, ahead, seen.saved, factors),
            over=ahead.age - self.overdue * due[ahead.job_of],
            memory=memory,
            closed=seen.closed,
        )

    def _price_makespan(self, situation: Situation, least: float) -> float:
        """Return the worth of a second of makespan, in seconds of completion of all active jobs.

        It counts all jobs that share the makespan, so it does not fall as jobs end. `least` is the
        least makespan, in seconds from now.
        """
        oldest = min(job.spec.arrival_seconds for job in situation.jobs)
        came = sum(submitted >= oldest for submitted in situation.fair_share.arrived)
        active = {job.job_id - job.spec.options.task.place for job in situation.jobs}
        ending = self.paired_ending if self.packed else self.ending
        ending *= max(came / len(active), 1.0)
        coming = arrivals_left(situation.clock_seconds, situation.fair_share.arrived)
        return max(ending * max(1.0 - coming / least, LEAST_ENDING), LEAST_MAKESPAN)

    def choose(self, market: Market) -> Solution | None:
        """See `Strategy.choose`."""
        # The decision must not depend on which other solvers are installed.
        return solve_market(market, "lagrangian" if self.backend == "auto" else self.backend)

    def audit(self, market: Market, rows: Ints, ahead: Outlook, solution: Solution) -> Guarantees:
        """See `Strategy.audit`."""
        loss = max(solution.bound - float(market.utility[rows].sum()), 0.0)
        return audit_types(market, rows, ahead.budgets, solution.prices, loss)


@dataclass(frozen=True)
class Shockwave:
    """List scheduling by bids for the coming round, certified by the round's market.

    Clusters of one GPU type and of several have one strategy each; both bound how long a job is
    postponed. `docs/market.md` derives the bids and names the workloads on which the defaults were
    chosen; the ablations of `benchmarks/market.py` remove the parts in turn.
    """

    name = POLICY
    summary = "a market of rounds: short jobs first, none late, makespan as a deadline"
    source = "Zheng et al., Shockwave (NSDI '23), with bids and forecasts of its own"
    looks_ahead = True
    clairvoyant = False
    work_conserving = True
    several_pools = True
    strategies: ClassVar[tuple[type[Strategy], type[Strategy]]] = OneType, SeveralTypes

    one_type: Strategy = OneType()
    several_types: Strategy = SeveralTypes()

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        return self._strategy(situation.inventory).plan(situation)

    def placed(self, situation: Situation) -> Plan:
        """Place only the coming round (`solver.deciding.place`)."""
        return self._strategy(situation.inventory).place(situation)

    def _strategy(self, inventory: Inventory) -> Strategy:
        return self.several_types if len(inventory.types) > 1 else self.one_type
