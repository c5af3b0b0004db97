"""Schedules of deployments: by cron, interval or RRule, each with a name."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import DeploymentSchedule, StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.utilities.schema_tools.validation import ValidationError, validate

from flows.prefect_server.access import read_access
from flows.prefect_server.own_server import reach_server
from flows.prefect_server.prefect_driver import needs_server
from flows.prefect_server.round_deployment import NAME as ROUND
from flows.scheduler.process import find_service
from predictor.errors import InputError, first_line, meant

PAGE = 200
"""Most deployments and flow runs per request, the server's limit."""

ID_DIGITS = 8
"""Digits of its id that name a schedule of the UI, which has no name. A choice of layout."""

EXAMPLES = {
    "cron": "minute, hour, day, month and weekday, as in '30 2 * * *'",
    "interval": "seconds above 0",
    "rrule": "a rule of RFC 5545, as in 'FREQ=WEEKLY;BYDAY=SU;BYHOUR=2'",
}
"""The kinds of plans, and what each needs."""

Plan = CronSchedule | IntervalSchedule | RRuleSchedule


@dataclass(frozen=True)
class ScheduleRow:
    """A deployment and one of its schedules; fields are empty if it has none.

    Attributes:
        next: Start of the next flow run, once the server has announced it.
    """

    deployment: str
    schedule: str = ""
    plan: str = ""
    zone: str = ""
    active: bool | None = None
    next: datetime | None = None


@contextmanager
def open_client(warehouse: Path) -> Iterator[SyncPrefectClient]:
    """Open a client of the configured Prefect server, or of the service of a warehouse.

    Raises:
        InputError: There is no server, or it cannot be used.
    """
    settings = None
    if needs_server():
        service = find_service(warehouse)
        if service is None:
            remedy = "start one with shockwave up, or give the PREFECT_API_URL of another server"
            raise InputError(f"warehouse {warehouse}", "has no running service", remedy)
        settings = read_access(service.url).client_settings()
    with reach_server(settings) as client:
        yield client


def make_plan(
    cron: str | None = None,
    interval: float | None = None,
    rrule: str | None = None,
    zone: str | None = None,
) -> Plan:
    """Return the plan of a schedule: `interval` in seconds; the time zone is by default UTC.

    Raises:
        InputError: Not exactly one of the first three is given, or a value is invalid.
    """
    every = {"cron": cron, "interval": interval, "rrule": rrule}
    given = {kind: value for kind, value in every.items() if value is not None}
    if not given:
        raise InputError("cron", "is missing", "give --cron, --interval or --rrule")
    if len(given) > 1:
        first, *others = given
        raise InputError(others[0], f"does not go with --{first}", "give one of them")
    try:
        CronSchedule(cron="* * * * *", timezone=zone)
    except ValueError:
        problem = f"{zone!r} is no time zone"
        raise InputError("zone", problem, "give a name such as Europe/Berlin") from None
    ((kind, value),) = given.items()
    try:
        if cron is not None:
            return CronSchedule(cron=cron, timezone=zone)
        if rrule is not None:
            return RRuleSchedule(rrule=rrule, timezone=zone)
        return IntervalSchedule(interval=timedelta(seconds=interval or 0.0), timezone=zone)
    except (ValueError, OverflowError):
        raise InputError(kind, f"{value!r} is not valid", f"give {EXAMPLES[kind]}") from None


def list_schedules(client: SyncPrefectClient) -> list[ScheduleRow]:
    """Return all deployments of a server with their schedules, by name."""
    rows = []
    for name, found in _read_all(client).items():
        starts = _read_starts(client, found) if found.schedules else {}
        rows += [
            ScheduleRow(
                name,
                _label(each),
                _describe(each.schedule),
                getattr(each.schedule, "timezone", None) or "UTC",
                each.active and not found.paused,
                starts.get(each.id),
            )
            for each in found.schedules
        ] or [ScheduleRow(name)]
    return sorted(rows, key=lambda row: (row.deployment, row.schedule))


def set_schedule(
    client: SyncPrefectClient,
    deployment: str,
    name: str,
    plan: Plan,
    parameters: Mapping[str, Any],
) -> bool:
    """Add an active schedule to a deployment, or change the one of the same name.

    Returns whether the deployment is paused, so that no schedule starts flow runs.

    Args:
        client: Of the server.
        deployment: Its name, as `list_schedules` returns it.
        name: Of the schedule.
        plan: When its flow runs start.
        parameters: Of its flow runs; those of the deployment for the others.

    Raises:
        InputError: There is no such deployment, or the parameters do not fit it.
    """
    found = _find(client, deployment, other_than_round=True)
    schema = found.parameter_openapi_schema or {}
    known = schema.get("properties", {})
    for unknown in parameters.keys() - known.keys():
        raise InputError("params", f"there is no parameter {unknown!r}", meant(unknown, known))
    try:
        validate({**found.parameters, **parameters}, schema, True)
    except ValidationError as error:
        remedy = "give its parameters (docs/prefect.md) as JSON"
        raise InputError("params", first_line(error).rstrip("."), remedy) from None
    given: dict[str, Any] = {"schedule": plan, "active": True, "parameters": dict(parameters)}
    same = [each.id for each in found.schedules if each.slug == name]
    if same:
        client.update_deployment_schedule(found.id, same[0], **given)
    else:
        new = DeploymentScheduleCreate(**given, slug=name)
        client.create_deployment_schedules(found.id, [new])
    return found.paused


def activate(client: SyncPrefectClient, deployment: str, name: str | None, *, active: bool) -> int:
    """Resume or pause a deployment's schedules, by default all of them; return their number.

    If the whole deployment was paused, its other schedules stay paused.

    Raises:
        InputError: There is no such deployment or schedule.
    """
    found = _find(client, deployment)
    chosen = _choose(found, name)
    whole = active and found.paused
    for each in found.schedules:
        if each in chosen or whole:
            wanted = active and each in chosen
            client.update_deployment_schedule(found.id, each.id, active=wanted)
    if whole:
        client.resume_deployment(found.id)
    return len(chosen)


def remove_schedules(client: SyncPrefectClient, deployment: str, name: str | None) -> int:
    """Remove a deployment's schedules, by default all of them; return their number.

    Raises:
        InputError: There is no such deployment or schedule.
    """
    found = _find(client, deployment, other_than_round=True)
    chosen = _choose(found, name)
    for each in chosen:
        client.delete_deployment_schedule(found.id, each.id)
    return len(chosen)


def _read_all(client: SyncPrefectClient) -> dict[str, DeploymentResponse]:
    """Return a server's deployments: `NAME` where the flow is called so, else `FLOW/NAME`."""
    found = dict[str, DeploymentResponse]()
    while page := client.read_deployments(limit=PAGE, offset=len(found)):
        for each in page:
            flow = client.read_flow(each.flow_id).name
            found[each.name if each.name == flow else f"{flow}/{each.name}"] = each
    return found


def _find(
    client: SyncPrefectClient, name: str, *, other_than_round: bool = False
) -> DeploymentResponse:
    if other_than_round and name in (ROUND, f"{ROUND}/{ROUND}"):
        problem = "has the rounds of the service, which follow its clock"
        remedy = f"pause and resume it: shockwave deployments pause {ROUND}"
        raise InputError(f"deployment {name!r}", problem, remedy)
    try:
        return client.read_deployment_by_name(name if "/" in name else f"{name}/{name}")
    except (ObjectNotFound, ValueError):
        remedy = meant(name, sorted(_read_all(client)))
        raise InputError(f"deployment {name!r}", "is not on the server", remedy) from None


def _choose(found: DeploymentResponse, name: str | None) -> list[DeploymentSchedule]:
    known = {_label(each): each for each in found.schedules}
    if not known:
        problem, remedy = "has no schedule", "make one: shockwave deployments schedule"
        raise InputError(f"deployment {found.name!r}", problem, remedy)
    if name is None:
        return [*known.values()]
    if name not in known:
        raise InputError("name", f"there is no schedule {name!r}", meant(name, known))
    return [known[name]]


def _label(schedule: DeploymentSchedule) -> str:
    return schedule.slug or str(schedule.id)[:ID_DIGITS]


def _describe(plan: object) -> str:
    match plan:
        case CronSchedule():
            return plan.cron
        case IntervalSchedule():
            return f"every {plan.interval.total_seconds():g} s"
        case RRuleSchedule():
            return plan.rrule
    return ""


def _read_starts(client: SyncPrefectClient, found: DeploymentResponse) -> dict[Any, datetime]:
    """Return the next start of each of a deployment's schedules, by its id."""
    asked = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[found.id]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
    )
    starts = dict[Any, datetime]()
    for run in client.read_flow_runs(
        flow_run_filter=asked, sort=FlowRunSort.NEXT_SCHEDULED_START_TIME_ASC, limit=PAGE
    ):
        by, at = run.created_by, run.next_scheduled_start_time
        if by is not None and by.id is not None and at is not None:
            earlier = starts.get(by.id)
            starts[by.id] = at if earlier is None or at < earlier else earlier
    return starts
