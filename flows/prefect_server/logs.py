"""The log of a service on stderr: lines of text, or of JSON objects with ids.

An environment variable passes the format to a service's processes. Their output goes through the
process that started them, so that all lines of a log have the same format.
"""

import json
import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum

FORMAT = "SHOCKWAVE_LOG_FORMAT"
"""Environment variable with the format."""

LOG = logging.getLogger("shockwave")


class LogFormat(StrEnum):
    """Format of a service's log."""

    TEXT = "text"
    JSON = "json"


class _Json(logging.Formatter):
    """Formats a record as a JSON object: time, level, process, message, and ids."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": getattr(record, "said_by", ""),
            "message": record.getMessage(),
        }
        return json.dumps(said | getattr(record, "ids", {}))


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr; ignores errors, so that a full disk does not stop a service."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def is_structured() -> bool:
    """Return whether the log's lines are JSON objects."""
    return os.environ.get(FORMAT) == LogFormat.JSON


def start_log(log_format: LogFormat | None = None) -> None:
    """Log on stderr from now on, in this process and the processes that it starts.

    The format is by default the parent process's.
    """
    if log_format:
        os.environ[FORMAT] = log_format
    handler = _Stderr(sys.stderr)
    handler.setFormatter(_Json() if is_structured() else logging.Formatter("%(message)s"))
    LOG.handlers, LOG.propagate = [handler], False  # other handlers must not repeat it
    LOG.setLevel(logging.INFO)


def log_line(
    said_by: str, message: str, *, level: int = logging.INFO, **ids: str | int | None
) -> None:
    """Log a line of the process `said_by`; None of `ids` is left out.

    The ids are the line's subjects: `run`, `round`, `job` and `node`.
    """
    known = {name: value for name, value in ids.items() if value is not None}
    LOG.log(level, "%s", message, extra={"said_by": said_by, "ids": known})


def pass_on(said_by: str, line: str) -> None:
    """Write a line of another process, converted to this log's format if necessary."""
    if is_structured() and not _is_own(line):
        if line.strip():
            log_line(said_by, line.rstrip())
        return
    with suppress(OSError):
        sys.stderr.write(line)


def _is_own(line: str) -> bool:
    """Return whether a line is a JSON object of this log."""
    try:
        return line.startswith("{") and {"time", "process"} <= json.loads(line).keys()
    except (ValueError, RecursionError):  # such as a number out of bounds, or too deep a nesting
        return False
