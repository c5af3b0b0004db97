"""Wrappers of a scheduler's sink: one logs rounds, one refuses them once the lease is lost."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from containers.runtime import EventKind
from flows.prefect_server.logs import log_line
from tasks.commands import CommandKind
from tasks.record import RoundRecord, Timings
from tasks.run import Sink

WARNINGS = (EventKind.CRASHED, EventKind.LOST, EventKind.FAILED, CommandKind.REFUSED)

Line = tuple[str, str, dict[str, int]]
"""Kind, message and ids."""


@dataclass(frozen=True)
class LoggingSink:
    """A sink that logs each round once it is durable."""

    sink: Sink
    run: str

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """See `Sink.append`."""
        self.sink.append(record, digest, timings)
        for kind, message, ids in (*_describe_events(record), _summarize(record, timings)):
            level = logging.WARNING if kind in WARNINGS else logging.INFO
            log_line("scheduler", message, level=level, run=self.run, round=record.round, **ids)


def _describe_events(record: RoundRecord) -> Iterator[Line]:
    """Yield the events of jobs and nodes, in order."""
    for spec in record.arrivals:
        yield "submit", f"job {spec.job_id} arrived", {"job": spec.job_id}
    for event in (*record.finished, *record.events):
        why = f": {event.reason}" if event.reason else ""
        yield event.kind, f"job {event.job_id} {event.kind}{why}", {"job": event.job_id}
    for command in record.commands:
        kind, words = command.kind, command.words
        if command.job is not None:
            why = f": {words}" if words else ""
            yield kind, f"{kind} job {command.job}{why}", {"job": command.job}
        else:
            ids = {"node": command.target} if kind.of_node else {}
            yield kind, f"{kind} {words.removeprefix(f'{kind} ')}", ids
    for problem in record.problems:
        yield EventKind.LOST, f"node {problem.node}: {problem.problem}", {"node": problem.node}


def _summarize(record: RoundRecord, timings: Timings) -> Line:
    took = timings.collect_ms + timings.predict_ms + timings.solve_ms + timings.dispatch_ms
    held = len({gpu for lease in record.leases for gpu in lease.gpus})
    message = (
        f"round {record.round}: {len(record.leases)} jobs hold {held} GPUs, after {took:.0f} ms"
    )
    return "round", message, {}


@dataclass(frozen=True)
class FencedSink:
    """A sink that refuses records once this process has lost its lease.

    Attributes:
        check: Raises if another process holds the lease.
    """

    sink: Sink
    check: Callable[[], object]

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """See `Sink.append`.

        Raises:
            WarehouseBusy: Another process holds the lease.
        """
        self.check()
        self.sink.append(record, digest, timings)
