"""Tenants of a service: `tenant set`, `tenant list`."""

from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli.jobs import Key, desk, print_accepted
from flows.cli.options import Json, Warehouse
from flows.cli.output import print_listed, say
from warehouse import DEFAULT_WAREHOUSE


def set_tenant(
    name: Annotated[str, typer.Argument(help="The tenant.")],
    budget: Annotated[
        float | None, typer.Option(help="What its jobs' budgets are multiplied by.")
    ] = None,
    gpu_hours: Annotated[
        float | None, typer.Option(help="GPU-hours that it may hold in a window; 0 for any.")
    ] = None,
    window_hours: Annotated[float | None, typer.Option(help="Length of a window.")] = None,
    rollover: Annotated[
        float | None, typer.Option(help="Most unused GPU-hours that go into the next window.")
    ] = None,
    image: Annotated[
        list[str] | None, typer.Option(help="Pattern of images that its jobs may name.")
    ] = None,
    any_image: Annotated[
        bool, typer.Option("--any-image", help="Its jobs may name any image again.")
    ] = False,
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Change a tenant's budget, quota or images."""
    options = {
        "budget": budget,
        "gpu_hours": gpu_hours,
        "window_hours": window_hours,
        "rollover": rollover,
        "images": [] if any_image else image or None,
    }
    terms = {field: value for field, value in options.items() if value is not None}
    with desk(warehouse) as service:
        accepted = service.update_tenant(name, terms, key=key)
    if as_json:
        print_accepted(accepted, name, as_json)
    else:
        say(f"what holds for tenant {name} is accepted; the next round takes it in")


def print_tenants(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """List tenants with budgets, use and quotas."""
    with desk(warehouse) as service:
        print_listed([asdict(row) for row in service.list_tenants()], as_json)
