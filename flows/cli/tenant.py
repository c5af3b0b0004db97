"""Commands about tenants of a service."""

from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli.connection import connect
from flows.cli.job import Key, print_accepted
from flows.cli.options import Json, Warehouse
from flows.cli.output import print_filled
from warehouse import DEFAULT_WAREHOUSE


def set_tenant(
    name: Annotated[str, typer.Argument(help="The tenant.")],
    budget: Annotated[float | None, typer.Option(help="Factor on the budgets of its jobs.")] = None,
    gpu_hours: Annotated[
        float | None, typer.Option(help="Quota of GPU-hours per window; 0: no quota.")
    ] = None,
    window_hours: Annotated[
        float | None, typer.Option(help="Length of the window of the quota.")
    ] = None,
    rollover: Annotated[
        float | None, typer.Option(help="Most unused GPU-hours carried into the next window.")
    ] = None,
    image: Annotated[
        list[str] | None, typer.Option(help="Pattern of images that its jobs may use.")
    ] = None,
    any_image: Annotated[
        bool, typer.Option("--any-image", help="Let its jobs use any image.")
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
    with connect(warehouse) as service:
        accepted = service.update_tenant(name, terms, key=key)
    print_accepted(accepted, name, as_json, f"the change of tenant {name} is")


def print_tenants(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """List tenants with budgets, use and quotas."""
    with connect(warehouse) as service:
        print_filled([asdict(row) for row in service.list_tenants()], as_json)
