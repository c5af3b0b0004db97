"""The Volatile Fisher Market (Shockwave, NSDI '23) for the coming round, with new bids."""

from dataclasses import dataclass, field, replace

import numpy as np

from predictor.arrays import Floats, Ints
from predictor.arrivals import arrivals_left
from predictor.errors import InputError
from solver.backends.foresight import foresight
from solver.backends.makespan import least_makespan
from solver.bidding import (
    Outlook,
    UtilityParameters,
    holding,
    hysteresis,
    outlook,
    staying,
    utilities,
)
from solver.clearing import clear
from solver.counts import Counts, solve_counts
from solver.guarantees import guarantees, guarantees_by_type
from solver.list_scheduling import Claim, next_round
from solver.market import Market
from solver.packing import PackedRound, pack_round
from solver.pairs import pairs_in
from solver.plan import Plan, Situation, SolveReport, Turn
from solver.shared_cluster import shared_by

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
class Shockwave:
    """List scheduling by utility per GPU of the coming round, with the market of that round.

    The bids rank the jobs of the coming round; its market, cleared to a proven gap, yields the
    price of a GPU and the audit of guarantees. Every round is planned anew, so a market of the
    whole window would change none: it is cleared on demand (`preview`). `docs/market.md`
    derives the bids.

    On several GPU types a job bids on each. The market is cleared first, which assigns jobs
    to types; the list begins with the chosen rows, then has all others.

    `docs/market.md` says on which workloads the defaults were chosen; the ablations of
    `benchmarks/market.py` remove the parts in turn.

    Attributes:
        backend: Solver back end.
        fairness: φ, exponent of a job's finish-time fairness in the worth of completing it,
            `UtilityParameters.fairness`: 0 ranks by remaining time alone.
        lateness: λ, penalty of a GPU-round of lateness, `UtilityParameters.lateness`. Chosen in the
            flat part of the front that `benchmarks/market.py` plots.
        crowded: Mean contention of a job's life at which lateness has its whole penalty; at a
            contention of 1 it has none.
        fair_share: Due date as a share of the fair finish time.
        blur_rounds: Standard deviation of a finish time in the bids, in rounds.
        blur_share: The same, as a share of the residual run time.
        favour: Preemption hysteresis: factor on the bids of running jobs. A preemption costs
            two restarts, and often a third when the job resumes.
        overdue: Bound on postponement: a job goes before all others once an even share would
            have served it this many times, and on several GPU types once it has been there for as
            many times its fair time; overdue jobs go in the order in which they became so.
        longest_level: Quantile level of the forecast at which the longest job sets the
            horizon. Below the median: too near a horizon hurries jobs a little, too far a
            horizon delays long jobs until they are late.
        lost_rounds: Mean loss of a job to its start and its end, in rounds.
        tail: μ, further worth of completing a job whose JCT is in the tail,
            `UtilityParameters.tail`: a shorter 99 % JCT for a longer mean. The tail begins at
            `TAIL_SHARE` of what the longest job takes in a queue.
        preview: Where not 0, the market is that of the window, laid out around the coming
            round: bids, prices, plan and guarantees are of the window. The coming round is the
            same. On several GPU types it has no effect, and only services accept it.
        gang: On several GPU types, exponent of the gang in the worth of completing a job and in the
            penalty of lateness.
        due_share: There, due date as a share of the fair finish time, which is that in an evenly
            shared cluster.
        tardiness: There, λ: penalty of all work of a job being late by its fair time, over that of
            a completion later by the mean fair time.
        ending: There, worth of a second of makespan, in seconds of completion of all jobs that
            came since the oldest active one, as many times the active ones as arrivals were, an
            array one; less while arrivals are expected to go on.
        paired_ending: The same where jobs may share GPUs: the linear program over time ignores
            pairs, with which GPUs do more work.
        stay: There, the least preemption hysteresis of bids on the GPU type that a job holds, in
            place of `favour`; more where restarts cost more of a round.
        packed: 1 for pairs of jobs on the same GPUs: columns of the market, worth to each job its
            bid there times its rate over that alone.
        gain: The least sum of such ratios. Chosen by hand; no sweep is recorded.
    """

    name = "shockwave"
    summary = "a market of rounds: short jobs first, none late, makespan as a deadline"
    source = "Zheng et al., Shockwave (NSDI '23), with bids and forecasts of its own"
    looks_ahead = True
    clairvoyant = False
    work_conserving = True
    several_pools = True
    of_one_type = (
        *("fairness", "lateness", "crowded", "fair_share", "blur_rounds", "blur_share", "favour"),
        *("longest_level", "preview", "tail"),
    )
    of_several_types = ("gang", "due_share", "tardiness", "ending", "paired_ending", "stay")

    backend: str = "auto"
    fairness: float = 0.75
    lateness: float = 0.8
    crowded: float = 1.4
    fair_share: float = 0.85
    blur_rounds: float = 4.0
    blur_share: float = 0.05
    favour: float = 1.6
    overdue: float = 3.0
    longest_level: float = 0.3
    lost_rounds: float = 0.5
    tail: float = 0.0
    preview: float = 0.0
    gang: float = 0.25
    due_share: float = 0.98
    tardiness: float = 40.0
    ending: float = 0.5
    paired_ending: float = 0.45
    stay: float = 1.1
    packed: float = 0.0
    gain: float = 1.15

    def __post_init__(self) -> None:
        if not 0.0 <= self.gang <= LARGEST_EXPONENT:
            raise InputError(
                "parameters.gang",
                f"{self.gang:g} is not in [0, {LARGEST_EXPONENT:g}]",
                "give an exponent within",
            )

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        if not situation.jobs:
            return Plan({}, SolveReport(self.name))
        ahead = outlook(situation)
        placed = self._placed(situation, ahead)
        bids, plan = placed.market, placed.plan
        if placed.packed:
            return replace(
                plan, bids=bids.bids, report=placed.packed.report(self.name, plan, situation)
            )
        preview = self.preview and not situation.inventory.mixed
        if preview:
            bids = self._market(situation, ahead, self._terms(situation, ahead), situation.window)
        rows = {
            (job_id, allocation.gpu_type): row
            for row, (job_id, allocation) in enumerate(
                zip(bids.job_ids.tolist(), bids.allocations, strict=True)
            )
        }
        first = [
            rows[job_id, situation.inventory.allocation(gpus).gpu_type]
            for job_id, gpus in plan.placement.items()
        ]
        cleared = clear(bids, placed.order, self.backend, sorted(first), placed.counts)
        if not situation.inventory.mixed:
            kept = guarantees(bids, cleared.timetable, ahead.budgets)
        else:
            prices = np.array([price.price for price in cleared.prices])
            kept = guarantees_by_type(
                bids, cleared.timetable, ahead.budgets, prices, cleared.bound - cleared.objective
            )
        return replace(
            plan,
            turns=tuple(
                Turn(job.job_id, tuple(np.flatnonzero(row).tolist()))
                for job, row in zip(situation.jobs, cleared.timetable, strict=True)
                if row.any()
            )
            if preview
            else (),
            bids=bids.bids,
            report=SolveReport(
                policy=self.name,
                backend=cleared.backend,
                reason=cleared.reason,
                status=cleared.status if placed.closed else "work_limit",
                objective=cleared.objective,
                bound=cleared.bound,
                gap=cleared.gap,
                prices=cleared.prices,
                envious=kept.envious,
                below_share=kept.below_share,
                wanting=kept.wanting,
            ),
        )

    def placed(self, situation: Situation) -> Plan:
        """The coming round alone, without its market: order, worth and placement as of `plan`."""
        if not situation.jobs:
            return Plan({}, SolveReport(self.name))
        return self._placed(situation, outlook(situation)).plan

    def _placed(self, situation: Situation, ahead: Outlook) -> "_Placed":
        """The coming round, and the market of that round, whose bids rank the jobs."""
        terms = self._terms(situation, ahead)
        coming = self._market(situation, ahead, terms, 1)
        worth = coming.utility[:, 1] / ahead.gangs
        counts, chosen = None, np.zeros(len(worth), dtype=np.int64)
        packed = pack_round(situation, coming, self.gain) if self.packed else None
        if packed:
            chosen = packed.packing.rows.astype(np.int64)
        elif situation.inventory.mixed:
            # The decision must not depend on which other solvers are installed.
            counts = solve_counts(coming, "lagrangian" if self.backend == "auto" else self.backend)
            chosen = counts.counts
        order = self.ranked(terms.over, worth, chosen)
        line = [Claim(situation.jobs[ahead.job_of[row]], ahead.allocations[row]) for row in order]
        together = packed.claims(situation) if packed else []
        first = {claim.job.job_id: row for claim, row in zip(line[::-1], order[::-1], strict=True)}
        placement = next_round(situation, [*together, *line])
        # Pairs are placed before the line, overdue jobs in it included.
        pairs = pairs_in(placement, together)
        before = (job_id for pair in pairs for job_id in pair)
        in_line = tuple(dict.fromkeys((*before, *(claim.job.job_id for claim in line))))
        leading = [first[job_id] for job_id in in_line]
        plan = Plan(
            placement=placement,
            report=SolveReport(self.name),
            memory=terms.memory,
            order=in_line,
            worth=tuple(worth[leading].tolist()),
            pairs=pairs,
            first_by=() if packed else tuple(terms.first_by[leading].tolist()),
        )
        return _Placed(plan, coming, order, counts, packed, terms.closed)

    def _market(self, situation: Situation, ahead: Outlook, terms: "_Terms", window: int) -> Market:
        """The market of a window that begins with the coming round."""
        if terms.saved is not None:
            utility = np.multiply.outer(terms.saved, np.arange(window + 1.0))
            factors = hysteresis(situation, ahead, staying(situation, ahead, self.stay))
        else:
            utility = utilities(
                ahead,
                UtilityParameters(
                    self.fairness,
                    self.lateness,
                    self.crowded,
                    self.fair_share,
                    self.blur_rounds,
                    self.blur_share,
                    self.tail,
                ),
                fair=terms.fair,
                horizon=terms.horizon,
                tail_begins=terms.tail_begins,
                window=window,
                round_seconds=situation.round_seconds,
            )
            factors = hysteresis(situation, ahead, self.favour)
        return Market(
            types=situation.inventory.types,
            capacities=np.array(list(situation.inventory.capacities.values())),
            window=window,
            regularizer=0.0,
            job_ids=np.array([job.job_id for job in situation.jobs])[ahead.job_of],
            allocations=ahead.allocations,
            weights=ahead.budgets * factors,
            utility=(utility - utility[:, :1]) * factors[:, None],
            remaining=np.zeros(utility.shape),
        )

    def _terms(self, situation: Situation, ahead: Outlook) -> "_Terms":
        """The terms of the bids."""
        if situation.inventory.mixed:
            return self._terms_of_types(situation, ahead)
        lost = self.lost_rounds * situation.round_seconds
        level = min(int(self.longest_level * ahead.samples.shape[1]), ahead.samples.shape[1] - 1)
        longest = float(ahead.samples[:, level].max()) * (1.0 + self.blur_share / 2.0)
        work = float(ahead.gangs @ (ahead.left + lost)) / situation.inventory.gpus
        coming = arrivals_left(situation.clock_seconds, situation.even.arrived)
        over = ahead.service - self.overdue * (ahead.run + ahead.left)
        horizon = max(work, longest, coming)
        tail_begins = TAIL_SHARE * (float((ahead.run + ahead.left).max()) + work)
        return _Terms(over, situation.even.contention, ahead.fair(), horizon, tail_begins)

    def _terms_of_types(self, situation: Situation, ahead: Outlook) -> "_Terms":
        """The terms of bids on several GPU types: savings by a second there in future cost."""
        inventory = situation.inventory
        lost = self.lost_rounds * situation.round_seconds
        kinds = {kind: number for number, kind in enumerate(inventory.types)}
        capacities = np.array(list(inventory.capacities.values()), dtype=np.int64)
        type_of = np.array([kinds[found.gpu_type] for found in ahead.allocations])
        firsts = np.flatnonzero(np.diff(ahead.job_of, prepend=-1))
        restarts = ahead.restarts(situation)
        dearer = restarts - np.minimum.reduceat(restarts, firsts)[ahead.job_of]
        dearer[holding(situation, ahead)] = 0.0
        rows = ahead.here + lost + dearer, ahead.gangs, ahead.job_of, type_of, capacities
        least = least_makespan(*rows, exact=False)
        coming = arrivals_left(situation.clock_seconds, situation.even.arrived)
        cluster, memory = shared_by(situation, ahead, type_of)
        fair = {sharer.job_id: sharer.fair - sharer.arrival for sharer in cluster.sharers}
        budgets, gangs = ahead.budgets[firsts], ahead.gangs[firsts]
        due = np.array([fair[job.job_id] for job in situation.jobs]) / budgets
        due = np.maximum(due, 2.0 * situation.round_seconds)
        weights = budgets * gangs**self.gang
        weights /= weights.mean()
        # The worth of the makespan does not fall as jobs end: all jobs that share it count.
        oldest = min(job.spec.arrival_seconds for job in situation.jobs)
        came = sum(submitted >= oldest for submitted in situation.even.arrived)
        ending = self.paired_ending if self.packed else self.ending
        active = {job.job_id - job.spec.options.task.place for job in situation.jobs}
        ending *= max(came / len(active), 1.0)
        seen = foresight(
            *rows,
            weights=weights,
            due=self.due_share * due - ahead.age[firsts],
            least=least,
            round_seconds=situation.round_seconds,
            lateness=self.tardiness * weights * due.mean() / due,
            makespan=max(ending * max(1.0 - coming / least, LEAST_ENDING), LEAST_MAKESPAN),
        )
        return _Terms(
            ahead.age - self.overdue * due[ahead.job_of],
            saved=seen.saved,
            closed=seen.closed,
            memory=memory,
        )

    def ranked(self, over: Floats, worth: Floats, chosen: Ints) -> list[int]:
        """Rows by descending priority: the longest overdue, the market's choice, then by worth.

        Args:
            over: Time since each row's job became overdue, negative before, shape (rows,), seconds.
            worth: Utility per GPU of the coming round, shape (rows,).
            chosen: 1 for rows that the market chose, else 0, shape (rows,).
        """
        late = over > 0.0
        first, then = np.where(late, -over, -chosen), np.where(late, -chosen, -worth)
        rows: list[int] = np.lexsort((then, first, ~late)).tolist()
        return rows


@dataclass(frozen=True)
class _Terms:
    """The terms of the bids.

    Attributes:
        over: How far each row's job is overdue, negative before, shape (rows,), in seconds: of
            service on GPUs of a single type, else of time since submission.
        contention: Seconds in which `over` grows by one at the present load: of even service a
            second takes as many as the contention (`FairShare`), of time one.
        fair: On GPUs of a single type, fair finish times after submission, shape (rows, samples),
            seconds.
        horizon: There, seconds from now by which all active work can be done: the larger of the
            work left per GPU and the longest residual run time, and not before arrivals are
            expected to end. Once they have ended, the longest job is due as soon as it can finish,
            and is never delayed for long.
        tail_begins: There, the JCT from which on a job is in the tail, in seconds.
        saved: On several GPU types, savings by a second on each row's type, shape (rows,), in
            seconds of completion.
        closed: Whether the program over time was solved to its gap.
        memory: The policy's state for its next plan; empty to keep the last.
    """

    over: Floats
    contention: float = 1.0
    fair: Floats = field(default_factory=lambda: np.empty(0))
    horizon: float = 0.0
    tail_begins: float = 0.0
    saved: Floats | None = None
    closed: bool = True
    memory: str = ""

    @property
    def first_by(self) -> Floats:
        """Time until each row's job is overdue at the present load, shape (rows,), seconds."""
        return np.maximum(-self.over, 0.0) * self.contention


@dataclass(frozen=True)
class _Placed:
    """The coming round, its market, the rows in order, and counts or pairs if it chose them.

    `closed` as of `_Terms`.
    """

    plan: Plan
    market: Market
    order: list[int]
    counts: Counts | None
    packed: PackedRound | None = None
    closed: bool = True
