"""First in, first out."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from solver.fidelity import Fidelity
from solver.market import Floats
from solver.plan import Plan, Situation, claims, fitting
from solver.policies.listed import run_list
from solver.policies.shares import Contenders, run_shares


@dataclass(frozen=True)
class Fifo:
    """Jobs in order of arrival, with backfilling.

    Only backfilled jobs are ever preempted: once an earlier job fits. Of several GPU types, a job
    runs on the fastest that has room in its turn.

    With `Fidelity.REFERENCE` on several GPU types, as in Gavel's simulator (OSDI '20): the same
    as shares of 0 and 1, without backfilling, which hold until they are computed again.

    Attributes:
        fidelity: See `solver.policies.shares`.
        backfill: 0 for a strict order: if a job does not fit, all later jobs wait.
        aware: 0, with `Fidelity.REFERENCE` on several types, for the published policy without
            `_perf`: by an error of its code all jobs share the first type, the others idle.
    """

    name = "fifo"
    summary = "first in, first out, with backfilling"
    source = "as YARN-CS in Gu et al., Tiresias (NSDI '19), section 5"
    looks_ahead = False
    clairvoyant = False
    work_conserving = True
    several_pools = True

    solver = "none"

    fidelity: Fidelity = Fidelity.FAIR
    backfill: float = 1.0
    aware: float = 1.0

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`."""
        shares, free = np.zeros_like(jobs.rates), jobs.gpus.copy()
        if not self.aware:
            shares[:, 0] = 1.0
            return shares, ()
        for job in np.argsort(-jobs.ages, kind="stable").tolist():
            room = free >= jobs.gangs[job]
            if not room.any():
                break
            kind = int(np.where(room, jobs.rates[job], -1.0).argmax())
            if jobs.rates[job, kind] > 0.0:
                shares[job, kind] = 1.0
                free[kind] -= jobs.gangs[job]
        return shares, ()

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        if self.fidelity is Fidelity.REFERENCE and len(situation.inventory.types) > 1:
            return run_shares(self, self.name, situation, shuffled=not self.aware, fills=False)
        order = sorted(situation.jobs, key=lambda job: (job.spec.arrival_seconds, job.spec.job_id))
        if not self.backfill:
            asked = claims(order)
            met = {asked[n].job.job_id for n in fitting(situation.inventory, asked)}
            order = list(takewhile(lambda job: job.job_id in met, order))
        return run_list(self.name, situation, order)
