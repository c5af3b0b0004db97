"""Forecasts of a service's active jobs, as planned and under a hypothetical change.

A change consists of jobs and commands. The last round is solved again with them, and the queue is
simulated from there with the run's beliefs (`tasks.rollouts`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flows.api.commands import ServiceCommands
from flows.api.history import ServiceHistory, solve_last_round
from flows.api.queue import make_queue_rows
from flows.api.requests import WhatIf
from flows.api.rows import QueueRow
from flows.scheduler.admission import check_terms
from predictor.errors import InputError
from predictor.job import JobSpec
from predictor.options import MOST_TASKS
from tasks.commands import Command, CommandKind, TenantTerms
from tasks.rollouts import forecast_times


@dataclass(frozen=True, slots=True)
class ForecastRow:
    """The forecast of a job, as planned and with a change.

    Seconds count from the start of the last round; bounds are of 80 % intervals. Fields are
    None if the job does not run or has no forecast. Fields `whatif_…` are with the change; without
    a change, they equal the others.

    Attributes:
        job_id: Its id; for a job of the change, the id that it would get.
        gpus: GPUs requested.
        rho: Finish-time fairness ρ.
        later_s: Delay of the end by the change.
        forecast_age_s: See `QueueRow`; forecasts with a change are always of the last round.
        whatif_reason: Why the job would not end with the change; empty if it would, or if it has no
            forecast.
    """

    job_id: int
    name: str
    tenant: str
    gpus: int
    starts_in_s: float | None
    ends_in_s: float | None
    ends_low_s: float | None
    ends_high_s: float | None
    rho: float | None
    rho_low: float | None
    rho_high: float | None
    whatif_starts_in_s: float | None
    whatif_ends_in_s: float | None
    whatif_ends_low_s: float | None
    whatif_ends_high_s: float | None
    whatif_rho: float | None
    whatif_rho_low: float | None
    whatif_rho_high: float | None
    later_s: float | None
    whatif_reason: str = ""
    forecast_age_s: float | None = None


def forecast_change(
    service: ServiceCommands, change: WhatIf, tenant: str | None = None
) -> list[ForecastRow]:
    """Forecast the accepted jobs and those of a change, with and without the change.

    Args:
        service: The service.
        change: The change; it is not accepted.
        tenant: Restricts the change to this tenant's jobs.

    Raises:
        InputError: The cluster cannot run a job, there are too many jobs, or there is no such job,
            node or tenant.
    """
    history, jobs = service.read_history(), list[JobSpec]()
    pending = service.list_pending(history)
    first = service.inbox.last() + 1
    for job in change.submit:
        find = partial(service.find_predecessors, tenant=tenant)
        specs = service.make_specs(job, find)
        if len(jobs) + len(specs) > MOST_TASKS:
            problem = f"has more than {MOST_TASKS:,} jobs and tasks"
            raise InputError("submit", problem, "give fewer")
        service.check_job(specs[0])
        number = first + len(jobs)
        jobs += (replace(spec, job_id=number + place) for place, spec in enumerate(specs))
    commands = [*_make_commands(service, change, tenant), *_make_budgets(history, change)]
    made = service.read_forecasts(history) if history.last else None
    before = after = {row.job_id: row for row in service.make_queue(history, made)}
    if jobs or (commands and before):
        if pending or not (made and made.are_of(history.state.last_hash)):  # compare one round
            before = _forecast(service, history, pending)
        after = _forecast(service, history, [*pending, *jobs], commands)
    return [_compare(before.get(job_id), row) for job_id, row in sorted(after.items())]


def _forecast(
    service: ServiceCommands,
    history: ServiceHistory,
    jobs: Sequence[JobSpec],
    commands: Sequence[Command] = (),
) -> dict[int, QueueRow]:
    run, this = solve_last_round(service.run, history, jobs, commands)
    times = forecast_times(run, this, {*this.active})
    return {row.job_id: row for row in make_queue_rows(run, this, this.active, times)}


def _make_commands(
    service: ServiceCommands, change: WhatIf, tenant: str | None
) -> Iterator[Command]:
    for kind, target in change.commands:
        if kind.of_node:
            yield Command(0, kind, service.find_node(target), 0.0)
        else:
            for entry in service.find_entries(target, tenant):
                yield Command(0, kind, entry.number, 0.0)


def _make_budgets(history: ServiceHistory, change: WhatIf) -> Iterator[Command]:
    """Yield commands that change the budgets of tenants."""
    tenancy = history.state.tenancy
    known = {belief.spec.tenant for belief in history.state.beliefs.values()}
    known.update(job.tenant for job in change.submit)
    for tenant, factor in change.budget.items():
        if tenant not in known:
            problem = f"tenant {tenant[:80]!r} has no active job"
            raise InputError("budget", problem, "name a tenant with one; see shockwave queue")
        terms = tenancy.terms.get(tenant, TenantTerms(tenant))
        new = replace(terms, budget=terms.budget * factor)
        check_terms(new)
        yield Command(0, CommandKind.TENANT, -1, 0.0, terms=new)


def _compare(before: QueueRow | None, after: QueueRow) -> ForecastRow:
    nothing: dict[str, Any] = dict.fromkeys(_FORECAST)
    old = before or replace(after, **nothing)
    values: dict[str, Any] = {field: getattr(old, field) for field in _FORECAST}
    values |= {f"whatif_{field}": getattr(after, field) for field in _FORECAST}
    both = old.ends_in_s is not None and after.ends_in_s is not None
    later = after.ends_in_s - old.ends_in_s if both else None  # type: ignore[operator]
    about = after.job_id, after.name, after.tenant, after.gpus
    return ForecastRow(
        *about,
        **values,
        later_s=later,
        whatif_reason=_explain_no_end(after),
        forecast_age_s=after.forecast_age_s,
    )


def _explain_no_end(row: QueueRow) -> str:
    """Return why a job does not end; see `ForecastRow.whatif_reason`."""
    if row.ends_in_s is not None:
        return ""
    if row.status in _ORDERED:
        return _ORDERED[row.status]
    return f"waits for {row.waits_for}" * bool(row.waits_for)


_ORDERED = {"cancelled": "is cancelled", "held": "is on hold"}

_FORECAST = (
    *("starts_in_s", "ends_in_s", "ends_low_s", "ends_high_s"),
    *("rho", "rho_low", "rho_high"),
)
"""Compared fields of `QueueRow`."""
