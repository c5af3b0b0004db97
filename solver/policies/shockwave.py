"""The Volatile Fisher Market (Shockwave, NSDI '23) of the coming round, with new bids."""

from dataclasses import dataclass, replace

import numpy as np

from predictor.arrays import Floats, Ints
from predictor.arrivals import arrivals_left
from predictor.errors import InputError
from solver.backends.choice import Solution
from solver.backends.foresight import measure_savings
from solver.backends.makespan import find_least_makespan
from solver.bidding import (
    Outlook,
    find_holding,
    make_outlook,
    measure_hysteresis,
    measure_unfair_jct,
    measure_utility,
)
from solver.clearing import certify, solve_market
from solver.configurations import has_sizes
from solver.elastic import plan_sizes
from solver.even_cluster import UNKNOWN
from solver.guarantees import audit_one_type, audit_types
from solver.list_scheduling import Claim, next_round
from solver.market import Market
from solver.packing import PackedRound, pack_round
from solver.pairs import find_pairs
from solver.plan import Plan, Policy, Situation, SolveReport

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

LEAST_GAIN = 1.15
"""Minimum sum of a pair's shared over exclusive rates. Chosen by hand, not swept."""

LOST_ROUNDS = 0.5
"""Mean time that a job loses at its start and end, in rounds: half a round at its end."""


@dataclass(frozen=True)
class Bids:
    """The bids of a round, with what ranks them.

    Attributes:
        market: The market of the bids.
        over: How far each row's job is overdue, negative before, shape (rows,), seconds.
        closed: Whether the program behind the bids was solved to its gap.
    """

    market: Market
    over: Floats
    closed: bool = True


@dataclass(frozen=True)
class ListedRound:
    """The coming round as list scheduling fills it.

    Attributes:
        plan: The plan, without bids and certificate.
        solution: The market's solution, if the list begins with it: on several GPU types.
        packed: The solution with pairs of jobs, if there are pairs.
    """

    plan: Plan
    bids: Bids
    solution: Solution | None
    packed: PackedRound | None


@dataclass(frozen=True)
class Shockwave(Policy):
    """List scheduling by bids for the coming round, certified by the round's market.

    Bids rank the jobs by utility per GPU. The market of the round, solved to a proven gap, yields
    the price of a GPU and the audit of guarantees. `docs/market.md` derives the bids and names the
    workloads on which the defaults were chosen; the ablations of `benchmarks/market.py` remove the
    parts in turn.

    Attributes:
        fairness: φ, from 0, the shortest makespan, to 1, the fair end of the front on a fixed set
            of jobs. In streams of jobs a higher φ is not fairer (docs/results.md).
        lateness: λ, highest price of a GPU-round of lateness, in completions of 1-GPU jobs. Chosen
            in the flat part of its sweep (`benchmarks/market.py`).
        stay: Minimum preemption hysteresis, a factor on the bids of running jobs; it is higher if
            restarts cost more of a round.
        overdue: Bound on postponement: overdue jobs go before all others, the longest overdue
            first. A job is overdue once its age is this many times the JCT at which its ρ is 1.05.
        packed: 1 to pair jobs on the same GPUs (`solver.packing`), else 0.
    """

    name = "shockwave"
    summary = "a market of rounds: short jobs first, none late, makespan as a deadline"
    source = "Zheng et al., Shockwave (NSDI '23), with bids and forecasts of its own"
    looks_ahead = True
    work_conserving = True
    several_pools = True
    elastic = True
    adapts = True

    backend: str = "auto"
    fairness: float = 0.1
    lateness: float = 6.0
    stay: float = 1.1
    overdue: float = 1.5
    packed: float = 0.0

    def __post_init__(self) -> None:
        if self.fairness > 1.0:
            raise InputError(
                "parameters.fairness", f"{self.fairness:g} is out of range", "give 0 to 1"
            )

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        if not situation.jobs:
            return Plan({}, SolveReport(self.name))
        if any(map(has_sizes, situation.jobs)):
            return plan_sizes(self.name, situation)
        ahead = make_outlook(situation)
        made = self._list(situation, ahead)
        plan, market = made.plan, made.bids.market
        if made.packed:
            report = made.packed.report(self.name, plan, situation)
            return replace(plan, bids=market.bids, report=report)
        inventory = situation.inventory
        rows = np.array(
            sorted(
                market.rows[job_id, inventory.gpu_type(gpus[0])]
                for job_id, gpus in plan.placement.items()
            ),
            dtype=np.int64,
        )
        solution = made.solution or solve_market(market, self.backend)
        if len(market.types) > 1:
            loss = max(solution.bound - float(market.utility[rows].sum()), 0.0)
            kept = audit_types(market, rows, ahead.budgets, solution.prices, loss)
        else:
            kept = audit_one_type(market, rows, ahead.budgets)
        report = certify(self.name, market, rows, solution, kept)
        if not made.bids.closed:
            report = replace(report, status="work_limit")
        return replace(plan, bids=market.bids, report=report)

    def placed(self, situation: Situation) -> Plan:
        """Place only the coming round, without its market; same order and worth as `plan`."""
        if not situation.jobs:
            return Plan({}, SolveReport(self.name))
        if any(map(has_sizes, situation.jobs)):
            return plan_sizes(self.name, situation)
        return self._list(situation, make_outlook(situation)).plan

    def _bid_on_one_type(self, situation: Situation, ahead: Outlook) -> Bids:
        """Bid the contribution to completion, and the lateness that is avoided.

        The horizon lies between the least makespan of the active jobs and their last end in the
        even cluster, but not before arrivals are expected to end. Jobs without an end there do
        not count.
        """
        seconds = situation.round_seconds
        work = float(ahead.gangs @ (ahead.left + LOST_ROUNDS * seconds)) / situation.inventory.gpus
        least = max(work, float(ahead.left.max()))
        known = ahead.fair < UNKNOWN / 2
        last = max(float((ahead.fair - ahead.age).max(where=known, initial=0.0)), least)
        coming = arrivals_left(situation.clock_seconds, situation.arrivals)
        unfair = measure_unfair_jct(situation, ahead)
        utility = measure_utility(
            ahead,
            unfair=unfair,
            fairness=self.fairness,
            lateness=self.lateness,
            horizon=max(least + self.fairness * (last - least), coming),
            round_seconds=seconds,
        )
        staying = measure_hysteresis(situation, ahead, self.stay)
        factors = np.where(find_holding(situation, ahead), staying, 1.0)
        return Bids(
            market=make_market(situation, ahead, utility, factors),
            over=ahead.age - self.overdue * unfair,
        )

    def _bid_on_types(self, situation: Situation, ahead: Outlook) -> Bids:
        """Bid the future cost that a round on each type saves.

        The market is solved first and assigns jobs to types; the list begins with the chosen rows,
        followed by all others.
        """
        inventory = situation.inventory
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
            lateness=LATE * self.lateness * weights * usual / due,
            makespan=self._price_makespan(situation, least),
        )
        factors = np.where(holding, measure_hysteresis(situation, ahead, self.stay), 1.0)
        return Bids(
            market=make_market(situation, ahead, seen.saved, factors),
            over=ahead.age - self.overdue * due[ahead.job_of],
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
        ending = PAIRED_ENDING if self.packed else ENDING
        ending *= (1.0 - self.fairness) * max(came / len(active), 1.0)
        coming = arrivals_left(situation.clock_seconds, situation.arrivals)
        return max(ending * max(1.0 - coming / least, LEAST_ENDING), LEAST_MAKESPAN)

    def _list(self, situation: Situation, ahead: Outlook) -> ListedRound:
        several = len(situation.inventory.types) > 1
        bids = (self._bid_on_types if several else self._bid_on_one_type)(situation, ahead)
        worth = bids.market.utility / ahead.gangs
        solution, chosen = None, np.zeros(len(worth), dtype=np.int64)
        packed = pack_round(situation, bids.market, LEAST_GAIN) if self.packed else None
        if packed:
            chosen = packed.packing.rows.astype(np.int64)
        elif several:
            # The decision must not depend on which other solvers are installed.
            backend = "lagrangian" if self.backend == "auto" else self.backend
            solution = solve_market(bids.market, backend)
            chosen = solution.counts
        order = rank_rows(bids.over, worth, chosen)
        line = [Claim(situation.jobs[ahead.job_of[row]], ahead.allocations[row]) for row in order]
        together = packed.claims(situation) if packed else []
        first = {claim.job.job_id: row for claim, row in zip(line[::-1], order[::-1], strict=True)}
        placement = next_round(situation, [*together, *line])
        # Pairs are placed before the line, even before its overdue jobs.
        pairs = find_pairs(placement, together)
        before = (job_id for pair in pairs for job_id in pair)
        in_line = tuple(dict.fromkeys((*before, *(claim.job.job_id for claim in line))))
        leading = [first[job_id] for job_id in in_line]
        first_by = np.maximum(-bids.over[leading], 0.0)
        plan = Plan(
            placement=placement,
            report=SolveReport(self.name),
            order=in_line,
            worth=tuple(worth[leading].tolist()),
            pairs=pairs,
            first_by=() if packed else tuple(first_by.tolist()),
        )
        return ListedRound(plan, bids, solution, packed)


def rank_rows(over: Floats, worth: Floats, chosen: Ints) -> list[int]:
    """Rank rows by descending priority: the longest overdue, the market's choice, then by worth.

    `over` is how far each row's job is overdue, `worth` the utility per GPU, `chosen` 1 for rows
    that the market chose; all of shape (rows,).
    """
    late = over > 0.0
    first, then = np.where(late, -over, -chosen), np.where(late, -chosen, -worth)
    rows: list[int] = np.lexsort((then, first, ~late)).tolist()
    return rows


def make_market(situation: Situation, ahead: Outlook, utility: Floats, factors: Floats) -> Market:
    """Return the market of utilities multiplied by factors, both of shape (rows,)."""
    inventory = situation.inventory
    return Market(
        types=inventory.types,
        capacities=np.array(list(inventory.capacities.values()), dtype=np.int64),
        job_ids=np.array([job.job_id for job in situation.jobs])[ahead.job_of],
        allocations=ahead.allocations,
        weights=ahead.budgets * factors,
        utility=utility * factors,
    )
