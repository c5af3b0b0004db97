"""Runtimes of other distributions: how they are made, and what they may report.

A plugin is a `RuntimeFactory`, a class made from the ground truths of a run's jobs:

    [project.entry-points."shockwave.runtimes"]
    slow-start = "slow_start:SlowStart"

Exceptions and invalid reports of its runtime become a `PluginError` before they are recorded.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import GenericAlias
from typing import Any, TypeVar, get_args

from containers.runtime import (
    BY_ITS_OWNER,
    ContainerEvent,
    Lease,
    Observation,
    ResumePoint,
    Runtime,
    RuntimeFactory,
    Terms,
)
from containers.virtual.truth import GroundTruth
from predictor.errors import InputError, PluginError
from predictor.job import LARGEST_LOSS, JobSpec
from predictor.plugins import Kind, Plugin, find_plugin
from predictor.rows import get_typed_fields, is_record
from solver.inventory import Inventory

Answer = TypeVar("Answer")

CALLS = ("admit", "withdraw", "preempt", "launch", "advance", "observe", "reap", "close")
"""The methods of a `Runtime`."""


@dataclass(frozen=True)
class PluggedFactory(RuntimeFactory):
    """The runtime factory of a plugin, imported when a run begins or resumes, not to read it."""

    name: str
    truths: Iterable[GroundTruth]

    @property
    def live(self) -> bool:
        """See `RuntimeFactory.live`."""
        return self._place.live

    def check(self, terms: Terms, jobs: Iterable[JobSpec]) -> None:
        """Refuse jobs that cannot run there.

        Raises:
            InputError: A job cannot run there, or the plugin is not installed.
            PluginError: The plugin cannot be imported, is no `RuntimeFactory`, or failed.
        """
        self._plugin.call("check its jobs", partial(self._place.check, terms, jobs))

    def open(self, terms: Terms, standing: ResumePoint) -> Runtime:
        """See `RuntimeFactory.open`.

        Raises:
            InputError: The plugin is not installed.
            PluginError: The plugin failed, or its object lacks a method of `Runtime`.
        """
        runtime = self._plugin.call("be opened", partial(self._place.open, terms, standing))
        for name in CALLS:
            if not callable(getattr(runtime, name, None)):
                raise self._plugin.refused(f"opens a {type(runtime).__name__} without {name}")
        return _Guarded.at(self._plugin, runtime, standing)

    @cached_property
    def _found(self) -> Plugin | None:
        return find_plugin(Kind.RUNTIMES, self.name)

    @property
    def _plugin(self) -> Plugin:
        if self._found is None:
            raise InputError("runtime", f"{self.name!r} is not installed", "install its package")
        return self._found

    @cached_property
    def _place(self) -> RuntimeFactory:
        plugin = self._plugin
        found = plugin.load()
        if RuntimeFactory not in getattr(found, "__mro__", ()):
            raise plugin.refused(
                f"is no class that inherits shockwave.RuntimeFactory but {found!r}"
            )
        place: RuntimeFactory = plugin.call("be made", partial(found, self.truths))
        return place


@dataclass
class _Guarded:
    """A plugin's `Runtime`, whose errors name the plugin, and whose reports are checked."""

    plugin: Plugin
    inner: Runtime
    clock_seconds: float
    jobs: dict[int, JobSpec]
    leases: dict[int, tuple[int, ...]]
    epochs: dict[int, int]
    run_seconds: dict[int, float] = field(default_factory=dict)
    losses: dict[int, int] = field(default_factory=dict)

    @classmethod
    def at(cls, plugin: Plugin, inner: Runtime, standing: ResumePoint) -> "_Guarded":
        """Guard a runtime that resumes from a point."""
        return cls(
            plugin,
            inner,
            standing.clock_seconds,
            {spec.job_id: spec for spec in standing.jobs},
            dict(standing.leases),
            dict(standing.epochs),
            dict(standing.run_seconds),
        )

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        """See `Runtime.admit`."""
        self._call("admit jobs", partial(self.inner.admit, jobs))
        self.jobs |= {spec.job_id: spec for spec in jobs}

    def withdraw(self, job_id: int, reason: str = BY_ITS_OWNER) -> None:
        """See `Runtime.withdraw`."""
        self._call("withdraw a job", partial(self.inner.withdraw, job_id, reason))

    def resize(self, inventory: Inventory, removed: Collection[int]) -> None:
        """See `Runtime.resize`; only services change nodes, and none runs on a plugin's runtime."""

    def preempt(self, reasons: Mapping[int, str]) -> tuple[ContainerEvent, ...]:
        """See `Runtime.preempt`."""
        due = [(job_id, self.leases[job_id]) for job_id in reasons]
        events = self._call("preempt jobs", partial(self.inner.preempt, reasons))
        self._hold_events(events, due)
        for job_id in reasons:
            del self.leases[job_id]
        return events

    def launch(self, number: int, leases: Sequence[Lease]) -> tuple[ContainerEvent, ...]:
        """See `Runtime.launch`."""
        events = self._call("launch jobs", partial(self.inner.launch, number, leases))
        self._hold_events(events, [(lease.job_id, lease.gpus) for lease in leases])
        self.leases |= {lease.job_id: lease.gpus for lease in leases}
        return events

    def advance(self, idle_until: float | None) -> None:
        """See `Runtime.advance`."""
        self._call("let a round pass", partial(self.inner.advance, idle_until))

    def observe(self) -> Observation:
        """See `Runtime.observe`."""
        seen: Observation = self._call("observe its jobs", self.inner.observe)
        for problem in self._amiss(seen):
            raise self._wrong(f"reported what cannot be: {problem}")
        self.clock_seconds = seen.clock_seconds
        for event in seen.finished:
            self.leases.pop(event.job_id, None)
        return seen

    def reap(self, job_ids: Sequence[int]) -> None:
        """See `Runtime.reap`."""
        self._call("forget jobs", partial(self.inner.reap, job_ids))
        for job_id in job_ids:
            for known in (self.jobs, self.leases, self.epochs, self.run_seconds, self.losses):
                known.pop(job_id, None)

    def close(self) -> None:
        """See `Runtime.close`."""
        self._call("be closed", self.inner.close)

    def _call(self, doing: str, work: Callable[[], Answer]) -> Answer:
        return self.plugin.call(doing, work)

    def _wrong(self, problem: str) -> PluginError:
        return self.plugin.refused(problem)

    def _hold_events(self, events: Any, due: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        """Refuse anything but one event for each lease, in order."""
        for problem in misfits(events, tuple[ContainerEvent, ...], "its events"):
            raise self._wrong(f"answered what cannot be: {problem}")
        found = [(event.job_id, event.gpus) for event in events]
        if found != list(due):
            raise self._wrong(f"answered what cannot be: events of {found}, asked for {[*due]}")

    def _amiss(self, seen: Any) -> Iterator[str]:
        """Yield why an observation cannot be recorded; track what jobs reported."""
        yield from misfits(seen, Observation, "its observation")
        if not self.clock_seconds <= seen.clock_seconds < math.inf:
            yield f"the clock goes from {self.clock_seconds:g} to {seen.clock_seconds:g} s"
        for entry in (*seen.finished, *seen.reports, *seen.progress, *seen.losses):
            if entry.job_id not in self.jobs:
                yield f"job {entry.job_id} is reported, and is not in this runtime"
        for report in seen.reports:
            done, job = self.epochs.get(report.job_id, 0), self.jobs[report.job_id]
            if report.epoch != done or not 1 <= report.epochs <= job.epochs - done:
                last = report.epoch + report.epochs - 1
                yield f"job {job.job_id} reports epochs {report.epoch} to {last} after {done}"
            if report.batch_size < 1 or not 0 <= report.seconds < math.inf:
                yield f"job {job.job_id} has an epoch of {report.batch_size}, {report.seconds:g} s"
            self.epochs[job.job_id] = report.epoch + report.epochs
        for found in seen.losses:
            job_id, reported = found.job_id, self.losses.get(found.job_id, 0)
            if not reported <= found.epoch < self.epochs.get(job_id, 0):
                yield f"job {job_id} has a loss of epoch {found.epoch} after {reported} epochs"
            if not abs(found.loss) <= LARGEST_LOSS:
                yield f"job {job_id} has a loss of {found.loss:g}"
            self.losses[job_id] = found.epoch + 1
        for stood in seen.progress:
            job_id, before = stood.job_id, self.run_seconds.get(stood.job_id, 0.0)
            if job_id not in self.leases:
                yield f"job {job_id} makes progress and held no GPUs"
            if stood.epochs != self.epochs.get(job_id, 0) or not 0 <= stood.fraction <= 1:
                yield f"job {job_id} stands at {stood.epochs} epochs and {stood.fraction:g}"
            if stood.batch_size < 1 or not before <= stood.run_seconds < math.inf:
                yield f"the run time of job {job_id} goes to {stood.run_seconds:g} s"
            if not 0 <= stood.share <= 1 or (stood.share and not self.jobs[job_id].timed):
                yield f"job {job_id} has done the share {stood.share:g} of its work"
            self.run_seconds[job_id] = stood.run_seconds
        for event in seen.finished:
            if event.gpus != self.leases.get(event.job_id, ()):
                yield f"job {event.job_id} gives back GPUs {list(event.gpus)} that it did not hold"


def misfits(value: Any, hint: Any, what: str) -> Iterator[str]:
    """Yield, in words, how a value differs from the type of a record."""
    if isinstance(hint, GenericAlias):  # a tuple of one type
        if not isinstance(value, tuple):
            yield f"{what} is a {type(value).__name__}, no tuple"
            return
        for entry in value:
            yield from misfits(entry, get_args(hint)[0], what)
    elif not isinstance(value, (int, float) if hint is float else hint):
        yield f"{what} has a {type(value).__name__} where {hint.__name__} belongs"
    elif hint is float and not math.isfinite(value):
        yield f"{what} has the number {value}"
    elif is_record(hint):
        for name, part in get_typed_fields(hint):
            yield from misfits(getattr(value, name), part, f"{what}, {name},")
