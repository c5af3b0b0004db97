"""The runtime of users' own Slurm jobs, which wait in a QOS that never starts them.

Slurm's queue is the only state: it is read anew at each step, and an order is repeated until the
queue shows its effect. A job whose effect came too late, such as one that did not start within its
round, is held again. Only jobs whose owners said that they save on SIGTERM are ever preempted.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from containers.clock import RunClock
from containers.leasing.engine import Refused
from containers.leasing.timing import TimedLog
from containers.runtime import (
    BY_ITS_OWNER,
    ContainerEvent,
    EventKind,
    Lease,
    NodeProblem,
    Observation,
    ResumePoint,
    Terms,
)
from containers.slurm.commands import Commands
from containers.slurm.declaring import SlurmIdentity, is_as_declared
from containers.slurm.hand_over import (
    RUN,
    SETTLE_SECONDS,
    WAIT,
    find_first_nice,
    group_by_nice,
    update_jobs,
)
from containers.slurm.inventory import SlurmNode, find_foreign, list_nodes
from containers.slurm.job_ends import explain_absence, judge_end
from containers.slurm.parsing import SlurmAway
from containers.slurm.queue import (
    HELD,
    SlurmJob,
    list_queue,
    name_nodes,
)
from predictor.job import EpochReport, JobProgress, JobSpec
from predictor.parts import Mapper
from solver.inventory import Inventory

LOOK_SECONDS = 1.0
"""Poll interval of the queue within a round. An engineering bound; no sweep is recorded."""
END_SECONDS = 30.0
"""Longest wait for preempted jobs beyond `KillWait`, as Slurm cleans up after them. An engineering
bound."""

COMPLETING = "COMPLETING"
"""State of a job that has ended or was requeued, while Slurm cleans up after it."""


@dataclass
class _Known:
    """A job of the run.

    Attributes:
        identity: Its last known identity.
        gpus: GPUs of its lease; empty without one.
        began: The clock when its lease began.
        end: Kind, clock and reason of the end of its lease or itself.
        ran: Whether it was seen to run in its lease.
        left_on: Nodes on which it may still run, as Slurm requeued it by itself; none once it
            runs again.
    """

    log: TimedLog
    identity: SlurmIdentity
    gpus: tuple[int, ...] = ()
    began: float = 0.0
    end: tuple[EventKind, float, str] | None = None
    ran: bool = False
    left_on: tuple[str, ...] = ()

    @property
    def spec(self) -> JobSpec:
        return self.log.spec


class SlurmBrain:
    """A `Runtime` of the jobs of a partition, which their users submitted.

    Args:
        nodes: Names of the partition's nodes, as the cluster numbers them.
        kill_wait: Time from SIGTERM to SIGKILL, in seconds.
        now: Returns the time as Slurm knows it, in Unix seconds.

    Attributes:
        clock: Clock of the run.
        queue: The partition's jobs as last read.
    """

    def __init__(
        self,
        commands: Commands,
        partition: str,
        nodes: Sequence[str],
        clock: RunClock,
        terms: Terms,
        resume_point: ResumePoint,
        kill_wait: float = 30.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        assert terms.inventory
        self._commands, self._partition, self._names = commands, partition, tuple(nodes)
        self._inventory, self.clock = terms.inventory, clock
        self._round_seconds, self._began = terms.round_seconds, resume_point.clock_seconds
        self._kill_wait, self._now = kill_wait, now
        self._started = set(resume_point.started)
        self._withdrawn: dict[int, str] = {}
        self._cancelled: set[SlurmIdentity] = set()
        self._jobs: dict[int, _Known] = {}
        self._problems: dict[int, str] = {}
        self._full: dict[int, str] = {}
        self._down: set[str] = set()
        self.queue: tuple[SlurmJob, ...] = ()
        for spec in resume_point.jobs:
            self._add(spec, resume_point)
        for job_id, gpus in resume_point.leases.items():
            self._jobs[job_id].gpus = gpus

    def _add(self, spec: JobSpec, resume_point: ResumePoint) -> None:
        epochs = resume_point.epochs.get(spec.job_id, 0)
        seconds = resume_point.run_seconds.get(spec.job_id, 0.0)
        log = TimedLog(Path("/nonexistent"), spec, epochs, seconds)
        self._jobs[spec.job_id] = _Known(log, SlurmIdentity.read(spec))

    def close(self) -> None:
        """See `Runtime.close`; nothing is held, and jobs run on."""

    def resize(self, inventory: Inventory, removed: Collection[int]) -> None:
        """See `Runtime.resize`; Slurm's administrators add and remove nodes."""

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        """See `Runtime.admit`."""
        for spec in jobs:
            if spec.job_id not in self._jobs:
                self._add(spec, ResumePoint())

    def reap(self, job_ids: Sequence[int]) -> None:
        """See `Runtime.reap`."""
        for job_id in job_ids:
            self._jobs.pop(job_id, None)

    def withdraw(self, job_id: int, reason: str = BY_ITS_OWNER) -> None:
        """See `Runtime.withdraw`."""
        self._withdrawn[job_id] = reason

    def list_known(self) -> frozenset[str]:
        """Return the ids of the queue's jobs that are the run's, or are being cancelled here."""
        known: dict[str, list[SlurmIdentity]] = {}
        for one in (*(job.identity for job in self._jobs.values()), *self._cancelled):
            known.setdefault(one.id, []).append(one)
        return frozenset(
            job.id for job in self.queue if any(one.is_of(job) for one in known.get(job.id, ()))
        )

    def look(self) -> bool:
        """Read the queue; return whether Slurm answered."""
        try:
            self.queue = list_queue(self._commands, self._partition)
        except (SlurmAway, Refused):
            return False
        return True

    def _rows(self) -> dict[int, SlurmJob]:
        """Return the queue's rows of the run's jobs, by job id."""
        by_id = {job.id: job for job in self.queue}
        found = {}
        for job_id, known in self._jobs.items():
            row = by_id.get(known.identity.id)
            if row and known.identity.is_of(row):
                found[job_id] = row
        return found

    def _nodes_of(self, gpus: Iterable[int]) -> list[str]:
        """Return the names of the nodes of GPUs, in order."""
        return [self._names[node] for node in sorted({self._inventory.node(g) for g in gpus})]

    def launch(
        self, number: int, leases: Sequence[Lease], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        """See `Runtime.launch`; a job on other nodes is preempted first."""
        self.look()
        rows, now = self._rows(), self.clock.now()
        moving = [
            lease.job_id
            for lease in leases
            if (row := rows.get(lease.job_id))
            and row.holds_gpus
            and {*row.nodes} != {*self._nodes_of(lease.gpus)}
        ]
        self._take_back(moving)
        events = []
        for lease in leases:
            known = self._jobs[lease.job_id]
            renewed = known.gpus == lease.gpus
            known.gpus, known.end, known.began, known.ran = lease.gpus, None, now, False
            first = lease.job_id not in self._started
            self._started.add(lease.job_id)
            kind = EventKind.RENEWED if renewed else EventKind.RESUMED
            kind = EventKind.STARTED if first else kind
            events.append(ContainerEvent(lease.job_id, kind, now, lease.gpus))
        if self.look():
            self._release()
        return tuple(events)

    def _release(self) -> None:
        """Start the jobs that have a lease and still wait in the closed QOS."""
        for job_id, row in self._rows().items():
            known = self._jobs[job_id]
            if not known.gpus or known.end or not row.waits or row.qos != WAIT:
                continue
            if change := self._find_change(row, known):
                known.end = (EventKind.WITHDRAWN, self.clock.now(), change)
                continue
            if row.restarts > known.identity.restarts:
                continue  # it ran in this lease already; the round's end holds it
            if row.restarts and self._now() < row.submitted + SETTLE_SECONDS:
                continue  # a later look starts it
            if down := self._down.intersection(known.left_on):
                reason = f"it may still run on node {min(down)}, which does not answer"
                known.end = (EventKind.LOST, self.clock.now(), reason)
                continue
            full = [node for gpu in known.gpus if (node := self._inventory.node(gpu)) in self._full]
            if full:
                reason = f"node {self._names[full[0]]}: {self._full[full[0]]}"
                known.end = (EventKind.LOST, self.clock.now(), reason)
                continue
            nodes = name_nodes(self._nodes_of(known.gpus))
            nice = f"Nice={find_first_nice(row)}"
            order = (f"QOS={RUN}", f"ReqNodeList={nodes}", "StartTime=now", nice)
            with suppress(SlurmAway):  # the next look shows whether it was carried out
                refusals = update_jobs(self._commands, [row.id], order)
                if row.id in refusals:
                    said = f"could not be started: {refusals[row.id]}"
                    known.end = (EventKind.LOST, self.clock.now(), said)

    def _find_change(self, row: SlurmJob, known: _Known) -> str:
        """Return why a waiting job is not to start as declared, in words; empty if it is.

        It comes in again, under its new declaration, once nothing keeps it from starting.
        """
        if row.reason in HELD or row.waits_for_jobs:
            return "is held in Slurm, or waits for other jobs there"
        # What Slurm lists of a job that ran includes what it was given.
        if not row.restarts and not is_as_declared(row, known.spec, self._inventory):
            return "was changed in Slurm"
        return ""

    def _hold(self, rows: Iterable[SlurmJob]) -> None:
        """Keep waiting jobs from starting by themselves."""
        with suppress(SlurmAway):  # the next look repeats it
            for ids, nice in group_by_nice(rows):
                update_jobs(self._commands, ids, (f"QOS={WAIT}", "ReqNodeList=", *nice))

    def preempt(
        self, reasons: Mapping[int, str], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        """See `Runtime.preempt`; waits until Slurm has the jobs' GPUs back."""
        if reasons:
            self.look()
        remarks = self._take_back(list(reasons))
        events = []
        for job_id, reason in reasons.items():
            known = self._jobs[job_id]
            words = "; ".join(filter(None, (reason, remarks.get(job_id))))
            now = self.clock.now()
            events.append(ContainerEvent(job_id, EventKind.PREEMPTED, now, known.gpus, words))
            known.gpus, known.end = (), None
        return tuple(events)

    def _take_back(self, job_ids: Sequence[int]) -> dict[int, str]:
        """Requeue jobs that run and may be preempted, and hold them; return remarks."""
        rows, remarks = self._rows(), dict[int, str]()
        holding = {
            j for j in job_ids if j in rows and rows[j].holds_gpus and rows[j].state != COMPLETING
        }
        going = sorted(j for j in holding if self._jobs[j].spec.preemptible)
        for job_id in holding.difference(going):
            remarks[job_id] = "its owner did not say that it saves: it runs on"
        waiting = [rows[j] for j in job_ids if j in rows and rows[j].waits]
        if waiting:
            self._hold(waiting)
        if not going:
            return remarks
        try:
            self._requeue([rows[j].id for j in going])
        except SlurmAway as error:  # the next round's end repeats it
            return remarks | dict.fromkeys(going, str(error))
        except Refused as error:
            remarks |= dict.fromkeys(going, str(error))  # some may have been requeued
        self._hold(rows[j] for j in going)
        left, until = going, self.clock.now() + self._kill_wait + END_SECONDS
        while left and self.clock.now() < until:
            self.clock.wait_for(self.clock.now() + LOOK_SECONDS / 4)
            if self.look():
                rows = self._rows()
                # Without a reason, Slurm has not finished its requeue and would forget an order.
                left = [
                    j
                    for j in left
                    if j in rows and not (rows[j].waits and rows[j].reason != "None")
                    if rows[j].waits or rows[j].holds_gpus
                ]
        for job_id in going:
            if job_id in left:
                remarks[job_id] = "still ends"
            elif job_id in rows:
                self._jobs[job_id].identity = SlurmIdentity.of(rows[job_id])
        return remarks

    def _requeue(self, ids: Sequence[str]) -> None:
        """Requeue jobs, and none that has ended since the last look: it would run again.

        Raises:
            Refused: Slurm refused at least one.
            SlurmAway: It does not answer.
        """
        self._commands.call("scontrol", "requeue", "Incomplete", ",".join(ids))

    def advance(self, idle_until: float | None) -> None:
        """See `Runtime.advance`; repeats orders that Slurm has not carried out."""
        end = self._began + self._round_seconds
        leased = [known for known in self._jobs.values() if known.gpus]
        if not leased and idle_until is not None:
            end = min(end, idle_until)
        while (now := self.clock.now()) < end:
            self.clock.wait_for(min(now + LOOK_SECONDS, end))
            if leased and self.look():
                self._release()
                self._note_ends()
                if all(known.end for known in leased):
                    break

    def _note_ends(self) -> None:
        """Set the end of jobs that ended, were cancelled or are gone."""
        rows, now = self._rows(), self.clock.now()
        for job_id, known in self._jobs.items():
            row = rows.get(job_id)
            known.ran = known.ran or (row is not None and not row.waits)
            if row and row.state == "RUNNING":
                known.left_on = ()
            if known.end and known.end[0] is not EventKind.LOST:
                continue
            if row is None:
                listed = any(job.id == known.identity.id for job in self.queue)
                end = explain_absence(self._commands, known.identity, self._partition, listed)
                if end:
                    known.end = (end[0], now, end[1])
            elif not (row.waits or row.holds_gpus):
                kind, words = judge_end(row.state, row.exit_code)
                known.end = (kind, now, words)
            elif row.waits and (change := self._find_change(row, known)):
                known.end = (EventKind.WITHDRAWN, now, change)

    def observe(self, each: Mapper | None = None) -> Observation:
        """See `Runtime.observe`; while Slurm is away, nothing is known to have changed."""
        now = self.clock.now()
        if self.look():
            self._note_ends()
            self._hold_again()
            self._cancel()
            with suppress(SlurmAway, Refused):
                self._judge(list_nodes(self._commands, self._partition))
        progress, reports = list[JobProgress](), list[EpochReport]()
        for _, known in sorted(self._jobs.items()):
            if not known.gpus:
                continue
            held = (known.end[1] if known.end else now) - max(known.began, self._began)
            held *= known.ran
            trained = known.end is not None and known.end[0] is EventKind.FINISHED
            news = known.log.read(trained=trained, held_seconds=max(held, 0.0), most_seconds=0.0)
            progress.append(news.progress)
            reports += news.reports
        finished = sorted(self._ended(), key=lambda event: (event.at_seconds, event.job_id))
        self._began = self.clock.now()
        return Observation(
            clock_seconds=self._began,
            finished=tuple(finished),
            reports=tuple(reports),
            progress=tuple(progress),
            drained=tuple(sorted(self._problems)),
            problems=tuple(
                NodeProblem(node, self._problems[node]) for node in sorted(self._problems)
            ),
        )

    def _ended(self) -> list[ContainerEvent]:
        events = []
        for job_id, known in self._jobs.items():
            if known.end:
                kind, at, reason = known.end
                at = max(at, known.began)
                events.append(ContainerEvent(job_id, kind, at, known.gpus, reason))
                known.gpus, known.end = (), None
        return events

    def _hold_again(self) -> None:
        """Hold jobs that would start without a lease, or that Slurm requeued by itself.

        A job that runs on after its preemption, as Slurm did not answer then, is preempted again.
        """
        stray = [
            row
            for job_id, row in self._rows().items()
            if row.state == "RUNNING" and not self._jobs[job_id].gpus
            if self._jobs[job_id].spec.preemptible and not self._jobs[job_id].end
        ]
        if stray:
            with suppress(SlurmAway, Refused):
                self._requeue([row.id for row in stray])
            self._hold(stray)
        late = {row.id: row for row in self._rows().values() if self._must_wait(row)}
        if late:
            self._hold(late.values())
            if not self.look():
                return
        now = self.clock.now()
        for job_id, row in self._rows().items():
            known = self._jobs[job_id]
            if row.waits:
                requeued = row.restarts > known.identity.restarts
                if requeued:
                    known.left_on = tuple(self._nodes_of(known.gpus))
                if known.gpus and not known.end:
                    what = "Slurm requeued it" if requeued else f"did not start: {row.reason}"
                    known.end = (EventKind.LOST, now, what)
                known.identity = SlurmIdentity.of(row)
            elif (
                row.id in late and known.gpus
            ):  # it has started in the meantime, so it keeps its lease
                known.ran = True
                with suppress(SlurmAway):
                    update_jobs(self._commands, [row.id], (f"QOS={RUN}",))

    def _must_wait(self, row: SlurmJob) -> bool:
        return row.waits and row.qos != WAIT

    def _cancel(self) -> None:
        """Cancel the jobs that were withdrawn here."""
        for job_id in sorted(self._withdrawn.keys() & self._jobs.keys()):
            known = self._jobs[job_id]
            if not (known.end and known.end[0] is not EventKind.LOST):
                self._cancelled.add(known.identity)
                known.end = (EventKind.WITHDRAWN, self.clock.now(), self._withdrawn[job_id])
        self._withdrawn.clear()
        there = {job.id: job for job in self.queue if job.waits or job.holds_gpus}
        self._cancelled = {
            one for one in self._cancelled if (job := there.get(one.id)) and one.is_of(job)
        }
        if self._cancelled:
            with suppress(SlurmAway, Refused):  # it is repeated until the queue shows its effect
                self._commands.call("scancel", *sorted(one.id for one in self._cancelled))

    def _judge(self, nodes: Sequence[SlurmNode]) -> None:
        """Find nodes that take no jobs: out of service, gone, or in part taken by others.

        A node on which a job of the run still runs stays in service, as its lease must; nothing is
        started there.
        """
        rows = self._rows()
        own: dict[str, int] = {}
        for job_id, known in self._jobs.items():
            row = rows.get(job_id)
            if known.gpus and not known.end and row and row.holds_gpus:
                for node, gpus in row.gpus_by_node.items():
                    own[node] = own.get(node, 0) + gpus
        there = {node.name: node for node in nodes}
        self._down = {node.name for node in nodes if "down" in node.state}
        foreign = find_foreign(nodes, own)
        self._full = {}
        for place, name in enumerate(self._names):
            problem = there[name].problem if name in there else "is no more in the partition"
            if not problem and name in foreign:
                problem = f"others hold {foreign[name]} of its GPUs"
            if problem:
                self._full[place] = problem
        self._problems = {
            place: problem
            for place, problem in self._full.items()
            if not own.get(self._names[place])
        }
