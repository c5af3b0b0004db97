"""Commands about deployments on a Prefect server, and their schedules."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.options import Json, Warehouse
from flows.cli.output import print_filled, say
from flows.cli.progress import get_progress
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE
from warehouse.wording import counted

MAIN = "main"
"""Default name of a schedule."""

Deployment = Annotated[str, typer.Argument(help="A deployment, such as campaign or FLOW/NAME.")]
Name = Annotated[
    str | None, typer.Option(help="One schedule, as listed.", show_default="all of the deployment")
]


def print_deployments(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """List deployments with their schedules and next starts."""
    get_progress().begin("importing Prefect")
    from flows.deployments.schedules import list_schedules, open_client

    with open_client(warehouse) as client:
        rows = [asdict(row) for row in list_schedules(client)]
    for row in rows:
        if at := row["next"]:
            row["next"] = at.isoformat() if as_json else f"{at:%Y-%m-%d %H:%M:%S} UTC"
    print_filled(rows, as_json)


def schedule(
    deployment: Deployment,
    cron: Annotated[
        str | None, typer.Option(help="Minute, hour, day, month and weekday: '30 2 * * *'.")
    ] = None,
    interval: Annotated[
        float | None, typer.Option(help="Seconds between two flow runs.", min=1.0)
    ] = None,
    rrule: Annotated[
        str | None, typer.Option(help="Rule of RFC 5545: 'FREQ=WEEKLY;BYDAY=SU;BYHOUR=2'.")
    ] = None,
    zone: Annotated[
        str | None, typer.Option(help="Time zone, such as Europe/Berlin.", show_default="UTC")
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(help="Parameters (JSON).", show_default="those of the deployment"),
    ] = None,
    name: Annotated[
        str, typer.Option(help="Name of the schedule; one of the same name is replaced.")
    ] = MAIN,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
) -> None:
    """Schedule flow runs of a deployment, by cron, interval or RRule."""
    given = _parse(params)
    get_progress().begin("importing Prefect")
    from flows.deployments.schedules import make_plan, open_client, set_schedule

    plan = make_plan(cron, interval, rrule, zone)
    with open_client(warehouse) as client:
        paused = set_schedule(client, deployment, name, plan, given)
    say(f"{deployment}: schedule {name} is set")
    if paused:
        say(f"{deployment} is paused; resume it: shockwave deployments resume {deployment}")


def pause(
    deployment: Deployment, name: Name = None, warehouse: Warehouse = DEFAULT_WAREHOUSE
) -> None:
    """Pause a deployment's schedules; those of round pause the service."""
    _activate(deployment, name, warehouse, active=False)


def resume(
    deployment: Deployment, name: Name = None, warehouse: Warehouse = DEFAULT_WAREHOUSE
) -> None:
    """Resume a deployment's schedules."""
    _activate(deployment, name, warehouse, active=True)


def unschedule(
    deployment: Deployment, name: Name = None, warehouse: Warehouse = DEFAULT_WAREHOUSE
) -> None:
    """Remove a deployment's schedules."""
    get_progress().begin("importing Prefect")
    from flows.deployments.schedules import open_client, remove_schedules

    with open_client(warehouse) as client:
        removed = remove_schedules(client, deployment, name)
    say(f"{deployment}: {counted(removed, 'schedule')} removed")


def _activate(deployment: str, name: str | None, warehouse: Path, *, active: bool) -> None:
    get_progress().begin("importing Prefect")
    from flows.deployments.schedules import activate, open_client

    with open_client(warehouse) as client:
        changed = activate(client, deployment, name, active=active)
    say(f"{deployment}: {counted(changed, 'schedule')} {'resumed' if active else 'paused'}")


def _parse(params: str | None) -> dict[str, Any]:
    try:
        given = json.loads(params) if params is not None else {}
    except ValueError as error:
        raise InputError("params", f"is not JSON ({error})", "give an object") from None
    if not isinstance(given, dict):
        raise InputError("params", "is not an object of JSON", "give it as {…}")
    return given
