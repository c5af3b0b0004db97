"""The runtime of jobs whose leases an engine runs, in Docker containers for example.

Every step lists the containers anew, so a scheduler crash or a round dispatched twice does no
harm. Names of containers are functions of their lease. Running containers of a lease are kept;
containers without a lease are ended before their GPUs are leased again.
"""

import errno
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from containers.clock import RunClock
from containers.leasing.ends import interpret_exit
from containers.leasing.engine import Cluster, Engine, Found, NodeGone, Refused, Unstartable
from containers.leasing.folder import describe_excess, describe_job, make_folder, replace_file
from containers.leasing.telemetry import JobLog, Log, News
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
from predictor.job import JobProgress, JobSpec
from predictor.parts import Mapper
from solver.inventory import Inventory

LOOK_SECONDS = 0.25
"""Poll interval of containers within a round. An engineering bound; no sweep is recorded."""
FOLDER_SECONDS = 5.0
"""Interval at which folders of running jobs are measured, besides the end of each round. A job
can exceed its limit for up to this long. An engineering bound; no sweep is recorded."""
OBSTACLES = (
    *(errno.EACCES, errno.EPERM, errno.EDQUOT),
    *(errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP),
)
"""Write errors that a job can cause in its folder, unlike a full storage."""


@dataclass
class _Held:
    """A lease and the liveness of its containers.

    Attributes:
        began: The clock when its launch ended; its end is not before.
        end: Kind, clock and reason of its end; None while it runs.
        image: The id of its job's own image, in words; empty without one or before the start.
        adopted: Whether it began under a previous scheduler process.
        shared: Whether its containers have a pair's share of processors; None if unknown.
        cpu_seconds: Processor time of its containers at the last observation, by id.
    """

    gpus: tuple[int, ...]
    began: float = 0.0
    end: tuple[EventKind, float, str] | None = None
    image: str = ""
    adopted: bool = False
    shared: bool | None = False
    quiet_rounds: int = 0
    cpu_seconds: dict[str, float] = field(default_factory=dict)


class LeasedRuntime:
    """A `Runtime` of jobs in the containers, or other programs, of an engine.

    Opening it ends containers without a lease, which a crashed scheduler may leave.

    Attributes:
        clock: Clock of the run.
    """

    def __init__(
        self,
        engine: Engine,
        cluster: Cluster,
        clock: RunClock,
        terms: Terms,
        resume_point: ResumePoint,
    ) -> None:
        self._engine, self._cluster, self._run, self.clock = engine, cluster, terms.run, clock
        self._round_seconds, self._began = terms.round_seconds, resume_point.clock_seconds
        engine.check(resume_point.jobs)
        self._logs = {
            spec.job_id: self._log(
                spec,
                resume_point.epochs.get(spec.job_id, 0),
                resume_point.run_seconds.get(spec.job_id, 0.0),
            )
            for spec in resume_point.jobs
        }
        self._started = set(resume_point.started)
        self._withdrawn: dict[int, str] = {}
        self._leases = {
            job_id: _Held(gpus, adopted=True, shared=None)
            for job_id, gpus in resume_point.leases.items()
        }
        self._occupied: dict[int, str] = {}
        self._measured = self._began
        self._end_unleased()

    def resize(self, inventory: Inventory, removed: Collection[int]) -> None:
        """See `Runtime.resize`; removed nodes are queried until they are empty."""
        self._engine.leave(removed)

    def close(self) -> None:
        """Close the engine's connections; containers keep running."""
        self._engine.close()

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        """See `Runtime.admit`."""
        self._engine.check(jobs)
        for spec in jobs:
            self._logs.setdefault(spec.job_id, self._log(spec))

    def _log(self, spec: JobSpec, epochs: int = 0, run_seconds: float = 0.0) -> Log:
        log = TimedLog if spec.timed else JobLog
        return log(self._cluster.folder(self._run, spec.job_id), spec, epochs, run_seconds)

    def withdraw(self, job_id: int, reason: str = BY_ITS_OWNER) -> None:
        """See `Runtime.withdraw`; the next launch ends its containers."""
        self._withdrawn[job_id] = reason

    def preempt(
        self, reasons: Mapping[int, str], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        """See `Runtime.preempt`."""
        if not reasons:
            return ()
        placed = (entry for entry in self._engine.look() if entry.job_id in reasons)
        remarks, _ = self._engine.end(placed, self._cluster.grace_seconds, each)
        events = []
        for job_id, reason in reasons.items():
            lease = self._leases.pop(job_id, _Held(()))  # none if preempted before
            words = "; ".join(filter(None, (reason, remarks.get(job_id), self._lapse(job_id))))
            now = self.clock.now()
            events.append(ContainerEvent(job_id, EventKind.PREEMPTED, now, lease.gpus, words))
        return tuple(events)

    def _lapse(self, job_id: int) -> str:
        """Say that a job's reported progress went back in this lease; empty if it did not."""
        lapse = (log := self._logs.get(job_id)) and log.went_back
        return f"its progress went back from {lapse[0]:.1%} to {lapse[1]:.1%}" if lapse else ""

    def launch(
        self, number: int, leases: Sequence[Lease], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        """See `Runtime.launch`."""
        fresh = set()
        for lease in leases:
            held = self._leases.get(lease.job_id)
            if held is None or held.gpus != lease.gpus:
                self._leases[lease.job_id] = _Held(lease.gpus)
                fresh.add(lease.job_id)
        up = self._end_unleased(fresh, number)
        starting = [lease for lease in leases if lease.job_id not in up]
        self._engine.map("start", partial(self._start, number), starting, self._first_node, each)
        now, new = self.clock.now(), {lease.job_id for lease in starting}
        kinds = [
            EventKind.STARTED
            if lease.job_id not in self._started
            else EventKind.RESUMED
            if lease.job_id in new
            else EventKind.RENEWED
            for lease in leases
        ]
        self._started.update(lease.job_id for lease in leases)
        for job_id in new:
            self._leases[job_id].began = now
        return tuple(
            ContainerEvent(lease.job_id, kind, now, lease.gpus, self._leases[lease.job_id].image)
            for lease, kind in zip(leases, kinds, strict=True)
        )

    def _end_unleased(self, fresh: Collection[int] = (), number: int = 0) -> set[int]:
        """End containers without a lease.

        Returns the jobs that have all containers of their lease; `fresh` are jobs whose lease
        begins in round `number`.
        """
        found, up, kept = self._engine.look(), set(), []
        for job_id, lease in self._leases.items():
            mine = [
                entry
                for entry in self._own(job_id, lease, found)
                if _is_of_lease(entry, number if job_id in fresh else None)
            ]
            if sorted(entry.node for entry in mine) == sorted(self._cluster.by_node(lease.gpus)):
                up.add(job_id)
                kept += mine
        unleased = (entry for entry in found if entry not in kept)
        _, left = self._engine.end(unleased, self._cluster.grace_seconds)
        self._divide(kept)
        self._occupied = {gpu: entry.name for entry in left for gpu in entry.gpus}
        return up

    def _first_node(self, lease: Lease) -> int:
        return next(iter(self._cluster.by_node(lease.gpus)))

    def _divide(self, found: Collection[Found]) -> None:
        """Set each job's CPU quota: that of its GPUs, halved if a pair shares them.

        A job whose partner ended gets the whole quota at once. New containers start with theirs.
        """
        running = {job_id: lease for job_id, lease in self._leases.items() if not lease.end}
        holders = Counter(lease.gpus for lease in running.values())
        for job_id, lease in running.items():
            shared = holders[lease.gpus] > 1
            if lease.shared == shared:
                continue
            divided = [
                self._engine.divide(entry, shared=shared)
                for entry in self._own(job_id, lease, found)
                if entry.running
            ]
            if all(divided):
                lease.shared = shared

    def _own(self, job_id: int, lease: _Held, found: Iterable[Found]) -> list[Found]:
        """Return the containers of a lease: those of its job on its GPUs."""
        places = self._cluster.by_node(lease.gpus)
        return [
            entry
            for entry in found
            if (entry.job_id, entry.gpus) == (job_id, lease.gpus) and entry.node in places
        ]

    def _start(self, number: int, lease: Lease) -> None:
        """Start a lease's containers; `observe` reports failures at the end of the round."""
        held, spec = self._leases[lease.job_id], self._logs[lease.job_id].spec
        try:
            attempt = self._engine.prepare(number, lease, spec, shared=bool(held.shared))
            held.image = f"of image {attempt.image}" if attempt.image else ""
            for gpu in lease.gpus:
                if gpu in self._occupied:
                    raise Refused(f"GPU {gpu} is still held by {self._occupied[gpu]}")
            self._write_job(lease, attempt.name)
            self._engine.start(attempt)
        except Refused as error:
            kind = EventKind.UNSTARTED if isinstance(error, Unstartable) else EventKind.LOST
            held.end = (kind, self.clock.now(), f"could not be started: {error}")
        except NodeGone as error:
            held.end = (EventKind.LOST, self.clock.now(), f"its node does not answer: {error}")
        except OSError as error:
            kind = EventKind.CRASHED if error.errno in OBSTACLES else EventKind.LOST
            problem = f"its folder cannot be written: {error.strerror or error}"
            held.end = (kind, self.clock.now(), problem)

    def _write_job(self, lease: Lease, name: str) -> None:
        """Write the job's `job.json`, and name the lease that may write to its folder."""
        log = self._logs[lease.job_id]
        make_folder(log.folder)
        log.begin()
        replace_file(log.folder / "job.json", json.dumps(describe_job(log.spec, len(lease.gpus))))
        replace_file(log.folder / "lease", name)
        self._cluster.hand_over(log.folder)

    def advance(self, idle_until: float | None) -> None:
        """See `Runtime.advance`; idle rounds end too, to query unreachable nodes again."""
        end = self._began + self._round_seconds
        if not self._leases and idle_until is not None:
            end = min(end, idle_until)
        while (now := self.clock.now()) < end:
            self.clock.wait_for(min(now + LOOK_SECONDS, end))
            if self._leases:
                self._note_ends()
                if all(lease.end for lease in self._leases.values()):
                    break

    def _note_ends(self, *, again: bool = False) -> list[Found]:
        """Set the end of leases whose containers have ended; return all containers."""
        found = self._engine.look(again=again)
        for entry in found:
            if entry.running:
                self._engine.usage(entry)  # the first call starts the measurement
        for job_id, lease in self._leases.items():
            if not lease.end:
                end = self._end_of(lease, self._own(job_id, lease, found))
                lease.end = end and (end[0], self.clock.now(), end[1])
        self._divide(found)
        if again or self.clock.now() >= self._measured + FOLDER_SECONDS:
            self._bound_folders(found)
        return found

    def _bound_folders(self, found: Sequence[Found]) -> None:
        """Fail jobs whose folder exceeds its limit, and kill them before it grows further."""
        self._measured = self.clock.now()
        killed: list[Found] = []
        for job_id, lease in self._leases.items():
            if lease.end and lease.end[0] is EventKind.FINISHED:
                continue
            problem = describe_excess(self._logs[job_id].folder, self._cluster.folder_bytes)
            if problem:
                lease.end = (EventKind.FAILED, self.clock.now(), problem)
                killed += self._own(job_id, lease, found)
        if killed:
            self._engine.end(killed, grace_seconds=0)

    def _end_of(self, lease: _Held, found: Sequence[Found]) -> tuple[EventKind, str] | None:
        """Return the kind and reason of a lease's end; None while it runs."""
        places = self._cluster.by_node(lease.gpus)
        gone = [node for node in places if node in self._engine.gone]
        if gone:
            name = self._cluster.names[gone[0]]
            return EventKind.LOST, f"node {name} does not answer: {self._engine.gone[gone[0]]}"
        if len(found) < len(places):
            return EventKind.LOST, f"its {self._engine.program} vanished"
        ended = [entry for entry in found if not entry.running]
        program = self._engine.program
        ends = [interpret_exit(self._engine.exit(entry), program) for entry in ended]
        bad = next((end for end in ends if end[0] is not EventKind.FINISHED), None)
        return bad or (ends[0] if len(ends) == len(places) else None)

    def observe(self, each: Mapper | None = None) -> Observation:
        """See `Runtime.observe`."""
        found = self._note_ends(again=True)
        held = [Lease(job_id, self._leases[job_id].gpus) for job_id in sorted(self._leases)]
        read = partial(self._read, found, self.clock.now())
        news = self._engine.map("read", read, held, self._first_node, each)
        for job_id in sorted(self._withdrawn.keys() & self._logs.keys()):
            lease = self._leases.setdefault(job_id, _Held(()))
            if not (lease.end and lease.end[0] is EventKind.FINISHED):
                lease.end = (EventKind.WITHDRAWN, self.clock.now(), self._withdrawn[job_id])
        self._withdrawn.clear()
        # The next launch ends their containers, after this observation is recorded.
        ended = [job_id for job_id, lease in self._leases.items() if lease.end]
        self._began = self.clock.now()
        problems = self._engine.problems()
        return Observation(
            clock_seconds=self._began,
            finished=tuple(sorted(map(self._ended, ended), key=lambda e: (e.at_seconds, e.job_id))),
            reports=tuple(report for job in news for report in job.reports),
            progress=tuple(job.progress for job in news),
            drained=tuple(sorted(problems)),
            problems=tuple(NodeProblem(node, problems[node]) for node in sorted(problems)),
            losses=tuple(loss for job in news for loss in job.losses),
        )

    def _read(self, found: Sequence[Found], now: float, held: Lease) -> News:
        """Read a job's telemetry, add its resource usage, and judge its liveness."""
        lease, log = self._leases[held.job_id], self._logs[held.job_id]
        until = lease.end[1] if lease.end else now
        news = log.read(
            trained=lease.end is not None and lease.end[0] is EventKind.FINISHED,
            held_seconds=max(until - self._began, 0.0),
            # The next observation also reads the training of the grace period.
            most_seconds=now - self._began + self._cluster.grace_seconds,
        )
        self._judge(lease, news.progress, log.spec.epochs, alive=news.alive)
        return news._replace(progress=self._with_usage(news.progress, lease, found))

    def _with_usage(self, stands: JobProgress, lease: _Held, found: Sequence[Found]) -> JobProgress:
        """Add the resource usage of the job's containers since the last observation."""
        mine = [entry for entry in found if entry.job_id == stands.job_id and entry.running]
        usage = [(entry.id, now) for entry in mine if (now := self._engine.usage(entry))]
        before = dict(lease.cpu_seconds)
        for container, now in usage:
            lease.cpu_seconds[container] = now.cpu_seconds
            before.setdefault(container, now.cpu_seconds if lease.adopted else 0.0)
        return replace(
            stands,
            cpu_seconds=sum(now.cpu_seconds - before[container] for container, now in usage),
            memory_bytes=sum(now.memory_bytes for _, now in usage),
            gpu_share=self._engine.gpu_share(lease.gpus),
        )

    def _judge(self, lease: _Held, stands: JobProgress, epochs: int, *, alive: bool) -> None:
        """Check a container's exit and liveness against its job's telemetry."""
        now = self.clock.now()
        if lease.end and lease.end[0] is EventKind.FINISHED and stands.epochs < epochs:
            words = f"exited as if done, and reported {stands.epochs} of {epochs} epochs"
            lease.end = (EventKind.CRASHED, lease.end[1], words)
        lease.quiet_rounds = 0 if alive else lease.quiet_rounds + 1
        if not lease.end and lease.quiet_rounds >= self._cluster.hung_rounds:
            hung = f"hung: no step completed for {lease.quiet_rounds} rounds"
            lease.end = (EventKind.CRASHED, now, hung)

    def _ended(self, job_id: int) -> ContainerEvent:
        lease = self._leases.pop(job_id)
        kind, at, reason = lease.end or (EventKind.LOST, self.clock.now(), "")
        return ContainerEvent(job_id, kind, max(at, lease.began), lease.gpus, reason)

    def reap(self, job_ids: Sequence[int]) -> None:
        """See `Runtime.reap`; folders stay, and the next launch ends the containers."""
        for job_id in job_ids:
            del self._logs[job_id]
            self._leases.pop(job_id, None)


def _is_of_lease(found: Found, begins: int | None) -> bool:
    """Return whether a container of the lease's job, on its GPUs, belongs to the lease.

    A running container of an earlier lease does not, since it may hang. An ended container of
    a continued lease does, so that its exit can be read. `begins` is the current round if the
    lease begins in it, or None for a continued lease.
    """
    if begins is None:
        return found.begun
    return found.running and found.round == begins
