"""Drives jobs in real containers round by round, and keeps what the runtime reports."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from containers.clock import RunClock
from containers.docker.docker_runtime import DockerEngine, DockerFactory
from containers.docker.nodes import Nodes
from containers.leasing.engine import Engine
from containers.leasing.runtime import LeasedRuntime
from containers.runtime import (
    ContainerEvent,
    EventKind,
    Lease,
    Observation,
    ResumePoint,
    Runtime,
    Terms,
)
from containers.slurm.cluster import SlurmCluster
from containers.slurm.engine import SlurmEngine
from containers.slurm.slurm_runtime import SlurmFactory
from harness.waiting import HANG_SECONDS
from predictor.allocation import Demand
from predictor.job import EpochReport, JobProgress, JobSpec, Mode

ROUND_SECONDS = 0.5


def job(
    job_id: int, *, gpus: int = 1, epochs: int = 3, samples: int = 64, **fields: Any
) -> JobSpec:
    """A job of the quickest model; by default it takes a fraction of a second."""
    given = {"model": "Recommendation", "batch_size": 32, "max_batch_size": 32, **fields}
    return JobSpec(
        job_id=job_id,
        demand=Demand.gang(gpus),
        mode=Mode.STATIC,
        epochs=epochs,
        samples_per_epoch=samples,
        arrival_seconds=0.0,
        **given,
    )


def long(job_id: int, **fields: Any) -> JobSpec:
    """A job that does not end within a test."""
    return job(job_id, **{"epochs": 10_000, "samples": 256, **fields})


@dataclass
class Driver:
    """Drives a runtime round by round, and keeps all that it reports."""

    runtime: Runtime
    number: int = 0
    leases: dict[int, tuple[int, ...]] = field(default_factory=dict)
    events: list[ContainerEvent] = field(default_factory=list)
    reports: list[EpochReport] = field(default_factory=list)
    progress: dict[int, list[JobProgress]] = field(default_factory=dict)
    seen: list[Observation] = field(default_factory=list)

    def dispatch(self, leases: Mapping[int, tuple[int, ...]]) -> list[ContainerEvent]:
        """Dispatch a round; leases of other jobs are taken back."""
        losing = {job_id: "a test says so" for job_id in self.leases if job_id not in leases}
        new = [Lease(i, gpus) for i, gpus in leases.items() if self.leases.get(i) != gpus]
        events = [*self.runtime.preempt(losing), *self.runtime.launch(self.number, new)]
        self.number += 1
        self.leases = dict(leases)
        self.events += events
        return events

    def look(self) -> Observation:
        """Observe, and forget what ended."""
        seen = self.runtime.observe()
        self.runtime.reap(seen.ended)
        for event in seen.finished:
            self.leases.pop(event.job_id, None)
        self.events += seen.finished
        self.reports += seen.reports
        for entry in seen.progress:
            self.progress.setdefault(entry.job_id, []).append(entry)
        self.seen.append(seen)
        return seen

    def play(self, *rounds: Mapping[int, tuple[int, ...]]) -> Observation:
        """Play rounds with these leases."""
        for leases in rounds:
            self.dispatch(leases)
            self.runtime.advance(None)
            seen = self.look()
        return seen

    def until_over(self) -> "Driver":
        """Continue with the present leases until all of their jobs have ended."""
        deadline = time.monotonic() + HANG_SECONDS
        while self.leases:
            assert time.monotonic() < deadline, self.events
            self.play(self.leases)
        return self

    def until_trained(self, job_id: int, before: Sequence[int] = ()) -> "Driver":
        """Continue with the present leases until a job has completed further epochs."""
        while self.epochs(job_id) == [*before]:
            assert job_id in self.leases, self.events
            self.play(self.leases)
        return self

    def kinds(self, job_id: int) -> list[str]:
        return [str(event.kind) for event in self.events if event.job_id == job_id]

    def last(self, job_id: int) -> ContainerEvent:
        return [event for event in self.events if event.job_id == job_id][-1]

    def epochs(self, job_id: int) -> list[int]:
        """Each reported epoch, in the order of the reports."""
        mine = [report for report in self.reports if report.job_id == job_id]
        return [
            epoch for report in mine for epoch in range(report.epoch, report.epoch + report.epochs)
        ]


Machines = Nodes | SlurmCluster
"""A cluster of Docker hosts, or of a Slurm."""


def open_engine(nodes: Machines, run: str) -> Engine:
    """The engine of a run."""
    if isinstance(nodes, SlurmCluster):
        return SlurmEngine(nodes, run)
    return DockerEngine(nodes, run)


def open_runtime(
    nodes: Machines, run: str, resume_point: ResumePoint, round_seconds: float = ROUND_SECONDS
) -> LeasedRuntime:
    """Open a run at a point; its clock begins there now."""
    clock, terms = RunClock(resume_point.clock_seconds), Terms(run, round_seconds)
    if isinstance(nodes, SlurmCluster):
        return SlurmFactory(nodes, clock).open(terms, resume_point)
    return DockerFactory(nodes, clock).open(terms, resume_point)


@contextmanager
def driven(
    nodes: Machines,
    run: str,
    specs: Iterable[JobSpec],
    *,
    round_seconds: float = ROUND_SECONDS,
    resume_point: ResumePoint | None = None,
) -> Iterator[Driver]:
    """A run that begins now; its containers are removed at the end."""
    stood = replace(resume_point or ResumePoint(), jobs=tuple(specs))
    runtime = open_runtime(nodes, run, stood, round_seconds)
    driver = Driver(runtime, leases=dict(stood.leases))
    try:
        if resume_point is None:
            driver.look()
        yield driver
    finally:
        driver.dispatch({})
        driver.look()
        runtime.close()


def losses(nodes: Machines, run: str, job_id: int) -> dict[int, set[float]]:
    """Mean losses by epoch; an epoch that was trained twice has two."""
    found: dict[int, set[float]] = {}
    for line in (nodes.folder(run, job_id) / "telemetry.jsonl").read_bytes().splitlines():
        with suppress(ValueError, KeyError):
            entry = json.loads(line)
            found.setdefault(entry["epoch"], set()).add(entry["loss"])
    return found


def by_job(events: list[ContainerEvent], kind: EventKind) -> dict[int, str]:
    return {event.job_id: event.reason for event in events if event.kind is kind}
