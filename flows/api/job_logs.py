"""What the containers of a job printed: kept logs of those that ended, and of those that run."""

import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from containers.docker.fleet import Fleet
from containers.docker.logs import kept, unquoted
from containers.docker.nodes import Nodes
from containers.runtime import Lease
from flows.api.front import format_logs
from flows.api.job_history import RoundChanges, find_lifetime
from predictor.errors import InputError
from tasks.record import RuntimeKind
from warehouse.store.reader import Reader

LOOK_SECONDS = 1.0
"""Interval in which following looks for more. An engineering choice."""

MOST_PART = 2**16
"""Most bytes of a part. An engineering bound."""

MOST_END = 2**16
"""Bytes at the end of the shown text by which its place is found again, at most. An engineering
bound."""

MOST_PLACES, MOST_TAILS, MOST_TAIL = 32, 4, 2**9
"""Most containers whose place is kept; most, the latest, whose place has the end of the shown text;
bytes of that end. Engineering bounds: a client that reconnects sends all of it in a header, and
proxies take 8 KiB."""

LogPlace = tuple[int, str]
"""Number of bytes of a container's log that were shown, and the last of them in base64."""

_BEGINS = re.compile(rb"^--- (\S+)\n", re.MULTILINE)
"""The line before the log of a container."""


@dataclass(frozen=True, slots=True)
class RoundLeases:
    """The leases of a round: fields of its record."""

    round: int
    leases: tuple[Lease, ...]


def check_has_logs(reader: Reader, run: str, job_id: int, running: Collection[int] = ()) -> None:
    """Refuse a job that has printed nothing yet.

    Args:
        reader: Reads the warehouse.
        run: The run.
        job_id: The job.
        running: Jobs that are known to hold GPUs.

    Raises:
        InputError: It has never had GPUs, is not in the run, or the cluster is virtual.
        WarehouseError: The records are damaged.
    """
    job, why = f"job {job_id}", f"see shockwave why {job_id} --run {run}"
    if reader.header(run).settings.runtime != RuntimeKind.DOCKER:
        raise InputError(job, "is on a virtual cluster, where jobs print nothing", why)
    if job_id in running:
        return
    lived = find_lifetime(reader.parts(run, RoundChanges, filled=True), job_id)
    rounds = reader.parts(run, RoundLeases, lived.start, lived.stop)
    if not any(lease.job_id == job_id for record in rounds for lease in record.leases):
        raise InputError(job, "has not started", why)


class JobLogs:
    """The output of a job's containers, past and to come, the oldest first.

    Docker keeps the latest lines of a container, so that its log may lose its beginning between
    two looks. Output then goes on behind the text shown last, or with the first line kept.

    Args:
        nodes: The cluster.
        run: The run.
        job_id: The job.
        shown: What is known already, by container.

    Raises:
        ValueError: `shown` is malformed.
    """

    def __init__(
        self, nodes: Nodes, run: str, job_id: int, shown: Mapping[str, LogPlace] | None = None
    ) -> None:
        self._asked = nodes, run, job_id
        known = shown or {}
        self._shown = {name: size for name, (size, _) in known.items()}
        self._ends = {name: b64decode(tail, validate=True) for name, (_, tail) in known.items()}
        self._fleet = Fleet(nodes, run)

    @property
    def place(self) -> dict[str, LogPlace]:
        """What was shown, by container; of many containers, the latest."""
        names = [*self._shown][-MOST_PLACES:]
        tails = {n: self._ends.get(n, b"")[-MOST_TAIL:] for n in names[-MOST_TAILS:]}
        return {n: (self._shown[n], b64encode(tails.get(n, b"")).decode()) for n in names}

    def more(self) -> Iterator[tuple[str, bytes]]:
        """The output since the last call, in parts: container and text."""
        logs = _logs(self._fleet, *self._asked)
        known = [number for number, name in enumerate(logs) if name in self._shown]
        before = {name: len(logs[name]) for name in [*logs][: min(known, default=0)]}
        self._shown = before | self._shown
        for name, log in logs.items():
            if name in self._shown:
                if not log:
                    continue  # it has just ended; its log is kept soon
                self._know(name, log, self._begin(name, log))
            while (begin := self._shown.get(name, 0)) < len(log) or name not in self._shown:
                part = log[begin : begin + MOST_PART]
                self._know(name, log, begin + len(part))
                yield name, part

    def _begin(self, name: str, log: bytes) -> int:
        """Bytes of a log that were shown; fewer than before if it has lost its beginning."""
        shown, end = self._shown[name], self._ends.get(name, b"")
        if shown <= len(log) and log.endswith(end, 0, shown):
            return shown
        behind = log[::-1].find(end[::-1])  # the last place, in linear time
        return len(log) - behind if behind >= 0 else 0

    def _know(self, name: str, log: bytes, shown: int) -> None:
        self._shown[name], self._ends[name] = shown, log[max(0, shown - MOST_END) : shown]

    def text(
        self, *, follow: bool = False, sleep: Callable[[float], None] = time.sleep
    ) -> Iterator[bytes]:
        """The new output, each container's after a line with its name; closes all at the end.

        Args:
            follow: Whether to go on with new output, without end.
            sleep: Waits for some seconds.
        """

        def parts() -> Iterator[tuple[str, bytes]]:
            yield from self.more()
            while follow:
                sleep(LOOK_SECONDS)
                yield from self.more()

        with closing(self):
            yield from format_logs(parts())

    def close(self) -> None:
        """Close the connections."""
        self._fleet.close()


def read_logs(
    nodes: Nodes,
    run: str,
    job_id: int,
    *,
    follow: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bytes]:
    """What a job's containers printed, the oldest first, each after a line with its name.

    Args:
        nodes: The cluster.
        run: The run.
        job_id: The job.
        follow: Whether to go on with new output, without end.
        sleep: Waits for some seconds.
    """
    yield from JobLogs(nodes, run, job_id).text(follow=follow, sleep=sleep)


def _logs(fleet: Fleet, nodes: Nodes, run: str, job_id: int) -> dict[str, bytes]:
    """Logs by container. Running containers are read first: they may end meanwhile."""
    entries = [entry for entry in fleet.look() if entry.job_id == job_id and entry.container.begun]
    running = {entry.container.name: fleet.log(entry) for entry in entries}
    logs: dict[str, bytes] = {}
    for text in kept(nodes, run, job_id):
        _, *parts = _BEGINS.split(text)
        for name, log in zip(parts[::2], parts[1::2], strict=True):
            known = name.decode(errors="replace")
            logs[known] = logs.get(known, b"") + unquoted(log)
    return logs | {name: log for name, log in running.items() if name not in logs}
