"""The log of a service on stderr: lines of text, or a JSON object a line with ids.

An environment variable gives the processes of a service the format. Their output goes through the
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
"""Variable with the format."""

LOG = logging.getLogger("shockwave")


class LogFormat(StrEnum):
    """Format of a service's log."""

    TEXT = "text"
    JSON = "json"


class _Json(logging.Formatter):
    """A record as a JSON object: time, level, process, message, and the ids that it is about."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": getattr(record, "said_by", ""),
            "message": record.getMessage(),
        }
        return json.dumps(said | getattr(record, "ids", {}))


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr; a log whose disk is full stops no service."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def is_structured() -> bool:
    """Whether a line is a JSON object."""
    return os.environ.get(FORMAT) == LogFormat.JSON


def start_log(log_format: LogFormat | None = None) -> None:
    """Log on stderr from now on, in this process and those that it starts.

    Args:
        log_format: The format; by default, that of the parent process.
    """
    if log_format:
        os.environ[FORMAT] = log_format
    handler = _Stderr(sys.stderr)
    handler.setFormatter(_Json() if is_structured() else logging.Formatter("%(message)s"))
    LOG.handlers, LOG.propagate = [handler], False  # others', such as Prefect's, do not repeat it
    LOG.setLevel(logging.INFO)


def log_line(
    said_by: str, message: str, *, level: int = logging.INFO, **ids: str | int | None
) -> None:
    """Log a line.

    Args:
        said_by: The process that logs it, in words.
        message: The message.
        level: A level of `logging`.
        ids: The subjects of the line: `run`, `round`, `job`, `node`; None is left out.
    """
    known = {name: value for name, value in ids.items() if value is not None}
    LOG.log(level, "%s", message, extra={"said_by": said_by, "ids": known})


def pass_on(said_by: str, line: str) -> None:
    """Pass on a line of another process, as it is or as one of this log's."""
    if is_structured() and not _is_own(line):
        if line.strip():
            log_line(said_by, line.rstrip())
        return
    with suppress(OSError):
        sys.stderr.write(line)


def _is_own(line: str) -> bool:
    """Whether a line is an object as this log writes them."""
    try:
        return line.startswith("{") and {"time", "process"} <= json.loads(line).keys()
    except (ValueError, RecursionError):  # such as a number out of bounds or too deep a nesting
        return False
