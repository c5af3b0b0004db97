"""Least slack first if slack is short, else shortest remaining time: the rule to beat."""

from dataclasses import dataclass

import numpy as np

from solver.bidding import list_fair_finishes
from solver.plan import Plan, Policy, Situation
from solver.policies.listed import run_list


@dataclass(frozen=True)
class Slack(Policy):
    """List scheduling without a market, on the same forecasts.

    A job is due at the earlier of its fair finish and the horizon, the time by which all active
    work and its longest job can be done. Urgent jobs, whose slack is short, come
    first by least slack; then all others by shortest residual run time. Defaults were chosen by
    hand, not swept.

    Attributes:
        reach: Horizon as a multiple of the least time that the active work needs.
        short_seconds: Slack below which a job is urgent, in seconds.
        short_share: The same, as a share of the residual run time.
        favour_seconds: Preemption hysteresis: seconds taken off the rank of running jobs.
    """

    name = "slack"
    summary = "least slack to a deadline first where it is short, else shortest remaining time"
    source = "a list rule, to hold the market against (docs/market.md)"
    work_conserving = True

    reach: float = 1.03
    short_seconds: float = 600.0
    short_share: float = 0.1
    favour_seconds: float = 240.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        jobs = situation.jobs
        left = np.array([job.run_time(job.own).remaining for job in jobs])
        gangs = np.array([job.gang for job in jobs])
        running = np.array([bool(job.gpus) for job in jobs])
        work = float(gangs @ left) / situation.inventory.gpus
        horizon = self.reach * max(work, float(left.max(initial=0.0)))
        due = np.minimum(list_fair_finishes(situation) - situation.clock_seconds, horizon)
        favour = np.where(running, self.favour_seconds, 0.0)
        slack = due - left
        urgent = slack < np.maximum(self.short_seconds, self.short_share * left)
        rank = np.where(urgent, slack, left) - favour
        order = np.lexsort((rank, ~urgent))
        return run_list(self.name, situation, [jobs[row] for row in order.tolist()])
