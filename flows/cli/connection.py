"""The service that commands talk to: over HTTP after a login, else in the local warehouse."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.errors import WAREHOUSE_VARIABLE
from flows.cli.options import warehouse_named
from flows.scheduler.options import DATABASE_URL
from predictor.errors import ShockwaveError
from warehouse import DEFAULT_WAREHOUSE

if TYPE_CHECKING:
    from flows.api.authorization import AuthorizedApi
    from flows.api.client import Client
    from flows.api.login import Login


def connect(warehouse: Path) -> "AuthorizedApi | Client":
    """Return the service of the login, unless `--warehouse` is given; else the warehouse's own."""
    if (login := find_login()) is not None:
        from flows.api.client import Client

        return Client(login.url, login.token)
    from flows.api.authorization import open_local

    return open_local(Path(warehouse).absolute(), os.environ.get(DATABASE_URL, ""))


def find_login() -> "Login | None":
    """Return the login that the command uses; None if it reads a warehouse."""
    from flows.api.login import read_login

    return None if warehouse_named.get() else read_login()


def complete_jobs(incomplete: str) -> list[str]:
    """Return the names of jobs that begin with what was typed; none without a service."""
    return _complete(incomplete, lambda service: {row.name for row in service.list_jobs()})


def complete_nodes(incomplete: str) -> list[str]:
    """Return the names of nodes, or their indices, that begin with what was typed."""
    return _complete(
        incomplete, lambda service: {row.name or str(row.node) for row in service.list_nodes()}
    )


def _complete(incomplete: str, names: Callable[["AuthorizedApi | Client"], set[str]]) -> list[str]:
    try:
        with connect(Path(os.environ.get(WAREHOUSE_VARIABLE) or DEFAULT_WAREHOUSE)) as service:
            return sorted(name for name in names(service) if name and name.startswith(incomplete))
    except ShockwaveError:
        return []
