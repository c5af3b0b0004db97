"""The Volatile Fisher Market over a window of rounds (Shockwave, NSDI '23), with bids of ours."""

from dataclasses import dataclass

import numpy as np

from solver.bidding import Outlook, Terms, market, outlook, utilities
from solver.clearing import clear
from solver.guarantees import guarantees
from solver.plan import Plan, Situation, SolveReport, Turn, next_round


@dataclass(frozen=True)
class Shockwave:
    """A list by what the coming round is worth per GPU, in a window that is cleared around it.

    The bids say who runs in the coming round. The market of the window, cleared to a proven
    gap, says what each job gets after it, what a GPU-round costs and which guarantees hold;
    it does not change who runs now, since the plan is made anew before the next round.
    `docs/market.md` derives the bids.

    Attributes:
        backend: Solver back end.
        lateness: Worth of a GPU-round of lateness, see `solver.bidding.Terms`.
        fair_share: Share of its fair finish time by which a job is due.
        blur_rounds: Error of a finish time that bids reckon with, in rounds.
        blur_share: The same, in shares of the run time left.
        favour: Times that the bids of a running job count. A preemption costs two restarts,
            its own and that of the job that gives way again.
        longest_level: Level of the forecast at which the longest job sets the horizon. Below
            the median: a horizon too near hurries jobs, one too far puts long ones off.
        lost_rounds: Rounds that a job loses, on average, to its start and its end.
    """

    name = "shockwave"
    summary = "a market over the window: short jobs first, none late, makespan as a deadline"
    source = "Zheng et al., Shockwave (NSDI '23), with bids and forecasts of its own"
    looks_ahead = True
    clairvoyant = False
    work_conserving = True

    backend: str = "auto"
    lateness: float = 1.6
    fair_share: float = 0.85
    blur_rounds: float = 4.0
    blur_share: float = 0.05
    favour: float = 2.0
    longest_level: float = 0.3
    lost_rounds: float = 0.5

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        jobs = situation.jobs
        if not jobs:
            return Plan({}, SolveReport(self.name))
        ahead = outlook(situation)
        horizon = self.horizon(situation, ahead)
        terms = Terms(self.lateness, self.fair_share, self.blur_rounds, self.blur_share)
        seconds = situation.round_seconds
        bids, coming = (
            market(
                situation,
                ahead,
                utilities(ahead, terms, horizon=horizon, window=window, round_seconds=seconds),
                self.favour,
            )
            for window in (situation.window, 1)
        )
        worth = coming.utility[:, 1] / ahead.gangs
        order = np.argsort(-worth, kind="stable").tolist()
        placement = next_round(situation, [jobs[row] for row in order])
        first = [row for row, job in enumerate(jobs) if job.job_id in placement]
        cleared = clear(bids, order, self.backend, first)
        kept = guarantees(bids, cleared.timetable, ahead.budgets)
        return Plan(
            turns=tuple(
                Turn(job.job_id, tuple(np.flatnonzero(row).tolist()))
                for job, row in zip(jobs, cleared.timetable, strict=True)
                if row.any()
            ),
            placement=placement,
            bids=bids.bids,
            order=tuple(jobs[row].job_id for row in order),
            worth=tuple(worth[order].tolist()),
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

    def horizon(self, situation: Situation, ahead: Outlook) -> float:
        """Seconds from now by which all work at hand can be done.

        The larger of its run time per GPU and its longest job. As the longest job is then
        always due as soon as it can be done, it is never put off for long.
        """
        lost = self.lost_rounds * situation.round_seconds
        work = float(ahead.gangs @ (ahead.left + lost)) / situation.inventory.gpus
        level = min(int(self.longest_level * ahead.samples.shape[1]), ahead.samples.shape[1] - 1)
        longest = float(ahead.samples[:, level].max()) * (1.0 + self.blur_share / 2.0)
        return max(work, longest)
