"""The local API of a service for one caller, restricted to what the caller's role allows."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from flows.api.commands import ServiceCommands
from flows.api.forecast import ForecastRow, forecast_change
from flows.api.job_history import JobHistory, PriceRow, TenantRow, UsageRow
from flows.api.named_commands import NamedCommands
from flows.api.requests import NodeRequest, TenantUpdate, WhatIf, WindowRequest
from flows.api.rows import (
    Accepted,
    DryRun,
    EventRow,
    JobRow,
    NodeRow,
    QueueRow,
    Status,
    WindowRow,
    censor,
)
from flows.api.submission import parse_job
from flows.runs.job_file import JobFile
from flows.runs.toml_file import validate_fields
from predictor.errors import InputError
from predictor.job import JobSpec
from tasks.commands import CommandKind
from warehouse.inbox.entries import Entry
from warehouse.inbox.tokens import Role, Token

if TYPE_CHECKING:
    from containers.docker.daemon import Shell
    from flows.api.job_logs import JobLogs, LogPlace
    from flows.explain.answer import Answer

POLL_SECONDS = 1.0
"""Poll interval for new events and logs of a local caller. An engineering choice."""


DEFAULT_TENANT = "default"
"""Tenant of jobs that name none."""


class NotAllowed(InputError):
    """The caller's role does not allow the request."""


class AuthorizedApi(NamedCommands):
    """The API of a warehouse's service for one caller; `Client` is the same over HTTP.

    Readers see everything. Tenants see and command only their own jobs; other jobs do not exist for
    them. Operators see and command everything.
    """

    def __init__(
        self,
        service: ServiceCommands,
        caller: Token,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.service, self.caller = service, caller
        self._tenant = caller.tenant if caller.role is Role.TENANT else None
        self._sleep = sleep

    def get_caller(self) -> Token:
        """Return the caller's name, role and tenant."""
        return self.caller

    def submit(self, job: JobFile | Mapping[str, Any], *, key: str = "") -> Accepted:
        """Submit a job durably.

        Args:
            job: The fields of a job's file. A tenant's job belongs to that tenant, and its budget
                is at most 1.
            key: Idempotency key; tenants' keys never collide.

        Raises:
            NotAllowed: The caller may not submit the job.
            InputError: The cluster cannot run the job, or a field is invalid.
        """
        self._refuse_readers()
        declared, own = parse_job(Path("job"), job), self._own_key(key)
        specs = self._specs(declared, self.service.inbox.number_of(own) if declared.after else None)
        return self._receipt(self.service.submit(*specs, by=self.caller.name, key=own))

    def store_code(self, archive: BinaryIO, tenant: str = "") -> str:
        """Store the code of jobs durably, and return the SHA-256 of its archive.

        Args:
            archive: A .tar.gz of files and folders.
            tenant: Whose jobs may name it; by default the caller's.

        Raises:
            NotAllowed: The caller may not submit jobs of the tenant.
            InputError: The archive is refused.
        """
        return self.service.store_code(archive, find_code_owner(self.caller, tenant))

    def forecast_job(self, job: JobFile | Mapping[str, Any]) -> DryRun:
        """Forecast the start and end of a job, without submitting it.

        Raises:
            NotAllowed: The caller may not submit the job.
            InputError: The cluster cannot run the job, or a field is invalid.
        """
        return self.service.forecast_job(self._specs(parse_job(Path("job"), job))[0])

    def _specs(self, job: JobFile, known: int | None = None) -> tuple[JobSpec, ...]:
        find = partial(self.service.find_predecessors, tenant=self._tenant, known=known)
        return self.service.make_specs(self._restrict(job), find)

    def _restrict(self, job: JobFile) -> JobFile:
        """Assign a tenant's job to the tenant; refuse fields that a tenant may not set."""
        if self._tenant is None:
            return job
        if "tenant" not in job.model_fields_set:
            job = job.model_copy(update={"tenant": self._tenant})
        if job.tenant != self._tenant:
            raise NotAllowed(
                "tenant", f"the token does not belong to tenant {job.tenant!r}", "leave it out"
            )
        if job.budget > 1.0:
            raise NotAllowed("budget", "only operators may give more than 1", "leave it out")
        return job

    def forecast(self, change: WhatIf | Mapping[str, Any]) -> list[ForecastRow]:
        """Forecast the active jobs, with and without a hypothetical change.

        Args:
            change: The fields of a `WhatIf`; empty for the present plan only. Tenants may change
                only their own jobs.

        Raises:
            NotAllowed: The caller may not make such a change.
            InputError: The change is invalid.
        """
        change = validate_fields("change", WhatIf, change, "a change")
        if self._tenant is not None:
            if change.budget or change.drain or change.cordon or change.uncordon:
                raise _make_refusal("only operators may suppose other budgets or nodes")
            jobs = [self._restrict(job) for job in change.submit]
            change = change.model_copy(update={"submit": jobs})
        rows = forecast_change(self.service, change, self._tenant)
        rows = [row for row in rows if self.caller.sees(row.tenant)]
        if (seen := self._visible_jobs()) is None:
            return rows
        seen |= {row.job_id for row in rows}
        return [replace(row, whatif_reason=censor(row.whatif_reason, seen)) for row in rows]

    def send_command(
        self, kind: CommandKind, target: str, *, value: float = 0.0, key: str = ""
    ) -> Accepted:
        """See `NamedCommands.send_command`."""
        self._refuse_readers()
        if kind.of_node or kind is CommandKind.BUDGET:
            self._refuse_tenants(f"{kind.value} is a command of operators only")
        given = {"by": self.caller.name, "key": self._own_key(key)}
        entries = self.service.command(kind, target, value=value, tenant=self._tenant, **given)
        return self._receipt(entries)

    def add_node(self, node: NodeRequest | Mapping[str, Any], *, key: str = "") -> Accepted:
        """Add a node durably; it gets the next index.

        Args:
            node: On Docker hosts, its `name` in the cluster file. On a virtual cluster, `gpus`,
                `gpu_type` and `price`; they default to those of the last node.
            key: Idempotency key.

        Raises:
            NotAllowed: The caller is not an operator.
            InputError: The service cannot take the node.
        """
        request = validate_fields("node", NodeRequest, node, "a node")
        self._refuse_tenants("only operators may add nodes")
        fields = request.model_dump(exclude_unset=True)
        return self._receipt([self.service.add_node(fields, by=self.caller.name, key=key)])

    def add_window(
        self,
        node: str,
        window: WindowRequest | Mapping[str, Any],
        *,
        tenant: str = "",
        key: str = "",
    ) -> Accepted:
        """Set a node aside for a time, durably: for maintenance, or reserved for a tenant.

        Raises:
            NotAllowed: The caller is not an operator.
            InputError: There is no such node, or the window is invalid.
        """
        request = validate_fields("window", WindowRequest, window, "a window")
        self._refuse_tenants("only operators may set nodes aside")
        given = {"by": self.caller.name, "key": key}
        return self._receipt(self.service.add_windows(node, request, tenant, **given))

    def reopen(self, window: int, *, key: str = "") -> Accepted:
        """End a window durably, by its number; one that has not begun does not begin.

        Raises:
            NotAllowed: The caller is not an operator.
            InputError: There is no such window.
        """
        self._refuse_tenants("only operators may end windows")
        return self._receipt([self.service.reopen(window, by=self.caller.name, key=key)])

    def list_windows(self) -> list[WindowRow]:
        """List the windows of nodes that are not over, by start."""
        rows = self.service.list_windows()
        return [row if self.caller.sees(row.tenant) else replace(row, tenant="") for row in rows]

    def update_tenant(
        self, name: str, terms: TenantUpdate | Mapping[str, Any], *, key: str = ""
    ) -> Accepted:
        """Change the given fields of a tenant's `TenantTerms` durably.

        Raises:
            NotAllowed: The caller is not an operator.
            InputError: A term is out of bounds.
        """
        update = validate_fields("terms", TenantUpdate, terms, "a tenant's terms")
        self._refuse_tenants("only operators may change terms of tenants")
        fields = update.model_dump(exclude_unset=True)
        entry = self.service.update_tenant(name, fields, by=self.caller.name, key=key)
        return self._receipt([entry])

    def get_status(self) -> Status:
        """Summarize the state of the service."""
        return self.service.get_status()

    def list_jobs(self) -> list[JobRow]:
        """List all jobs by id."""
        rows = [row for row in self.service.list_jobs() if self.caller.sees(row.tenant)]
        if self._tenant is None:
            return rows
        seen = {row.job_id for row in rows}
        return [replace(row, reason=censor(row.reason, seen)) for row in rows]

    def get_job(self, job: str) -> JobRow:
        """Return a job.

        Raises:
            JobNotFound: There is no such job.
        """
        number = self._find_job(job)
        return next(row for row in self.list_jobs() if row.job_id == number)

    def list_queue(self) -> list[QueueRow]:
        """List the active jobs in queue order, with their expected starts and ends."""
        rows = [row for row in self.service.list_queue() if self.caller.sees(row.tenant)]
        if (seen := self._visible_jobs()) is None:
            return rows
        return [replace(row, waits_for=censor(row.waits_for, seen)) for row in rows]

    def list_nodes(self) -> list[NodeRow]:
        """List the nodes and the jobs that hold their GPUs."""
        rows, seen = self.service.list_nodes(), self._visible_jobs()
        if seen is None:
            return rows
        return [
            replace(
                row,
                jobs=tuple(job for job in row.jobs if job in seen),
                problem=censor(row.problem, seen),
            )
            for row in rows
        ]

    def list_tenants(self) -> list[TenantRow]:
        """List the tenants, their budgets and the GPUs they hold."""
        return [row for row in self.service.list_tenants() if self.caller.sees(row.tenant)]

    def list_prices(self) -> list[PriceRow]:
        """List the market prices of the last rounds."""
        return self.service.list_prices()

    def list_usage(self) -> list[UsageRow]:
        """List how the last rounds used the cluster."""
        return self.service.list_usage()

    def explain(self, job: str) -> "Answer":
        """Explain why a job holds GPUs or not, in the last round in which it was active.

        Raises:
            JobNotFound: There is no such job.
            InputError: No round has taken in the job yet.
        """
        answer, seen = self.service.explain(self._find_job(job)), self._visible_jobs()
        return answer if seen is None else _censor_answer(answer, seen)

    def get_job_history(self, job: str) -> JobHistory:
        """List a job's leases, costs, forecasts and losses.

        Raises:
            JobNotFound: There is no such job.
        """
        return self.service.get_job_history(self._find_job(job))

    def list_events(self, after_round: int = -1) -> list[EventRow]:
        """List events and commands of the rounds after a round, in order."""
        rows = self.service.list_events(after_round)
        # Followers poll every second, mostly without news, so the visible jobs are listed last.
        if not rows or (seen := self._visible_jobs()) is None:
            return rows
        own = (row for row in rows if row.job_id in seen)
        return [replace(row, reason=censor(row.reason, seen)) for row in own]

    def read_events(self, after_round: int = -1, *, follow: bool = False) -> Iterator[EventRow]:
        """Iterate over events (`list_events`); with `follow`, wait for new events forever."""
        while True:
            for row in self.list_events(after_round):
                after_round = row.round
                yield row
            if not follow:
                return
            self._sleep(POLL_SECONDS)

    def open_shell(self, job: str, command: Sequence[str] = ()) -> "Shell":
        """Open a shell, or another program with a terminal, in a running job's first container.

        The caller closes it. The records say who opened it.

        Raises:
            NotAllowed: The caller is a reader.
            JobNotFound: There is no such job.
            InputError: No container of the job runs, or it lacks the program.
        """
        self._refuse_readers()
        return self.service.open_shell(self._find_job(job), command, by=self.caller.name)

    def open_logs(
        self,
        job: str,
        shown: "Mapping[str, LogPlace] | None" = None,
        tail: int | None = None,
    ) -> "JobLogs":
        """Open the output of a job's containers; the caller closes it.

        `shown` says where the caller stopped reading, by container; `tail`, how many of the last
        lines to begin with.

        Raises:
            JobNotFound: There is no such job.
            InputError: The job has no output, or its cluster file is missing.
        """
        return self.service.open_logs(self._find_job(job), shown, tail)

    def read_logs(
        self, job: str, *, follow: bool = False, tail: int | None = None
    ) -> Iterator[bytes]:
        """Read the output of a job's containers, the oldest first; see `flows.api.log_format`.

        With `follow`, wait for new output until the job has ended. `tail`: the last lines only.
        """
        yield from self.open_logs(job, tail=tail).read_text(follow=follow, sleep=self._sleep)

    def export_metrics(self) -> bytes:
        """Export metrics in the text format of Prometheus."""
        from flows.api.metrics import export_metrics

        return export_metrics(self.service, sees=self.caller.sees)

    def close(self) -> None:
        """Close all connections."""
        self.service.inbox.close()

    def _find_job(self, target: str) -> int:
        return self.service.find_job(target, self._tenant)

    def _visible_jobs(self) -> set[int] | None:
        """Return the ids of the jobs that the caller sees; None for all."""
        return None if self._tenant is None else {row.job_id for row in self.list_jobs()}

    def _own_key(self, key: str) -> str:
        """Return a key that no other tenant can use."""
        if not key or self._tenant is None:
            return key
        return f"{len(self._tenant)} {self._tenant} {key}"  # the length keeps keys unambiguous

    def _refuse_readers(self) -> None:
        if self.caller.role is Role.READER:
            raise _make_refusal("a reader changes nothing")

    def _refuse_tenants(self, problem: str) -> None:
        self._refuse_readers()
        if self.caller.role is not Role.OPERATOR:
            raise _make_refusal(problem)

    @staticmethod
    def _receipt(entries: Sequence[Entry]) -> Accepted:
        entry = entries[0]
        kind = None if entry.job else CommandKind(entry.kind)
        no_job = kind and (kind.of_node or kind is CommandKind.REOPEN)
        job = entry.number if entry.job else entry.target
        return Accepted(entry.number, entry.kind, None if no_job or job < 0 else job, len(entries))


def _make_refusal(problem: str) -> NotAllowed:
    return NotAllowed("token", problem, "use a token whose role allows it")


def _censor_answer(answer: "Answer", seen: set[int]) -> "Answer":
    """Remove the ids of jobs that the caller does not see."""
    line, shares = answer.line, answer.holding.shares
    if shares and shares.job_id not in seen:
        shares = replace(shares, job_id=None)
    holders = tuple(
        holder if holder.job_id in seen else replace(holder, job_id=None) for holder in line.holders
    )
    problems = tuple((node, censor(problem, seen)) for node, problem in answer.supply.problems)
    jobs = tuple(job for job in answer.obstacles.jobs if job in seen)
    return replace(
        answer,
        line=replace(line, holders=holders),
        history=tuple(replace(one, reason=censor(one.reason, seen)) for one in answer.history),
        obstacles=replace(answer.obstacles, jobs=jobs),
        holding=replace(answer.holding, shares=shares),
        supply=replace(answer.supply, problems=problems),
    )


def find_code_owner(caller: Token, tenant: str = "") -> str:
    """Return the tenant whose code the caller stores: `tenant`, by default the caller's.

    Raises:
        NotAllowed: The caller may not submit jobs of the tenant.
    """
    if caller.role is Role.READER:
        raise _make_refusal("a reader changes nothing")
    own = caller.tenant if caller.role is Role.TENANT else None
    tenant = tenant or own or DEFAULT_TENANT
    if own not in (None, tenant):
        problem = f"the token does not belong to tenant {tenant[:80]!r}"
        raise NotAllowed("tenant", problem, "leave it out")
    return tenant


def open_local(warehouse: Path, database_url: str = "") -> AuthorizedApi:
    """Open the service of a warehouse on this machine; the local user is an operator.

    Raises:
        InputError: The warehouse has no service.
    """
    try:
        user = getuser()
    except (KeyError, OSError):  # a user without a name
        user = ""
    return AuthorizedApi(ServiceCommands(warehouse, database_url), Token(user, Role.OPERATOR))
