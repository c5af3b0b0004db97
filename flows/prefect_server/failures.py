"""Failed flow runs: the reason in Prefect's UI and in its log."""

import logging
from typing import Any

from prefect.client.schemas import State
from prefect.exceptions import FailedRun
from prefect.states import Failed

from predictor.errors import ShockwaveError


def make_failed_state(error: ShockwaveError) -> State[Any]:
    """Return the failed state of a flow run, with the message that the command line prints."""
    log_errors_once()
    return Failed(message=str(error))


def log_errors_once() -> None:
    """Log each user error once, on one line without traceback; log other errors as usual."""
    logging.getLogger("prefect.flow_runs").addFilter(_shortened)


def _shortened(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, FailedRun | ShockwaveError):
        record.exc_info = None
        return not record.getMessage().startswith("Engine execution exited")  # logged before
    return True
