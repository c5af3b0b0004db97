"""The Volatile Fisher Market (Shockwave, NSDI '23) for the coming round, with new bids."""

from dataclasses import dataclass, replace

import numpy as np

from solver.bidding import (
    Outlook,
    UtilityParameters,
    hysteresis,
    market,
    outlook,
    utilities,
)
from solver.clearing import clear
from solver.guarantees import guarantees
from solver.market import Floats, Market
from solver.plan import Plan, Situation, SolveReport, Turn, claims, next_round


@dataclass(frozen=True)
class Shockwave:
    """List scheduling by utility per GPU of the coming round, with the market of that round.

    The bids rank the jobs of the coming round; its market, cleared to a proven gap, yields the
    price of a GPU and the audit of guarantees. Every round is planned anew, so a market of the
    whole window would change none: it is cleared on demand (`preview`). `docs/market.md`
    derives the bids.

    `docs/market.md` says on which workloads the defaults were chosen; the ablations of
    `benchmarks/market.py` remove the parts in turn.

    Attributes:
        backend: Solver back end.
        lateness: λ, penalty of a GPU-round of lateness, `UtilityParameters.lateness`. Chosen in the
            flat part of the front that `benchmarks/market.py` plots.
        crowded: Mean contention of a job's life at which lateness has its whole penalty; at a
            contention of 1 it has none.
        fair_share: Due date as a share of the fair finish time.
        blur_rounds: Standard deviation of a finish time in the bids, in rounds.
        blur_share: The same, as a share of the residual run time.
        favour: Preemption hysteresis: factor on the bids of running jobs. A preemption costs
            two restarts, and often a third when the job resumes.
        fresh: Further factor on the bids of a job in the first rounds of its lease, against
            jobs that take turns as their forecasts change.
        fresh_rounds: Number of these rounds.
        overdue: Bound on postponement: a job goes before all others once an even share would
            have served it this many times; jobs that are overdue go in the order in which they
            became so.
        longest_level: Quantile level of the forecast at which the longest job sets the
            horizon. Below the median: too near a horizon hurries jobs a little, too far a
            horizon delays long jobs until they are late.
        lost_rounds: Mean loss of a job to its start and its end, in rounds.
        preview: Where not 0, the market is that of the window, laid out around the coming
            round: bids, prices, plan and guarantees are of the window. Who runs is the same.
    """

    name = "shockwave"
    summary = "a market of rounds: short jobs first, none late, makespan as a deadline"
    source = "Zheng et al., Shockwave (NSDI '23), with bids and forecasts of its own"
    looks_ahead = True
    clairvoyant = False
    work_conserving = True

    backend: str = "auto"
    lateness: float = 1.6
    crowded: float = 1.4
    fair_share: float = 0.85
    blur_rounds: float = 4.0
    blur_share: float = 0.05
    favour: float = 1.75
    fresh: float = 1.5
    fresh_rounds: float = 24.0
    overdue: float = 3.0
    longest_level: float = 0.3
    lost_rounds: float = 0.5
    preview: float = 0.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        if not situation.jobs:
            return Plan({}, SolveReport(self.name))
        ahead = outlook(situation)
        plan, coming = self._placed(situation, ahead)
        bids = self._market(situation, ahead, situation.window) if self.preview else coming
        rows = {job.job_id: row for row, job in enumerate(situation.jobs)}
        order = [rows[job_id] for job_id in plan.order]
        first = [row for job_id, row in rows.items() if job_id in plan.placement]
        cleared = clear(bids, order, self.backend, first)
        kept = guarantees(bids, cleared.timetable, ahead.budgets)
        return replace(
            plan,
            turns=tuple(
                Turn(job.job_id, tuple(np.flatnonzero(row).tolist()))
                for job, row in zip(situation.jobs, cleared.timetable, strict=True)
                if self.preview and row.any()
            ),
            bids=bids.bids,
            report=SolveReport(
                policy=self.name,
                backend=cleared.backend,
                reason=cleared.reason,
                status=cleared.status,
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
        return self._placed(situation, outlook(situation))[0]

    def _placed(self, situation: Situation, ahead: Outlook) -> tuple[Plan, Market]:
        """The coming round, and the market of that round, whose bids rank the jobs."""
        coming = self._market(situation, ahead, 1)
        worth = coming.utility[:, 1] / ahead.gangs
        order = self.ranked(ahead, worth)
        jobs = [situation.jobs[row] for row in order]
        return Plan(
            placement=next_round(situation, claims(jobs)),
            report=SolveReport(self.name),
            order=tuple(job.job_id for job in jobs),
            worth=tuple(worth[order].tolist()),
        ), coming

    def _market(self, situation: Situation, ahead: Outlook, window: int) -> Market:
        """The market of a window that begins with the coming round."""
        parameters = UtilityParameters(
            self.lateness, self.crowded, self.fair_share, self.blur_rounds, self.blur_share
        )
        utility = utilities(
            ahead,
            parameters,
            horizon=self.horizon(situation, ahead),
            window=window,
            round_seconds=situation.round_seconds,
        )
        factors = hysteresis(situation, self.favour, self.fresh, self.fresh_rounds)
        return market(situation, ahead, utility, factors)

    def ranked(self, ahead: Outlook, worth: Floats) -> list[int]:
        """Rows of the jobs by descending priority: the longest overdue, then by worth.

        Args:
            ahead: Outlook of the jobs.
            worth: Utility per GPU of the coming round, shape (jobs,).
        """
        over = ahead.service - self.overdue * (ahead.run + ahead.left)
        rows: list[int] = np.lexsort((-np.where(over > 0.0, over, worth), over <= 0.0)).tolist()
        return rows

    def horizon(self, situation: Situation, ahead: Outlook) -> float:
        """Horizon: seconds from now by which all active work can be done.

        The larger of the GPU time left per GPU and the longest residual run time. So the
        longest job is always due as soon as it can finish, and is never delayed for long.
        """
        lost = self.lost_rounds * situation.round_seconds
        work = float(ahead.gangs @ (ahead.left + lost)) / situation.inventory.gpus
        level = min(int(self.longest_level * ahead.samples.shape[1]), ahead.samples.shape[1] - 1)
        longest = float(ahead.samples[:, level].max()) * (1.0 + self.blur_share / 2.0)
        return max(work, longest)
