"""Commands about tokens of the API."""

import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import Json, Warehouse
from flows.cli.output import print_rows, say
from flows.scheduler.options import DATABASE_URL
from warehouse import DEFAULT_WAREHOUSE

if TYPE_CHECKING:
    from warehouse.inbox.tokens import Tokens

Name = Annotated[str, typer.Argument(help="Name of the token's owner.")]


def _open_tokens(warehouse: Path) -> "Tokens":
    from warehouse.inbox.tokens import Tokens
    from warehouse.store.checks import check_warehouse

    check_warehouse(Path(warehouse))
    return Tokens(Path(warehouse).absolute(), os.environ.get(DATABASE_URL, ""))


def add(
    name: Name,
    role: Annotated[str, typer.Option(help="Role: reader, tenant or operator.")] = "reader",
    tenant: Annotated[str, typer.Option(help="Tenant, for the role tenant.")] = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
) -> None:
    """Create a token and print it once."""
    from predictor.errors import InputError, meant
    from warehouse.inbox.tokens import Role
    from warehouse.store.creation import make_folder

    if role not in {*Role}:
        raise InputError("role", f"unknown role {role!r}", meant(role, Role))
    make_folder(Path(warehouse))
    with _open_tokens(warehouse) as tokens:
        typer.echo(tokens.add(name, Role(role), tenant))


def print_tokens(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """List tokens without their secrets."""
    with _open_tokens(warehouse) as tokens:
        rows = [asdict(token) for token in tokens.all()]
    for row in () if as_json else rows:
        row["made_at"] = f"{datetime.fromtimestamp(row['made_at'], UTC):%Y-%m-%d %H:%M} UTC"
    print_rows(rows, as_json)


def rm(name: Name, warehouse: Warehouse = DEFAULT_WAREHOUSE) -> None:
    """Revoke a token."""
    with _open_tokens(warehouse) as tokens:
        tokens.remove(name)
    say(f"the token of {name} is revoked")
