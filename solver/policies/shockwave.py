"""The Volatile Fisher Market (Shockwave, NSDI '23) of the coming round, with new bids."""

from dataclasses import dataclass

import numpy as np

from predictor.arrays import Ints
from predictor.arrivals import arrivals_left
from solver.backends.choice import Solution
from solver.backends.foresight import measure_savings
from solver.backends.makespan import find_least_makespan
from solver.bidding import (
    Outlook,
    find_holding,
    measure_staying,
    measure_unfair_jct,
    measure_utility,
)
from solver.clearing import solve_market
from solver.even_cluster import UNKNOWN
from solver.guarantees import Guarantees, audit_one_type, audit_types
from solver.inventory import Inventory
from solver.market import Market
from solver.plan import Plan, Situation
from solver.strategy import LOST_ROUNDS, POLICY, Bids, Parameters, Strategy, make_market

GANG = 0.25
"""Exponent of the gang in the worth of a completion and in the penalty of lateness, on several GPU
types."""

LATE = 1.6
"""Penalty if all work of a job is late by its fair time, relative to that of completing a job later
by the mean fair time, on several GPU types; per unit of `lateness`."""

ENDING, PAIRED_ENDING = 0.56, 0.5
"""Worth of a second of makespan at a `fairness` of 0, in seconds of completion of all active jobs,
without pairs and with pairs: GPUs do more work with pairs, which the linear program over time
ignores."""

LEAST_ENDING = 0.02
"""Minimum share of the worth of makespan that counts, however long arrivals are expected to
continue. Chosen by hand, not swept."""

LEAST_MAKESPAN = 1e-6
"""Minimum worth of a second of makespan, in seconds of completion of all active jobs; a numerical
bound, because at 0 the program over time has no starting point."""


@dataclass(frozen=True)
class OneType(Strategy):
    """Bids on GPUs of one type: contribution to completion, and the lateness that is avoided."""

    def make_bids(self, situation: Situation, ahead: Outlook) -> Bids:
        """See `Strategy.make_bids`.

        The horizon lies between the least makespan of the active jobs and their last end in the
        even cluster, but not before arrivals are expected to end. Jobs without an end there do
        not count.
        """
        asked, seconds = self.parameters, situation.round_seconds
        work = float(ahead.gangs @ (ahead.left + LOST_ROUNDS * seconds)) / situation.inventory.gpus
        least = max(work, float(ahead.left.max()))
        known = ahead.fair < UNKNOWN / 2
        last = max(float((ahead.fair - ahead.age).max(where=known, initial=0.0)), least)
        coming = arrivals_left(situation.clock_seconds, situation.arrivals)
        unfair = measure_unfair_jct(situation, ahead)
        utility = measure_utility(
            ahead,
            unfair=unfair,
            fairness=asked.fairness,
            lateness=asked.lateness,
            horizon=max(least + asked.fairness * (last - least), coming),
            round_seconds=seconds,
        )
        staying = measure_staying(situation, ahead, asked.stay)
        factors = np.where(find_holding(situation, ahead), staying, 1.0)
        return Bids(
            market=make_market(situation, ahead, utility, factors),
            over=ahead.age - asked.overdue * unfair,
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
    """

    def make_bids(self, situation: Situation, ahead: Outlook) -> Bids:
        """See `Strategy.make_bids`."""
        asked, inventory = self.parameters, situation.inventory
        lost = LOST_ROUNDS * situation.round_seconds
        kinds = {kind: number for number, kind in enumerate(inventory.types)}
        capacities = np.array(list(inventory.capacities.values()), dtype=np.int64)
        type_of = np.array([kinds[found.gpu_type] for found in ahead.allocations])
        firsts = np.flatnonzero(np.diff(ahead.job_of, prepend=-1))
        restarts, holding = ahead.restarts(situation), find_holding(situation, ahead)
        dearer = restarts - np.minimum.reduceat(restarts, firsts)[ahead.job_of]
        dearer[holding] = 0.0
        rows = ahead.here + lost + dearer, ahead.gangs, ahead.job_of, type_of, capacities
        least = find_least_makespan(*rows, exact=False)
        budgets, gangs = ahead.budgets[firsts], ahead.gangs[firsts]
        due = measure_unfair_jct(situation, ahead)[firsts]
        weights = budgets * gangs**GANG
        weights /= weights.mean()
        usual = due.mean(where=due < UNKNOWN / 2) if due.min() < UNKNOWN / 2 else due.mean()
        seen = measure_savings(
            *rows,
            weights=weights,
            due=due - ahead.age[firsts],
            least=least,
            round_seconds=situation.round_seconds,
            lateness=LATE * asked.lateness * weights * usual / due,
            makespan=self._price_makespan(situation, least),
        )
        factors = np.where(holding, measure_staying(situation, ahead, asked.stay), 1.0)
        return Bids(
            market=make_market(situation, ahead, seen.saved, factors),
            over=ahead.age - asked.overdue * due[ahead.job_of],
            closed=seen.closed,
        )

    def _price_makespan(self, situation: Situation, least: float) -> float:
        """Return the worth of a second of makespan, in seconds of completion of all active jobs.

        It counts all jobs that share the makespan, so it does not fall as jobs end: it is scaled by
        arrivals since the oldest active job; an array counts once. It is lower while arrivals are
        expected to continue. `least` is the least makespan, in seconds from now.
        """
        oldest = min(job.spec.arrival_seconds for job in situation.jobs)
        came = sum(submitted >= oldest for submitted in situation.arrivals)
        active = {job.job_id - job.spec.options.task.place for job in situation.jobs}
        ending = PAIRED_ENDING if self.parameters.packed else ENDING
        ending *= (1.0 - self.parameters.fairness) * max(came / len(active), 1.0)
        coming = arrivals_left(situation.clock_seconds, situation.arrivals)
        return max(ending * max(1.0 - coming / least, LEAST_ENDING), LEAST_MAKESPAN)

    def choose(self, market: Market) -> Solution | None:
        """See `Strategy.choose`."""
        # The decision must not depend on which other solvers are installed.
        backend = self.parameters.backend
        return solve_market(market, "lagrangian" if backend == "auto" else backend)

    def audit(self, market: Market, rows: Ints, ahead: Outlook, solution: Solution) -> Guarantees:
        """See `Strategy.audit`."""
        loss = max(solution.bound - float(market.utility[rows].sum()), 0.0)
        return audit_types(market, rows, ahead.budgets, solution.prices, loss)


@dataclass(frozen=True)
class Shockwave(Parameters):
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
    reads_losses = False

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        return self._choose_strategy(situation.inventory).plan(situation)

    def placed(self, situation: Situation) -> Plan:
        """Place only the coming round (`solver.deciding.place`)."""
        return self._choose_strategy(situation.inventory).place(situation)

    def _choose_strategy(self, inventory: Inventory) -> Strategy:
        return SeveralTypes(self) if len(inventory.types) > 1 else OneType(self)
