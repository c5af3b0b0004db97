"""Runtimes of other distributions: how they are made, and what they may report.

A plugin is a `RuntimeFactory`, a class made from the ground truths of a run's jobs:

    [project.entry-points."shockwave.runtimes"]
    slow-start = "slow_start:SlowStart"

Exceptions and invalid reports of its runtime become a `PluginError` before they are recorded.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
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
from predictor.job import JobSpec
from predictor.parts import Mapper
from predictor.plugins import Kind, Plugin, find_plugin
from predictor.rows import get_typed_fields, is_record
from solver.inventory import Inventory
from tasks.reports import Reports

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

    def open(self, terms: Terms, resume_point: ResumePoint) -> Runtime:
        """See `RuntimeFactory.open`.

        Raises:
            InputError: The plugin is not installed.
            PluginError: The plugin failed, or its object lacks a method of `Runtime`.
        """
        runtime = self._plugin.call("be opened", partial(self._place.open, terms, resume_point))
        for name in CALLS:
            if not callable(getattr(runtime, name, None)):
                raise self._plugin.refused(f"opens a {type(runtime).__name__} without {name}")
        return _Guarded.at(self._plugin, runtime, resume_point)

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
                f"is not a class that inherits shockwave.RuntimeFactory but {found!r}"
            )
        place: RuntimeFactory = plugin.call("be made", partial(found, self.truths))
        return place


@dataclass
class _Guarded:
    """A plugin's `Runtime`, whose errors name the plugin, and whose reports are checked."""

    plugin: Plugin
    inner: Runtime
    reports: Reports

    @classmethod
    def at(cls, plugin: Plugin, inner: Runtime, resume_point: ResumePoint) -> "_Guarded":
        """Guard a runtime that resumes from a point."""
        reports = Reports(
            resume_point.clock_seconds,
            active={spec.job_id: spec for spec in resume_point.jobs},
            leases=dict(resume_point.leases),
            epochs=Counter(resume_point.epochs),
            run_seconds=dict(resume_point.run_seconds),
        )
        return cls(plugin, inner, reports)

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        self._call("admit jobs", partial(self.inner.admit, jobs))
        self.reports.active |= {spec.job_id: spec for spec in jobs}

    def withdraw(self, job_id: int, reason: str = BY_ITS_OWNER) -> None:
        self._call("withdraw a job", partial(self.inner.withdraw, job_id, reason))

    def resize(self, inventory: Inventory, removed: Collection[int]) -> None:
        """See `Runtime.resize`; only services change nodes, and none runs on a plugin's runtime."""

    def preempt(
        self, reasons: Mapping[int, str], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        due = [(job_id, self.reports.leases[job_id]) for job_id in reasons]
        events = self._call("preempt jobs", partial(self.inner.preempt, reasons))
        self._hold_events(events, due)
        for job_id in reasons:
            del self.reports.leases[job_id]
        return events

    def launch(
        self, number: int, leases: Sequence[Lease], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        events = self._call("launch jobs", partial(self.inner.launch, number, leases))
        self._hold_events(events, [(lease.job_id, lease.gpus) for lease in leases])
        self.reports.leases |= {lease.job_id: lease.gpus for lease in leases}
        return events

    def advance(self, idle_until: float | None) -> None:
        self._call("let a round pass", partial(self.inner.advance, idle_until))

    def observe(self, each: Mapper | None = None) -> Observation:
        seen: Observation = self._call("observe its jobs", self.inner.observe)
        for problem in chain(
            misfits(seen, Observation, "its observation"), self.reports.check(seen)
        ):
            raise self._wrong(f"reported what cannot be: {problem}")
        return seen

    def reap(self, job_ids: Sequence[int]) -> None:
        self._call("forget jobs", partial(self.inner.reap, job_ids))
        for job_id in job_ids:
            self.reports.active.pop(job_id, None)  # given up by the scheduler
            self.reports.leases.pop(job_id, None)

    def close(self) -> None:
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
