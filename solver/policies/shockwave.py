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
"""Least share of `ending` that counts, however long arrivals are expected to go on: the end of all
work has some price. Chosen by hand; no sweep is recorded."""

LEAST_MAKESPAN = 1e-6
"""Least worth of a second of makespan, in seconds of completion of all active jobs: at 0 the
program over time has no starting point. A numerical bound."""

TAIL_SHARE = 0.7
"""The JCT from which on a job is in the tail, as a share of the longest run time and the time for
all work together. Fitted with μ on a model of rounds, and rounded: ADR 0047."""

LARGEST_EXPONENT = 8.0
"""Bound on the exponent of the gang: weights of gangs stay finite, and comparable. An engineering
bound."""


@dataclass(frozen=True)
class OneType(UtilityParameters, Strategy):
    """Bids on GPUs of one type: contribution to completion, less expected lateness.

    Attributes:
        favour: Preemption hysteresis: factor on the bids of running jobs. A preemption costs
            two restarts, and often a third when the job resumes.
        longest_level: Quantile level of the forecast at which the longest job sets the
            horizon. Below the median: too near a horizon hurries jobs a little, too far a
            horizon delays long jobs until they are late.
    """

    favour: float = 1.6
    longest_level: float = 0.3

    def make_bids(self, situation: Situation, ahead: Outlook) -> Bids:
        """See `Strategy.make_bids`.

        All active work is due by the horizon: the larger of the work left per GPU and the longest
        residual run time, and not before arrivals are expected to end. Once they have ended, the
        longest job is due as soon as it can finish, and is never delayed for long.
        """
        even = situation.even
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

    The market is solved first, which assigns jobs to types; the list begins with the chosen rows,
    then has all others.

    Attributes:
        gang: Exponent of the gang in the worth of completing a job and in the penalty of lateness.
        due_share: Due date as a share of the fair finish time, which is that in an evenly
            shared cluster.
        tardiness: λ: penalty of all work of a job being late by its fair time, over that of
            a completion later by the mean fair time.
        ending: Worth of a second of makespan, in seconds of completion of all jobs that arrived
            since the oldest active one; an array of jobs counts once. It is less while arrivals
            are expected to go on.
        paired_ending: The same where jobs may share GPUs: the linear program over time ignores
            pairs, with which GPUs do more work.
        stay: The least preemption hysteresis of bids on the GPU type that a job holds; more where
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
        """Worth of a second of makespan, in seconds of completion of all active jobs.

        It does not fall as jobs end: all jobs that share the makespan count.

        Args:
            situation: Policy input.
            least: The least makespan, in seconds from now.
        """
        oldest = min(job.spec.arrival_seconds for job in situation.jobs)
        came = sum(submitted >= oldest for submitted in situation.even.arrived)
        active = {job.job_id - job.spec.options.task.place for job in situation.jobs}
        ending = self.paired_ending if self.packed else self.ending
        ending *= max(came / len(active), 1.0)
        coming = arrivals_left(situation.clock_seconds, situation.even.arrived)
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
    """List scheduling by bids for the coming round, whose market certifies it.

    A cluster of one GPU type and one of several have a strategy each; both bound how long a job is
    postponed. `docs/market.md` derives the bids and says on which workloads the defaults were
    chosen; the ablations of `benchmarks/market.py` remove the parts in turn.

    Attributes:
        one_type: The strategy on GPUs of one type.
        several_types: The strategy on several GPU types.
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
        """The coming round alone, see `solver.deciding.place`."""
        return self._strategy(situation.inventory).place(situation)

    def _strategy(self, inventory: Inventory) -> Strategy:
        return self.several_types if len(inventory.types) > 1 else self.one_type
