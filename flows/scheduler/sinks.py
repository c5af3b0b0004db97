"""Wrappers of a scheduler's sink: one logs rounds, one refuses them once the lease is lost."""

from collections.abc import Callable
from dataclasses import dataclass

from flows.prefect_server.logs import log_line
from tasks.record import RoundRecord, Timings
from tasks.round_log import describe_events, summarize_round
from tasks.run import Sink


@dataclass(frozen=True)
class LoggingSink:
    """A sink that logs each round once it is durable."""

    sink: Sink
    run: str

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """See `Sink.append`."""
        self.sink.append(record, digest, timings)
        events = (*record.finished, *record.events)
        lines = describe_events(record.arrivals, events, record.commands, record.problems)
        for line in (*lines, summarize_round(record, timings)):
            log_line(
                "scheduler",
                line.message,
                level=line.level,
                run=self.run,
                round=record.round,
                **line.ids,
            )


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
