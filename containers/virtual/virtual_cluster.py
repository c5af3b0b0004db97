"""A cluster on a virtual clock, driven by each job's ground truth.

It repeats the rounds of the Shockwave paper's simulator (NSDI '23, section 8), which builds on
Gavel's (OSDI '20): whole steps, restart overhead, completion inside a round, and changes of batch
size at a round's end. `docs/simulation.md` has the details.
"""

from collections.abc import Mapping, Sequence, Set

import numpy as np

from containers.runtime import ContainerEvent, EventKind, Lease, ResumePoint, Terms
from containers.virtual.simulated_cluster import SimulatedCluster, TruthFactory
from containers.virtual.simulated_jobs import SimulatedJobs
from containers.virtual.truth import GroundTruth
from predictor.arrays import Bools, Floats, Ints
from predictor.job import EpochReport, JobProgress, JobSpec

SHORT_RUN_SECONDS = 5.0
"""A restart is charged only to a run that ends within this time of the full round, as in the
published simulator (docs/simulation.md)."""

STALL_ROUNDS = 5
"""Rounds without remaining steps after which a job counts as finished, as in the published
simulator (docs/simulation.md)."""


class VirtualCluster(SimulatedCluster):
    """A `Runtime` on a virtual clock; a `VirtualFactory` opens it.

    A job without a lease in the previous round spends `Terms.restart` of a full round on restoring
    its checkpoint. The first round of a run charges no restart.
    """

    published_rules = True

    def __init__(
        self, truths: Mapping[int, GroundTruth], terms: Terms, resume_point: ResumePoint
    ) -> None:
        self._jobs = SimulatedJobs(tuple(truths.values()), terms.throughputs)
        self._round_seconds = terms.round_seconds
        self._first_round = True
        self._leases: dict[int, tuple[int, ...]] = {}
        self._ran = np.zeros(len(truths), bool)
        self._reports: list[EpochReport] = []
        super().__init__(truths, terms, resume_point)

    @property
    def _active(self) -> Set[int]:
        return self._jobs.rows.keys()

    def _add(self, jobs: Sequence[JobSpec]) -> None:
        self._jobs.add(jobs)

    def _reset(self, job_id: int) -> None:
        self._jobs.restart(job_id)

    def _release(self, job_id: int) -> tuple[int, ...]:
        return self._leases.pop(job_id, ())

    def _launch(self, lease: Lease) -> ContainerEvent:
        row, held = self._jobs.rows[lease.job_id], self._leases.get(lease.job_id, ())
        if self._terms.moves(held, lease.gpus):
            self._ran[row] = False  # charges a restart
        self._jobs.move(lease.job_id, self._terms, lease.gpus)
        if self._ran[row] or held == lease.gpus:
            kind = EventKind.RENEWED
        else:
            kind = EventKind.RESUMED if self._jobs.started[row] else EventKind.STARTED
        self._jobs.started[row] = True
        self._leases[lease.job_id] = lease.gpus
        return ContainerEvent(lease.job_id, kind, self._clock, lease.gpus)

    def advance(self, idle_until: float | None) -> None:
        """See `Runtime.advance`."""
        rows = np.array([self._jobs.rows[job_id] for job_id in self._leases], np.int64)
        self._jobs.share(self._sharing())
        if self._leases:
            held, ended = self._run(rows)
            self._note(rows, ended, self._clock + held)
            self._first_round = False
            self._clock += float(held.max())
        elif idle_until is not None:
            self._clock = max(self._clock, idle_until)
        self._ran[:] = False
        self._ran[rows] = True

    def _sharing(self) -> dict[int, int]:
        """Return the partner's row for each row of a pair."""
        first: dict[int, int] = {}
        sharing: dict[int, int] = {}
        for job_id, gpus in self._leases.items():
            row = self._jobs.rows[job_id]
            other = first.setdefault(gpus[0], row)
            if other != row:
                sharing |= {row: other, other: row}
        return sharing

    def _run(self, rows: Ints) -> tuple[Floats, Bools]:
        """Train jobs for a round; return the seconds each held its GPUs, and whether it ended.

        A pair holds its GPUs until both are done. But a guaranteed job beside an opportunistic one
        ends as if it were alone.
        """
        jobs, rate = self._jobs, self._jobs.rate[rows]
        left = np.maximum(jobs.total_steps[rows] - jobs.steps[rows], 0)
        steps = np.minimum(np.trunc(rate * self._round_seconds), left)
        held: Floats = (self._clock + steps / rate) - self._clock  # with the clock's rounding
        if together := jobs.held_together:
            place = {row: n for n, row in enumerate(rows.tolist())}
            pairs = np.array([[place[row], place[other]] for row, other in together.items()])
            held[pairs[:, 0]] = held[pairs].max(axis=1)
        ran = held.copy()
        if not self._first_round:
            restores = ~self._ran[rows]
            lost = np.where(restores, jobs.restart_seconds[rows], jobs.left_of_restart[rows])
            pays = held > max(self._round_seconds - SHORT_RUN_SECONDS, 0.0)
            pays &= lost > 0.0
            ran[pays] = np.maximum(held[pays] - lost[pays], 0.0)
            steps[pays] = np.trunc(steps[pays] * ran[pays] / held[pays])
            jobs.left_of_restart[rows] = np.where(pays, lost - self._round_seconds, 0.0).clip(0.0)
        jobs.steps[rows] += steps.astype(np.int64)
        jobs.seconds[rows] = ran
        jobs.run_seconds[rows] += ran
        jobs.stalled_rounds[rows] += left == 0
        return held, (left > 0) & (steps == left) | (jobs.stalled_rounds[rows] >= STALL_ROUNDS)

    def _note(self, rows: Ints, ended: Bools, at_seconds: Floats) -> None:
        """Record the events and reports of a round, and apply due changes of batch size.

        `at_seconds` are the times at which the jobs stopped, on the cluster's clock.
        """
        jobs = self._jobs
        # A job's last epoch counts as complete, however short.
        complete = np.where(ended, jobs.epochs_begun(rows), jobs.epochs_complete(rows))
        complete = np.where(jobs.timed[rows], ended, complete)
        reports = jobs.report(rows, complete)
        for row, at in zip(rows[ended].tolist(), at_seconds[ended].tolist(), strict=True):
            job_id = int(jobs.ids[row])
            gpus = self._leases.pop(job_id)
            self._finished.append(ContainerEvent(job_id, EventKind.FINISHED, at, gpus))
        going = rows[~ended]
        due = going[jobs.next_batch_size[going] != jobs.batch_size[going]]
        if due.size:
            reports += jobs.adapt(due)
            order = {job_id: place for place, job_id in enumerate(jobs.ids[rows].tolist())}
            reports.sort(key=lambda report: order[report.job_id])
        jobs.look_ahead(going)
        self._reports += reports

    def _report(self) -> tuple[tuple[EpochReport, ...], tuple[JobProgress, ...]]:
        reports, self._reports = tuple(self._reports), []
        return reports, self._jobs.progress(np.flatnonzero(self._ran))

    def reap(self, job_ids: Sequence[int]) -> None:
        """See `Runtime.reap`."""
        for job_id in job_ids:
            self._ran[self._jobs.rows.pop(job_id)] = False
            self._release(job_id)


class VirtualFactory(TruthFactory):
    """A virtual clock, with jobs that follow the published simulator's rules."""

    cluster = VirtualCluster
