"""Schedule the coming round by bids in list order, and certify it with its market."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from predictor.arrays import Floats, Ints
from predictor.errors import InputError
from solver.backends.choice import Solution
from solver.bidding import Outlook, make_outlook
from solver.clearing import certify, solve_market
from solver.guarantees import Guarantees
from solver.list_scheduling import Claim, next_round
from solver.market import Market
from solver.packing import PackedRound, pack_round
from solver.pairs import find_pairs
from solver.plan import Plan, Situation, SolveReport

POLICY = "shockwave"
"""Name of the policy whose strategies these are."""

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
        solution: The market's solution, if the list begins with it.
        packed: The solution with pairs of jobs, if there are pairs.
    """

    plan: Plan
    bids: Bids
    solution: Solution | None
    packed: PackedRound | None


@dataclass(frozen=True)
class Parameters:
    """Parameters of the market, on one GPU type and on several.

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

    backend: str = "auto"
    fairness: float = 0.1
    lateness: float = 6.0
    stay: float = 1.1
    overdue: float = 3.0
    packed: float = 0.0

    def __post_init__(self) -> None:
        if self.fairness > 1.0:
            raise InputError(
                "parameters.fairness", f"{self.fairness:g} is out of range", "give 0 to 1"
            )


@dataclass(frozen=True)
class Strategy(ABC):
    """List scheduling by utility per GPU of the coming round.

    Bids rank the jobs. The market of the round, solved to a proven gap, yields the price of a GPU
    and the audit of guarantees.
    """

    parameters: Parameters

    @abstractmethod
    def make_bids(self, situation: Situation, ahead: Outlook) -> Bids:
        """Return the bids of the active jobs."""

    @abstractmethod
    def choose(self, market: Market) -> Solution | None:
        """Return the solution with which the list begins; None to rank by worth alone."""

    @abstractmethod
    def audit(self, market: Market, rows: Ints, ahead: Outlook, solution: Solution) -> Guarantees:
        """Count violations of the guarantees by the rows that run."""

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        if not situation.jobs:
            return Plan({}, SolveReport(POLICY))
        ahead = make_outlook(situation)
        made = self._list(situation, ahead)
        plan, market = made.plan, made.bids.market
        if made.packed:
            report = made.packed.report(POLICY, plan, situation)
            return replace(plan, bids=market.bids, report=report)
        inventory = situation.inventory
        rows = np.array(
            sorted(
                market.rows[job_id, inventory.gpu_type(gpus[0])]
                for job_id, gpus in plan.placement.items()
            ),
            dtype=np.int64,
        )
        solution = made.solution or solve_market(market, self.parameters.backend)
        kept = self.audit(market, rows, ahead, solution)
        report = certify(POLICY, market, rows, solution, kept)
        if not made.bids.closed:
            report = replace(report, status="work_limit")
        return replace(plan, bids=market.bids, report=report)

    def place(self, situation: Situation) -> Plan:
        """Place only the coming round, without its market; same order and worth as `plan`."""
        if not situation.jobs:
            return Plan({}, SolveReport(POLICY))
        return self._list(situation, make_outlook(situation)).plan

    def _list(self, situation: Situation, ahead: Outlook) -> ListedRound:
        bids = self.make_bids(situation, ahead)
        worth = bids.market.utility / ahead.gangs
        solution, chosen = None, np.zeros(len(worth), dtype=np.int64)
        packed = pack_round(situation, bids.market, LEAST_GAIN) if self.parameters.packed else None
        if packed:
            chosen = packed.packing.rows.astype(np.int64)
        elif solution := self.choose(bids.market):
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
            report=SolveReport(POLICY),
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
