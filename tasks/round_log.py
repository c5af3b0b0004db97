"""The log of a round: lines for what happened to jobs and nodes, and for what each step did."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from containers.runtime import ContainerEvent, EventKind, NodeProblem
from predictor.job import JobSpec
from solver.plan import Plan
from tasks.commands import Command, CommandKind
from tasks.record import RoundRecord, Timings
from tasks.round import Collected, Prediction
from tasks.run import Run

WARNINGS = (EventKind.CRASHED, EventKind.LOST, EventKind.FAILED, CommandKind.REFUSED)

MOST_LINES = 20
"""Most events that the log of a step lists. An engineering bound."""


@dataclass(frozen=True)
class LogLine:
    """A line of a log.

    Attributes:
        ids: Its subject: a `job` or a `node`.
    """

    message: str
    level: int = logging.INFO
    ids: Mapping[str, int] = field(default_factory=dict)


def describe_events(
    arrivals: Iterable[JobSpec],
    events: Iterable[ContainerEvent],
    commands: Iterable[Command],
    problems: Iterable[NodeProblem],
) -> Iterator[LogLine]:
    """Yield a line for each event of a job or node, in order."""
    for spec in arrivals:
        yield LogLine(f"job {spec.job_id} arrived", ids={"job": spec.job_id})
    for event in events:
        why = f": {event.reason}" if event.reason else ""
        message = f"job {event.job_id} {event.kind}{why}"
        yield LogLine(message, _level(event.kind), {"job": event.job_id})
    for command in commands:
        kind, words = command.kind, command.words
        if command.job is not None:
            why = f": {words}" if words else ""
            yield LogLine(f"{kind} job {command.job}{why}", _level(kind), {"job": command.job})
        else:
            ids = {"node": command.target} if kind.of_node else {}
            yield LogLine(f"{kind} {words.removeprefix(f'{kind} ')}", _level(kind), ids)
    for problem in problems:
        message = f"node {problem.node}: {problem.problem}"
        yield LogLine(message, logging.WARNING, {"node": problem.node})


def _level(kind: EventKind | CommandKind) -> int:
    return logging.WARNING if kind in WARNINGS else logging.INFO


def describe_step(run: Run, value: Any) -> Iterator[LogLine]:
    """Yield the lines of a step of a run by what it returned: its first events and a summary."""
    match value:
        case Collected(observation=seen):
            lines = describe_events(value.arrivals, seen.finished, value.commands, seen.problems)
            yield from _bound([*lines])
            yield LogLine(
                f"clock: {seen.clock_seconds:,.1f} s; jobs arrived: {len(value.arrivals)}, "
                f"reported: {len(seen.progress)}; containers ended: {len(seen.finished)}"
            )
        case Prediction():
            yield LogLine(
                f"active jobs: {len(value.active)}; new forecasts: {len(value.forecasts)}"
            )
        case Plan(report=report):
            busy = len({gpu for gpus in value.placement.values() for gpu in gpus})
            market = f"; {report.status} by {report.backend}, gap {report.gap:.2%}"
            yield LogLine(
                f"policy {report.policy}; jobs with GPUs: {len(value.placement)}, busy GPUs: {busy}"
                f"{market if report.prices else ''}"
            )
        case RoundRecord():
            yield LogLine(f"recorded with hash {run.state.last_hash}")
        case tuple():
            yield from _bound([*describe_events((), value, (), ())])
            kinds = Counter(str(event.kind) for event in value)
            counts = ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items()))
            yield LogLine(f"jobs {counts}" if counts else "no job changes its GPUs")


def summarize_round(record: RoundRecord, timings: Timings) -> LogLine:
    """Return the line of a whole round."""
    took = timings.collect_ms + timings.predict_ms + timings.solve_ms + timings.dispatch_ms
    held = len({gpu for lease in record.leases for gpu in lease.gpus})
    return LogLine(
        f"round {record.round}: {len(record.leases)} jobs hold {held} GPUs, after {took:.0f} ms"
    )


def _bound(lines: Sequence[LogLine]) -> Iterator[LogLine]:
    """Yield the first lines, and the number of the others."""
    yield from islice(lines, MOST_LINES)
    if len(lines) > MOST_LINES:
        yield LogLine(f"… and {len(lines) - MOST_LINES} more")
