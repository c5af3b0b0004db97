"""First in, first out."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from predictor.arrays import Bools, Floats, Ints
from solver.fidelity import Fidelity
from solver.list_scheduling import find_fitting, make_claims
from solver.pairs import ALONE, Rows
from solver.plan import Plan, Policy, Situation
from solver.policies.contenders import Contenders
from solver.policies.listed import run_list
from solver.policies.shares import run_shares


@dataclass(frozen=True)
class Fifo(Policy):
    """Jobs in order of arrival, with backfilling.

    Only backfilled jobs are ever preempted, when an earlier job fits. With several GPU types, a
    job runs on the fastest type that has room in its turn.

    `Fidelity.REFERENCE` with several GPU types follows Gavel's simulator (OSDI '20): shares of 0
    and 1, without backfilling, which hold until they are computed again.

    Attributes:
        backfill: 0 for a strict order: if a job does not fit, all later jobs wait.
        aware: 0, with `Fidelity.REFERENCE` on several types, for the published policy without
            `_perf`: by an error in its code all jobs share the first type and the others idle.
        packed: 1 to pair jobs on the same GPUs, as in Gavel's simulator: each job without a GPU
            joins, in order, the job with which its summed shared over exclusive rates are highest,
            if they exceed `gain`. The first job without a partner ends the line.
        gain: Minimum of these sums; the default is Gavel's.
    """

    name = "fifo"
    summary = "first in, first out, with backfilling"
    source = "as YARN-CS in Gu et al., Tiresias (NSDI '19), section 5"
    reads_forecasts = False
    work_conserving = True
    several_pools = True

    solver = "none"

    fidelity: Fidelity = Fidelity.FAIR
    backfill: float = 1.0
    aware: float = 1.0
    packed: float = 0.0
    gain: float = 1.5

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`."""
        shares = self._alone(jobs)
        return (shares if jobs.rows is None else self._pack(jobs, jobs.rows, shares)), ()

    def _alone(self, jobs: Contenders) -> Floats:
        """Return shares of 1 on the fastest types with room, without pairs."""
        shares, free = np.zeros_like(jobs.rates), jobs.gpus.copy()
        if not self.aware:
            shares[:, 0] = 1.0
            return shares
        for job in np.argsort(-jobs.ages, kind="stable").tolist():
            room = free >= jobs.gangs[job]
            if not room.any():
                break
            kind = int(np.where(room, jobs.rates[job], -1.0).argmax())
            if jobs.rates[job, kind] > 0.0:
                shares[job, kind] = 1.0
                free[kind] -= jobs.gangs[job]
        return shares

    def _pack(self, jobs: Contenders, rows: Rows, shares: Floats) -> Floats:
        """Return shares of all rows after jobs without a GPU have joined others."""
        packed = jobs.by_row(shares)
        kind, gains = shares.argmax(axis=1), rows.ratios().sum(axis=1)
        single: Bools = np.asarray(shares.any(axis=1))
        for job in np.argsort(-jobs.ages, kind="stable").tolist():
            if shares[job].any():
                continue
            row, other = self._partner(job, rows, gains, kind, single)
            if row < 0:
                break
            packed[rows.alone[other]] = 0.0
            packed[row, kind[other]] = 1.0
            single[other] = False
        return packed

    def _partner(
        self, job: int, rows: Rows, gains: Floats, kind: Ints, single: Bools
    ) -> tuple[int, int]:
        """Return the row of a job's best pair, and the partner; −1 for both without one."""
        mine = np.flatnonzero((rows.members == job).any(axis=1) & (rows.members[:, 1] != ALONE))
        others = rows.members[mine].sum(axis=1) - job
        gain = np.where(single[others], gains[mine, kind[others]], 0.0)
        if not len(gain) or gain.max() <= self.gain:
            return -1, -1
        best = int(gain.argmax())
        return int(mine[best]), int(others[best])

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        if self.packed:
            fills = self.fidelity is not Fidelity.REFERENCE
            return run_shares(self, situation, packed=True, fills=fills)
        if self.fidelity is Fidelity.REFERENCE and situation.inventory.mixed:
            return run_shares(self, situation, shuffled=not self.aware, fills=False)
        order = sorted(situation.jobs, key=lambda job: (job.spec.arrival_seconds, job.spec.job_id))
        if not self.backfill:
            asked = make_claims(order)
            met = {asked[n].job.job_id for n in find_fitting(situation.inventory, asked)}
            order = list(takewhile(lambda job: job.job_id in met, order))
        return run_list(self.name, situation, order)
