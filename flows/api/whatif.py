"""What-if from now: the next hours of a service, as they are expected and under a change.

A change consists of jobs and commands. The last round is solved again as if they had come in time
for it; the queue is played forward from it with the beliefs of the
run (`tasks.rollouts`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from flows.api.commands import ServiceCommands
from flows.api.history import ServiceHistory, make_queue_rows, solve_last_round
from flows.api.rows import QueueRow
from flows.api.submission import make_specs
from flows.runs.job_file import JobFile
from flows.scheduler.admission import check_terms
from predictor.errors import InputError
from predictor.job import JobSpec
from predictor.numbers import plain
from predictor.options import MOST_TASKS
from tasks.commands import Command, CommandKind, TenantTerms

Names = Annotated[list[str], Field(max_length=100)]
"""Jobs by id or name, or nodes by their index."""


class WhatIf(BaseModel):
    """A hypothetical change to a service; nothing of it is accepted.

    Attributes:
        submit: Jobs that are handed in.
        cancel: Jobs that are cancelled.
        hold: Jobs that are put on hold.
        release: Jobs on hold that are released.
        drain: Nodes that are drained.
        cordon: Nodes on which no job starts.
        uncordon: Nodes that come back into service.
        budget: Factor on the budgets, by tenant.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    submit: list[JobFile] = Field(default_factory=list, max_length=100)
    cancel: Names = Field(default_factory=list)
    hold: Names = Field(default_factory=list)
    release: Names = Field(default_factory=list)
    drain: Names = Field(default_factory=list)
    cordon: Names = Field(default_factory=list)
    uncordon: Names = Field(default_factory=list)
    budget: dict[str, Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]] = Field(
        default_factory=dict, max_length=100
    )

    @property
    def commands(self) -> list[tuple[CommandKind, str]]:
        """Its commands about jobs and nodes, with the target of each."""
        asked = {
            CommandKind.CANCEL: self.cancel,
            CommandKind.HOLD: self.hold,
            CommandKind.RELEASE: self.release,
            CommandKind.DRAIN: self.drain,
            CommandKind.CORDON: self.cordon,
            CommandKind.UNCORDON: self.uncordon,
        }
        return [(kind, target) for kind, targets in asked.items() for target in targets]

    @property
    def changes(self) -> bool:
        """Whether it changes anything."""
        return bool(self.submit or self.commands or self.budget)


@dataclass(frozen=True, slots=True)
class ForecastRow:
    """What is expected of a job as things are, and with a change.

    Seconds are from the beginning of the last round on; ends come with an interval of 80 %. They
    are None where the job does not run, or has no forecast.

    Attributes:
        job_id: Its id; of a job of the change, the id that it would get.
        name: Its name.
        tenant: Its tenant.
        gpus: GPUs that it asks for.
        starts_in_s: When it starts.
        ends_in_s: When it ends.
        ends_low_s: Lower end.
        ends_high_s: Upper end.
        ftf: Its finish-time fairness ρ.
        whatif_starts_in_s: When it starts with the change; the same without a change.
        whatif_ends_in_s: When it ends with the change.
        whatif_ends_low_s: Lower end.
        whatif_ends_high_s: Upper end.
        whatif_ftf: Its ρ with the change.
        later_s: How much later it ends with the change.
        whatif_reason: Why it would not end with the change, in words; empty if it would, or if it
            has no forecast.
    """

    job_id: int
    name: str
    tenant: str
    gpus: int
    starts_in_s: float | None
    ends_in_s: float | None
    ends_low_s: float | None
    ends_high_s: float | None
    ftf: float | None
    whatif_starts_in_s: float | None
    whatif_ends_in_s: float | None
    whatif_ends_low_s: float | None
    whatif_ends_high_s: float | None
    whatif_ftf: float | None
    later_s: float | None
    whatif_reason: str = ""


def forecast_change(
    desk: ServiceCommands, change: WhatIf, tenant: str | None = None
) -> list[ForecastRow]:
    """What is expected of the accepted jobs, and of those of a change, as things are and with it.

    Args:
        desk: The service's.
        change: The change; nothing of it is accepted.
        tenant: Who asks, if it may name its own jobs only.

    Raises:
        InputError: The cluster cannot run a job, there are too many, or there is no such job,
            node or tenant.
    """
    history, jobs = desk.history(), list[JobSpec]()
    pending = desk.pending(history)
    first = desk.inbox.last() + 1
    for job in change.submit:
        of_names = partial(desk.before, tenant=tenant)
        specs = make_specs(job, desk.header.throughputs, desk.samples, of_names)
        if len(jobs) + len(specs) > MOST_TASKS:
            problem = f"has more than {MOST_TASKS:,} jobs and tasks"
            raise InputError("submit", problem, "suppose fewer")
        desk.check(specs[0])
        number = first + len(jobs)
        jobs += (replace(spec, job_id=number + place) for place, spec in enumerate(specs))
    commands = [*_commands(desk, change, tenant), *_budgets(history, change)]
    if pending:
        before = _expected(desk, history, pending)
    else:
        before = {row.job_id: row for row in desk.queue() if row.job_id in history.state.beliefs}
    after = before
    if jobs or (commands and (history.last or pending)):
        after = _expected(desk, history, [*pending, *jobs], commands)
    return [_row(before.get(job_id), row) for job_id, row in sorted(after.items())]


def _expected(
    desk: ServiceCommands,
    history: ServiceHistory,
    jobs: Sequence[JobSpec],
    commands: Sequence[Command] = (),
) -> dict[int, QueueRow]:
    run, this = solve_last_round(desk.run, history, jobs, commands)
    return {row.job_id: row for row in make_queue_rows(run, this)}


def _commands(desk: ServiceCommands, change: WhatIf, tenant: str | None) -> Iterator[Command]:
    for kind, target in change.commands:
        if kind.of_node:
            yield Command(0, kind, desk.node(target), 0.0)
        else:
            for entry in desk.entries(target, tenant):
                yield Command(0, kind, entry.number, 0.0)


def _budgets(history: ServiceHistory, change: WhatIf) -> Iterator[Command]:
    """The terms of tenants with other budgets."""
    tenancy = history.state.tenancy
    known = {belief.spec.tenant for belief in history.state.beliefs.values()}
    known.update(job.tenant for job in change.submit)
    for tenant, factor in change.budget.items():
        if tenant not in known:
            problem = f"tenant {tenant[:80]!r} has no active job"
            raise InputError("budget", problem, "name one that has: shockwave queue")
        terms = tenancy.terms.get(tenant, TenantTerms(tenant))
        new = replace(terms, budget=terms.budget * factor)
        check_terms(new)
        yield Command(0, CommandKind.TENANT, -1, 0.0, terms=new)


def _row(before: QueueRow | None, after: QueueRow) -> ForecastRow:
    nothing: dict[str, Any] = dict.fromkeys(_EXPECTED)
    old = before or replace(after, **nothing)
    values: dict[str, Any] = {field: getattr(old, field) for field in _EXPECTED}
    values |= {f"whatif_{field}": getattr(after, field) for field in _EXPECTED}
    both = old.ends_in_s is not None and after.ends_in_s is not None
    later = after.ends_in_s - old.ends_in_s if both else None  # type: ignore[operator]
    about = after.job_id, after.name, after.tenant, after.gpus
    return ForecastRow(*about, **values, later_s=later, whatif_reason=_no_end(after))


def _no_end(row: QueueRow) -> str:
    """Why a job does not end as things are; see `ForecastRow.whatif_reason`."""
    if row.ends_in_s is not None:
        return ""
    if row.status in _ORDERED:
        return _ORDERED[row.status]
    return f"waits for {row.waits_for}" * bool(row.waits_for)


_ORDERED = {"cancelled": "is cancelled", "held": "is on hold"}


_EXPECTED = ("starts_in_s", "ends_in_s", "ends_low_s", "ends_high_s", "ftf")
"""What is expected of a job, as things are and with a change: fields of `QueueRow`."""


def parse_budget_factor(text: str) -> tuple[str, float]:
    """A tenant and the factor on its budgets, from TENANT=FACTOR.

    Raises:
        InputError: The text is not of that form.
    """
    tenant, _, number = text.rpartition("=")
    try:
        value = float(plain(number))
    except ValueError:
        value = 0.0
    if not tenant or not 0.0 < value <= 1e6:
        raise InputError("budget", f"{text[:80]!r} is not TENANT=FACTOR", "give one like team-a=2")
    return tenant, value
