"""The output of a job's containers: stored logs of ended ones, live logs of running ones."""

import re
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from io import BytesIO

from containers.docker.fleet import Fleet
from containers.docker.logs import MOST_BYTES, log_file, read_job_log, unquote
from containers.docker.nodes import Nodes
from containers.leasing.telemetry import read_end, read_part
from containers.runtime import Lease
from containers.slurm.cluster import SlurmSite
from flows.api.job_history import find_lifetime
from flows.api.log_format import format_logs
from flows.api.rows import RoundChanges
from predictor.errors import InputError
from tasks.record import ON_MACHINES
from warehouse.store.reader import Reader

POLL_SECONDS = 1.0
"""Poll interval for new output. An engineering choice."""

MOST_PART = 2**16
"""Most bytes of a log in one part. An engineering bound."""

MOST_END = 2**16
"""Most bytes at the end of the shown text that are searched in a shortened log. An engineering
bound."""

MOST_PLACES, MOST_TAILS, MOST_TAIL = 32, 4, 2**9
"""A client's places: most containers, most containers with the end of the shown text, and bytes of
that end. Engineering bounds: a reconnecting client sends its places in a header, and proxies accept
8 KiB."""

LogPlace = tuple[int, str]
"""Number of bytes shown of a container's log, and the last of them in base64."""

MOST_READ = 2 * MOST_BYTES
"""Most bytes that are read of a Slurm job's output, which nothing bounds: its last ones."""

EARLIER = "earlier-output"
"""Name of the end of an output whose beginning was not read, if later leases follow it."""

_BEGINS = re.compile(rb"^--- (\S+)\n", re.MULTILINE)
"""Heading of a container's log in a stored file."""


@dataclass(frozen=True, slots=True)
class RoundLeases:
    """The leases of a round: fields of its record."""

    round: int
    leases: tuple[Lease, ...]


def check_has_logs(reader: Reader, run: str, job_id: int, running: Collection[int] = ()) -> None:
    """Refuse a job that has no output yet; `running` are jobs known to hold GPUs.

    Raises:
        InputError: The job never held GPUs, is not in the run, or the cluster is virtual.
        WarehouseError: The records are damaged.
    """
    job, why = f"job {job_id}", f"see shockwave why {job_id} --run {run}"
    if reader.header(run).settings.runtime not in ON_MACHINES:
        raise InputError(job, "is on a virtual cluster, where jobs print nothing", why)
    if job_id in running:
        return
    lived = find_lifetime(reader.parts(run, RoundChanges, filled=True), job_id)
    rounds = reader.parts(run, RoundLeases, lived.start, lived.stop)
    if not any(lease.job_id == job_id for record in rounds for lease in record.leases):
        raise InputError(job, "has not started", why)


def has_ended(reader: Reader, run: str, job_id: int) -> bool:
    """Return whether a job's end is recorded."""
    return find_lifetime(reader.parts(run, RoundChanges, filled=True), job_id).stop < sys.maxsize


class JobLogs:
    """The output of a job's containers, past and future, the oldest first.

    Docker keeps only a container's latest lines, so a log may lose its beginning between two polls.
    Output then continues after the text shown last; if that is gone, with the first line left.
    `shown` says where the caller stopped reading, by container; without it, reading begins with the
    last `tail` lines, by default with all. `has_ended` says whether the job has ended.

    Raises:
        ValueError: `shown` is malformed.
    """

    def __init__(
        self,
        nodes: Nodes | SlurmSite,
        run: str,
        job_id: int,
        shown: Mapping[str, LogPlace] | None = None,
        has_ended: Callable[[], bool] = lambda: True,
        tail: int | None = None,
    ) -> None:
        self._tail = None if shown else tail
        self._asked, self.has_ended = (nodes, run, job_id), has_ended
        known = shown or {}
        self._shown = {name: size for name, (size, _) in known.items()}
        self._ends = {name: b64decode(tail, validate=True) for name, (_, tail) in known.items()}
        # The output of a Slurm job is a file in the storage from its beginning.
        self._fleet = Fleet(nodes, run) if isinstance(nodes, Nodes) else None

    @property
    def places(self) -> dict[str, LogPlace]:
        """Where reading stopped, by container; if there are many containers, for the latest."""
        names = [*self._shown][-MOST_PLACES:]
        tails = {n: self._ends.get(n, b"")[-MOST_TAIL:] for n in names[-MOST_TAILS:]}
        return {n: (self._shown[n], b64encode(tails.get(n, b"")).decode()) for n in names}

    def read_new(self) -> Iterator[tuple[str, bytes]]:
        """Yield the output since the last call in parts: container and text."""
        logs = _read_logs(self._fleet, *self._asked)
        if self._tail is not None:
            self._skip(logs, self._tail)
            self._tail = None
        known = [number for number, name in enumerate(logs) if name in self._shown]
        # Places keep only the latest containers, so all logs before the first known one were shown.
        before = {name: len(logs[name]) for name in [*logs][: min(known, default=0)]}
        self._shown = before | self._shown
        for name, log in logs.items():
            if name in self._shown:
                if not log:
                    continue  # the container has just ended; its log is stored soon
                self._set_shown(name, log, self._find_begin(name, log))
            while (begin := self._shown.get(name, 0)) < len(log) or name not in self._shown:
                part = log[begin : begin + MOST_PART]
                self._set_shown(name, log, begin + len(part))
                yield name, part

    def _skip(self, logs: Mapping[str, bytes], tail: int) -> None:
        """Count all but the last `tail` lines as shown."""
        for name, log in reversed([*logs.items()]):
            lines = BytesIO(log).readlines()  # a progress bar with \r is one line
            self._set_shown(name, log, sum(map(len, lines[: max(0, len(lines) - tail)])))
            tail = max(0, tail - len(lines))

    def _find_begin(self, name: str, log: bytes) -> int:
        """Return how many bytes of a log were shown; fewer if the log lost its beginning."""
        shown, end = self._shown[name], self._ends.get(name, b"")
        if shown <= len(log) and log.endswith(end, 0, shown):
            return shown
        behind = log[::-1].find(end[::-1])  # finds the last occurrence in linear time
        return len(log) - behind if behind >= 0 else 0

    def _set_shown(self, name: str, log: bytes, shown: int) -> None:
        self._shown[name], self._ends[name] = shown, log[max(0, shown - MOST_END) : shown]

    def read_text(
        self, *, follow: bool = False, sleep: Callable[[float], None] = time.sleep
    ) -> Iterator[bytes]:
        """Yield the new output as text (`format_logs`); close the connections at the end.

        With `follow`, wait for new output until the job has ended.
        """

        def parts() -> Iterator[tuple[str, bytes]]:
            ended = not follow or self.has_ended()  # before its last output is read
            yield from self.read_new()
            while not ended:
                sleep(POLL_SECONDS)
                ended = self.has_ended()
                yield from self.read_new()

        with closing(self):
            yield from format_logs(parts())

    def close(self) -> None:
        """Close the connections."""
        if self._fleet:
            self._fleet.close()


def read_logs(
    nodes: Nodes | SlurmSite,
    run: str,
    job_id: int,
    *,
    follow: bool = False,
    has_ended: Callable[[], bool] = lambda: True,
    tail: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bytes]:
    """Read the output of a job's containers as text (`format_logs`), the oldest first.

    With `follow`, wait for new output until the job has ended. `tail`: the last lines only.
    """
    logs = JobLogs(nodes, run, job_id, has_ended=has_ended, tail=tail)
    yield from logs.read_text(follow=follow, sleep=sleep)


def _read_logs(
    fleet: Fleet | None, nodes: Nodes | SlurmSite, run: str, job_id: int
) -> dict[str, bytes]:
    """Read logs by container: running containers first, as they may end meanwhile."""
    if isinstance(nodes, SlurmSite):
        return _read_slurm_log(nodes, run, job_id)
    running = dict[str, bytes]()
    if fleet:
        entries = [entry for entry in fleet.look() if entry.job_id == job_id and entry.begun]
        running = {entry.name: fleet.log(entry) for entry in entries}
    logs: dict[str, bytes] = {}
    for text in read_job_log(nodes.folder(run, job_id)):
        _, *parts = _BEGINS.split(text)
        for name, log in zip(parts[::2], parts[1::2], strict=True):
            known = name.decode(errors="replace")
            logs[known] = logs.get(known, b"") + unquote(log)
    return logs | {name: log for name, log in running.items() if name not in logs}


def _read_slurm_log(site: SlurmSite, run: str, job_id: int) -> dict[str, bytes]:
    """Read the end of a job's output by lease; other lines that begin as headings are its own."""
    folder = site.folder(run, job_id)
    mark = re.escape(f"shockwave-{run}-job-{job_id}-round-") + r"\d+\.\d+"
    logs: dict[str, bytes] = {}
    try:
        size = log_file(folder).stat().st_size
        text = read_end(log_file(folder), MOST_READ)
    except OSError:
        return logs
    first, *parts = re.split(rf"(?:\n|^)--- ({mark})\n".encode(), text, flags=re.MULTILINE)
    if size > MOST_READ:
        name = EARLIER
        with suppress(OSError):
            last = read_part(folder / "lease", 0, MOST_END).decode(errors="replace")
            name = last if not parts and re.fullmatch(mark, last) else EARLIER
        said = f"(cut: only the last {MOST_READ} bytes of the output are shown)\n"
        logs[name] = said.encode() + first.partition(b"\n")[2]
    for found, log in zip(parts[::2], parts[1::2], strict=True):
        logs[found.decode()] = logs.get(found.decode(), b"") + log
    return logs
