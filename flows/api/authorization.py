"""A service's desk for callers with tokens: access control."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from flows.api.commands import ServiceCommands
from flows.api.job_history import JobHistory, PriceRow, TenantRow
from flows.api.rows import Accepted, EventRow, JobRow, NodeRow, QueueRow, Status, censor
from flows.api.submission import NodeRequest, TenantUpdate, make_specs
from flows.api.whatif import ForecastRow, WhatIf, forecast_change
from flows.runs.job_file import JobFile
from predictor.errors import InputError, WarehouseBusy
from predictor.job import JobSpec
from tasks.commands import CommandKind
from warehouse.inbox.entries import Entry
from warehouse.inbox.tokens import Role, Token, Tokens

if TYPE_CHECKING:
    from flows.api.job_logs import JobLogs, LogPlace
    from flows.explain.answer import Answer

OPERATORS = frozenset((CommandKind.BUDGET, *(kind for kind in CommandKind if kind.of_node)))
"""Commands that only operators may give."""


class NotAllowed(InputError):
    """The caller's role does not allow it."""


class JobNotFound(InputError):
    """There is no such job, or none that the caller sees."""


def make_receipt(entries: Sequence[Entry]) -> Accepted:
    """Entries of the inbox as the answer to their sender."""
    entry = entries[0]
    of_node = entry.job is None and CommandKind(entry.kind).of_node
    about = entry.number if entry.job else entry.target
    return Accepted(entry.number, entry.kind, None if of_node or about < 0 else about, len(entries))


class AuthorizedApi:
    """The desk of a warehouse's service, for callers with tokens.

    Readers see everything, tenants the jobs of their tenant, and command these; operators see and
    command everything. To a tenant, jobs of others do not exist.

    Args:
        warehouse: The warehouse. Its service need not have begun.
        url: See `warehouse.inbox.database.Database`.
        desk: Its desk, if the caller has opened it already.
    """

    def __init__(self, warehouse: Path, url: str = "", desk: ServiceCommands | None = None) -> None:
        self._where = warehouse, url
        self._opening = Lock()
        self._desk = desk
        self._tokens: Tokens | None = None

    def who(self, *tokens: str) -> list[Token | None]:
        """The owners of tokens; None for an invalid token."""
        with self._opening:
            self._tokens = self._tokens or Tokens(*self._where)
        return self._tokens.find(*tokens)

    @property
    def desk(self) -> ServiceCommands:
        """The desk.

        Raises:
            WarehouseBusy: The service has not begun.
        """
        with self._opening:
            if self._desk is None:
                try:
                    self._desk = ServiceCommands(*self._where)
                except InputError:
                    problem = "has not begun"
                    raise WarehouseBusy("service", problem, "try again in some seconds") from None
            return self._desk

    def submit(self, caller: Token, job: JobFile, key: str = "") -> list[Entry]:
        """Accept a job, or the tasks of its array; see `Desk.submit`.

        A tenant's job is of that tenant, whose keys are its own, and its budget is at most 1.

        Raises:
            NotAllowed: The caller may not.
            InputError: The cluster cannot run it, or a field is invalid.
        """
        _check_commands(caller)
        key = _key(caller, key)
        specs = self._specs(caller, job, self.desk.inbox.number_of(key) if job.after else None)
        return self.desk.submit(*specs, by=caller.name, key=key)

    def expect(self, caller: Token, job: JobFile) -> QueueRow:
        """What is expected of a job if it is submitted; see `Desk.expect`.

        Raises:
            NotAllowed: The caller may not submit it.
            InputError: The cluster cannot run it, or a field is invalid.
        """
        return self.desk.expect(self._specs(caller, job)[0])

    def _specs(self, caller: Token, job: JobFile, known: int | None = None) -> tuple[JobSpec, ...]:
        own = caller.tenant if caller.role is Role.TENANT else None
        if own is not None:
            job = _own(caller, job)
        before = partial(self.desk.before, tenant=own, known=known)
        return make_specs(job, self.desk.header.throughputs, self.desk.samples, before)

    def command(
        self, caller: Token, kind: CommandKind, target: str, key: str = "", value: float = 0.0
    ) -> list[Entry]:
        """Accept a command; see `Desk.command`.

        Raises:
            NotAllowed: The caller may not.
            NotThere: There is no such job.
            InputError: There is no such node, or the value is invalid.
        """
        _check_commands(caller)
        if kind in OPERATORS and caller.role is not Role.OPERATOR:
            raise NotAllowed("token", f"{kind.value} is a command of operators only", _ASK)
        desk, key = self.desk, _key(caller, key)
        if kind.of_node:
            return desk.command(kind, target, value=value, by=caller.name, key=key)
        entries = self._entries(
            caller, target, None if target.isdigit() else desk.inbox.number_of(key)
        )
        numbers = [entry.number for entry in entries]
        return desk.command_jobs(kind, numbers, value=value, by=caller.name, key=key)

    def add(self, caller: Token, node: NodeRequest, key: str = "") -> list[Entry]:
        """Accept a further node; see `Desk.add`.

        Raises:
            NotAllowed: The caller is no operator.
            InputError: The service cannot take it.
        """
        _check_commands(caller)
        if caller.role is not Role.OPERATOR:
            raise NotAllowed("token", "only operators may add nodes", _ASK)
        fields = node.model_dump(exclude_unset=True)
        return [self.desk.add(fields, by=caller.name, key=key)]

    def tenant(self, caller: Token, name: str, terms: TenantUpdate, key: str = "") -> list[Entry]:
        """Accept new terms of a tenant; see `Desk.tenant`.

        Raises:
            NotAllowed: The caller is no operator.
            InputError: A term is out of bounds.
        """
        _check_commands(caller)
        if caller.role is not Role.OPERATOR:
            raise NotAllowed("token", "only operators may change terms of tenants", _ASK)
        fields = terms.model_dump(exclude_unset=True)
        return self.desk.tenant(name, fields, by=caller.name, key=key)

    def _entries(self, caller: Token, target: str, known: int | None = None) -> list[Entry]:
        tenant = caller.tenant if caller.role is Role.TENANT else None
        matches = self.desk.inbox.find_all(target, tenant, known)
        if not matches:
            like = self.desk.inbox.suggest(target, tenant)
            remedy = f"{like}give the id or name of one"
            raise JobNotFound("job", f"there is no job {target!r}", remedy)
        return matches

    def job(self, caller: Token, target: str) -> JobRow:
        """A job.

        Raises:
            NotThere: There is none.
        """
        number = self._entries(caller, target)[-1].number
        return next(row for row in self.jobs(caller) if row.job_id == number)

    def jobs(self, caller: Token) -> list[JobRow]:
        """The jobs that the caller sees, by id."""
        rows = [row for row in self.desk.jobs() if caller.sees(row.tenant)]
        if caller.role is not Role.TENANT:
            return rows
        seen = {row.job_id for row in rows}
        return [replace(row, reason=censor(row.reason, seen)) for row in rows]

    def queue(self, caller: Token) -> list[QueueRow]:
        """The active jobs that the caller sees; see `Desk.queue`."""
        rows = [row for row in self.desk.queue() if caller.sees(row.tenant)]
        if (seen := self._seen(caller)) is None:
            return rows
        return [replace(row, waits_for=censor(row.waits_for, seen)) for row in rows]

    def forecast(self, caller: Token, change: WhatIf) -> list[ForecastRow]:
        """What is expected of the jobs that the caller sees; see `flows.api.whatif`.

        A tenant may suppose only what it may ask for.

        Raises:
            NotAllowed: The caller may not.
            InputError: See `flows.api.whatif.forecast`.
        """
        own = caller.tenant if caller.role is Role.TENANT else None
        if own is not None:
            if change.budget or change.drain or change.cordon or change.uncordon:
                raise NotAllowed("token", "only operators may suppose other budgets or nodes", _ASK)
            change = change.model_copy(update={"submit": [_own(caller, j) for j in change.submit]})
        rows = forecast_change(self.desk, change, own)
        rows = [row for row in rows if caller.sees(row.tenant)]
        if (seen := self._seen(caller)) is None:
            return rows
        seen |= {row.job_id for row in rows}
        return [replace(row, whatif_reason=censor(row.whatif_reason, seen)) for row in rows]

    def events(self, caller: Token, after_round: int) -> list[EventRow]:
        """What happened, as far as the caller sees it; see `Desk.events`."""
        rows = self.desk.events(after_round)
        if not rows or (seen := self._seen(caller)) is None:
            return rows  # followers ask every second, mostly in vain
        own = (row for row in rows if row.job_id in seen)
        return [replace(row, reason=censor(row.reason, seen)) for row in own]

    def nodes(self, caller: Token) -> list[NodeRow]:
        """The nodes, with the jobs that the caller sees."""
        rows, seen = self.desk.nodes(), self._seen(caller)
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

    def tenants(self, caller: Token) -> list[TenantRow]:
        """The tenants that the caller sees; see `Desk.tenants`."""
        return [row for row in self.desk.tenants() if caller.sees(row.tenant)]

    def prices(self) -> list[PriceRow]:
        """Prices of the last rounds; see `Desk.prices`."""
        return self.desk.prices()

    def why(self, caller: Token, target: str) -> "Answer":
        """Why a job has or has no GPUs; see `Desk.why`. A tenant sees no ids of others' jobs.

        Raises:
            NotThere: There is none.
            InputError: No round has taken it in yet.
        """
        answer, seen = self.desk.why(self._entries(caller, target)[-1].number), self._seen(caller)
        if seen is None:
            return answer
        holders = (
            holder if holder.job_id in seen else replace(holder, job_id=None)
            for holder in answer.holders
        )
        history = (replace(step, reason=censor(step.reason, seen)) for step in answer.history)
        waits_for = (job for job in answer.waits_for if job in seen)
        shares = answer.shares
        if shares and shares.job_id not in seen:
            shares = replace(shares, job_id=None)
        return replace(
            answer,
            holders=tuple(holders),
            history=tuple(history),
            waits_for=tuple(waits_for),
            shares=shares,
            problems=tuple((node, censor(problem, seen)) for node, problem in answer.problems),
        )

    def printed(
        self, caller: Token, target: str, shown: Mapping[str, "LogPlace"] | None = None
    ) -> "JobLogs":
        """What the containers of a job print; see `Desk.printed`.

        Raises:
            NotThere: There is none.
            InputError: See `Desk.printed`.
        """
        return self.desk.printed(self._entries(caller, target)[-1].number, shown)

    def course(self, caller: Token, target: str) -> JobHistory:
        """A job so far; see `Desk.course`.

        Raises:
            NotThere: There is none.
        """
        return self.desk.course(self._entries(caller, target)[-1].number)

    def _seen(self, caller: Token) -> set[int] | None:
        """The jobs that a caller sees; None for all."""
        if caller.role is not Role.TENANT:
            return None
        return {row.job_id for row in self.jobs(caller)}

    def metrics(self) -> bytes:
        """Where the service stands, in the text format of Prometheus."""
        from flows.api.metrics import export_metrics

        return export_metrics(self.desk)

    def status(self) -> Status:
        """Where the service stands."""
        return self.desk.status()


_ASK = "use a token whose role allows it"


def _check_commands(caller: Token) -> None:
    if caller.role is Role.READER:
        raise NotAllowed("token", "a reader changes nothing", _ASK)


def _own(caller: Token, job: JobFile) -> JobFile:
    """A job as a tenant may submit it: its own, within its bounds."""
    if "tenant" not in job.model_fields_set:
        job = job.model_copy(update={"tenant": caller.tenant})
    if job.tenant != caller.tenant:
        raise NotAllowed("tenant", f"the token is not of {job.tenant!r}", "leave it out")
    if job.budget > 1.0:
        raise NotAllowed("budget", "only operators may give more than 1", "leave it out")
    return job


def _key(caller: Token, key: str) -> str:
    """A key that is unique among all tenants."""
    if not key or caller.role is not Role.TENANT:
        return key
    return f"{len(caller.tenant)} {caller.tenant} {key}"  # unambiguous, whatever the names
