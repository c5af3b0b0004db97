"""What shells complete."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.errors import WAREHOUSE_VARIABLE
from predictor.errors import ShockwaveError
from warehouse import DEFAULT_WAREHOUSE

if TYPE_CHECKING:
    from flows.api.authorization import AuthorizedApi
    from flows.api.client import Client


def named_jobs(incomplete: str) -> list[str]:
    """Names of a service's jobs that begin with what was typed; none if it cannot be asked."""
    return _beginning(incomplete, lambda desk: {row.name for row in desk.list_jobs()})


def named_nodes(incomplete: str) -> list[str]:
    """The same of its nodes, which are named by their indices where they have no names."""
    return _beginning(
        incomplete, lambda desk: {row.name or str(row.node) for row in desk.list_nodes()}
    )


def _beginning(incomplete: str, names: Callable[["AuthorizedApi | Client"], set[str]]) -> list[str]:
    from flows.cli.jobs import desk

    try:
        with desk(Path(os.environ.get(WAREHOUSE_VARIABLE) or DEFAULT_WAREHOUSE)) as service:
            return sorted(name for name in names(service) if name and name.startswith(incomplete))
    except ShockwaveError:
        return []
