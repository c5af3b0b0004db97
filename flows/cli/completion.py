"""What shells complete."""

import os
from pathlib import Path

from flows.cli.errors import WAREHOUSE_VARIABLE
from predictor.errors import ShockwaveError
from warehouse import DEFAULT_WAREHOUSE


def named_jobs(incomplete: str) -> list[str]:
    """Names of a service's jobs that begin with what was typed; none if it cannot be asked."""
    from flows.cli.jobs import desk

    try:
        with desk(Path(os.environ.get(WAREHOUSE_VARIABLE) or DEFAULT_WAREHOUSE)) as found:
            names = {row.name for row in found.jobs()}
    except ShockwaveError:
        return []
    return sorted(name for name in names if name and name.startswith(incomplete))
