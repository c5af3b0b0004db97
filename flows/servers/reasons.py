"""How a flow run that cannot go on says why: in Prefect's UI and in its log."""

import logging
from typing import Any

from prefect.client.schemas import State
from prefect.exceptions import FailedRun
from prefect.states import Failed

from predictor.errors import ShockwaveError


def failed(error: ShockwaveError) -> State[Any]:
    """The state of a flow run that cannot go on; its message is what the command line says."""
    tell_once()
    return Failed(message=str(error))


def tell_once() -> None:
    """Have errors of the user told in a line by Prefect's log, and once; others as ever."""
    logging.getLogger("prefect.flow_runs").addFilter(_told_once)


def _told_once(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, FailedRun | ShockwaveError):
        record.exc_info = None
        return not record.getMessage().startswith("Engine execution exited")  # said before
    return True
