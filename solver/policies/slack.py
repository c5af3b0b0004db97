"""Least slack first where it is short, else shortest remaining time: the rule to beat."""

from dataclasses import dataclass

import numpy as np

from solver.plan import Plan, Situation
from solver.policies.listed import run_list


@dataclass(frozen=True)
class Slack:
    """A list without a market, on the same forecasts.

    A job is due at the earlier of a share of its fair finish time and of the horizon, the
    time by which the work at hand and its longest job can be done. Jobs whose slack is
    short go first, the least slack before all; then the shortest remaining run time.

    Attributes:
        fair_share: Share of its fair finish time by which a job is due.
        reach: Times the least time that the work at hand needs, to the horizon.
        short_seconds: Slack below which a job is in a hurry.
        short_share: The same, in shares of the run time left.
        favour_seconds: A running job counts as so much shorter.
    """

    name = "slack"
    summary = "least slack to a deadline first where it is short, else shortest remaining time"
    source = "a list rule, to hold the market against (docs/market.md)"
    looks_ahead = False
    clairvoyant = False
    work_conserving = True

    fair_share: float = 0.9
    reach: float = 1.03
    short_seconds: float = 600.0
    short_share: float = 0.1
    favour_seconds: float = 240.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        jobs = situation.jobs
        left = np.array([job.run_time(job.own).remaining for job in jobs])
        run = np.array([job.belief.run_seconds for job in jobs])
        gangs = np.array([job.gang for job in jobs])
        age = situation.clock_seconds - np.array([job.spec.arrival_seconds for job in jobs])
        running = np.array([bool(job.gpus) for job in jobs])
        contention = max(1.0, situation.jobs_seen / situation.inventory.gpus)
        work = float(gangs @ left) / situation.inventory.gpus
        horizon = self.reach * max(work, float(left.max(initial=0.0)))
        due = np.minimum(self.fair_share * contention * (run + left) - age, horizon)
        favour = np.where(running, self.favour_seconds, 0.0)
        slack = due - left
        hurries = slack < np.maximum(self.short_seconds, self.short_share * left)
        rank = np.where(hurries, slack, left) - favour
        order = np.lexsort((rank, ~hurries))
        return run_list(self.name, situation, [jobs[row] for row in order.tolist()])
