"""The front desk of a service, on its own machine (`LocalDesk`) or over HTTP (`Client`)."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from containers.docker.logs import heading, quoted, unquoted
from flows.api.rows import Accepted, EventRow, JobRow, NodeRow, QueueRow, Status
from tasks.commands import CommandKind

if TYPE_CHECKING:
    from flows.api.job_history import JobHistory, PriceRow, TenantRow
    from flows.api.whatif import ForecastRow
    from flows.explain.answer import Answer


class FrontDesk(ABC):
    """The questions and commands that a service takes: the contract of both implementations.

    A job is named by its id or its name, a node by its index or, on Docker hosts, its name. All
    methods raise `InputError` if they are refused, and `WarehouseBusy` if a later try may succeed.
    """

    @abstractmethod
    def submit(self, job: Mapping[str, Any], *, key: str = "") -> Accepted:
        """Hand a job in; once this returns, it is durable.

        Args:
            job: The fields of a job's file.
            key: Idempotency key: a repetition with the same key has no effect.
        """

    @abstractmethod
    def expect(self, job: Mapping[str, Any]) -> QueueRow:
        """The forecast of a job, as if it were handed in; nothing is accepted."""

    @abstractmethod
    def forecast(self, change: Mapping[str, Any]) -> "list[ForecastRow]":
        """What is expected of the active jobs, as things are and with a change.

        Args:
            change: The fields of a `WhatIf`; none for what is expected as things are.
        """

    @abstractmethod
    def command(
        self, kind: CommandKind, target: str, *, value: float = 0.0, key: str = ""
    ) -> Accepted:
        """Give a command; once this returns, it is durable.

        Args:
            kind: Its kind.
            target: A job or a node.
            value: The new budget, of `budget`.
            key: See `submit`.
        """

    def cancel(self, job: str, *, key: str = "") -> Accepted:
        """Cancel a job: it gets no more GPUs, and ends with the next round."""
        return self.command(CommandKind.CANCEL, job, key=key)

    def hold(self, job: str, *, key: str = "") -> Accepted:
        """Put a job on hold: it gets no GPUs until it is released."""
        return self.command(CommandKind.HOLD, job, key=key)

    def release(self, job: str, *, key: str = "") -> Accepted:
        """Release a job that is on hold."""
        return self.command(CommandKind.RELEASE, job, key=key)

    def requeue(self, job: str, *, key: str = "") -> Accepted:
        """Take a job's GPUs for a round, after which it waits in line."""
        return self.command(CommandKind.REQUEUE, job, key=key)

    def budget(self, job: str, value: float, *, key: str = "") -> Accepted:
        """Give a job another budget in the market."""
        return self.command(CommandKind.BUDGET, job, value=value, key=key)

    def drain(self, node: str, *, key: str = "") -> Accepted:
        """Take a node out of service; jobs on it are preempted."""
        return self.command(CommandKind.DRAIN, node, key=key)

    def cordon(self, node: str, *, key: str = "") -> Accepted:
        """Let no job start on a node; those on it go on."""
        return self.command(CommandKind.CORDON, node, key=key)

    def uncordon(self, node: str, *, key: str = "") -> Accepted:
        """Bring a drained or cordoned node back into service."""
        return self.command(CommandKind.UNCORDON, node, key=key)

    def remove(self, node: str, *, key: str = "") -> Accepted:
        """Take a node out of the cluster for good; jobs on it are preempted."""
        return self.command(CommandKind.REMOVE, node, key=key)

    @abstractmethod
    def add(self, node: Mapping[str, Any], *, key: str = "") -> Accepted:
        """Add a node, which gets the next index; once this returns, it is durable.

        Args:
            node: On Docker hosts its `name` in the cluster file; on a virtual cluster `gpus`,
                `gpu_type` and `price`; fields that are missing are as of the last node.
            key: See `submit`.
        """

    @abstractmethod
    def tenant(self, name: str, terms: Mapping[str, Any], *, key: str = "") -> Accepted:
        """Change the terms of a tenant; once this returns, the change is durable.

        Args:
            name: The tenant.
            terms: The fields of `TenantTerms` that change.
            key: See `submit`.
        """

    @abstractmethod
    def status(self) -> Status:
        """Where the service stands."""

    @abstractmethod
    def jobs(self) -> list[JobRow]:
        """All jobs, by id."""

    @abstractmethod
    def job(self, job: str) -> JobRow:
        """A job."""

    @abstractmethod
    def queue(self) -> list[QueueRow]:
        """The active jobs in line, with what is expected of each."""

    @abstractmethod
    def nodes(self) -> list[NodeRow]:
        """The nodes, and who holds their GPUs."""

    @abstractmethod
    def tenants(self) -> "list[TenantRow]":
        """The tenants, their budgets, and what they hold."""

    @abstractmethod
    def prices(self) -> "list[PriceRow]":
        """What a GPU-round of each type cost in the last rounds."""

    @abstractmethod
    def why(self, job: str) -> "Answer":
        """Why a job has or has no GPUs, in the last round in which it was active."""

    @abstractmethod
    def course(self, job: str) -> "JobHistory":
        """A job so far: its leases, forecasts and losses."""

    @abstractmethod
    def events(self, after_round: int = -1, *, follow: bool = False) -> Iterator[EventRow]:
        """What happened to jobs and nodes, and what was asked of them, in order.

        Args:
            after_round: The last round that is known already.
            follow: Whether to go on with new ones, without end.
        """

    @abstractmethod
    def logs(self, job: str, *, follow: bool = False) -> Iterator[bytes]:
        """What a job's containers printed, the oldest first, each after a line with its name.

        A line of a job that begins like those, with `--- `, has that begin twice.

        Args:
            job: The job.
            follow: Whether to go on with new ones, without end.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def __enter__(self) -> Self:
        """The desk itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close all connections."""
        self.close()


def format_logs(parts: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Output of containers, with a header line of its name where another container begins.

    No line of a job looks like such a header (`containers.docker.logs.quoted`). A tail that could
    still become a header, three bytes at most, waits for the next part.
    """
    latest, before, held = "", b"\n", b""  # the last byte returned of this line; a newline if none
    for name, text in parts:
        head = b""
        if name != latest:
            head = held + (b"" if before == b"\n" and not held else b"\n") + heading(name)
            latest, before, held = name, b"\n", b""
        line = before + held + text
        held = found[1] if (found := _OPEN.search(line)) else b""
        line = line[: len(line) - len(held)]
        yield head + quoted(line)[1:]
        before = b"\n" if line.endswith(b"\n") else b" "
    if held:
        yield held


_OPEN = re.compile(rb"\n(-{1,3})\Z")
"""A tail that may be the beginning of a quoted line."""

_BEGINS = re.compile(rb"--- (\S+)")


def parse_logs(parts: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """What `FrontDesk.logs` gives, line by line, each with its container."""
    name, rest = "", b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            if begins := _BEGINS.fullmatch(line):
                name = begins[1].decode(errors="replace")
            else:
                yield name, unquoted(line).decode(errors="replace")
    if rest:
        yield name, unquoted(rest).decode(errors="replace")
