"""Command and health check of a Prefect server; does not import Prefect."""

import sys
from urllib.request import urlopen

REPORTS = "SHOCKWAVE_REPORTS"
"""Environment variable with the folder that is served as `/reports`."""

ANSWER_SECONDS = 10.0
"""Timeout of a health check; a busy server takes seconds to answer."""


def server_command(factory: str, host: str, port: int) -> list[str]:
    """The command that starts a Prefect server.

    Args:
        factory: Function of `flows.servers.server` that creates the app.
        host: Address to listen on.
        port: Port to listen on.
    """
    return [
        *(sys.executable, "-m", "uvicorn", "--factory", f"flows.servers.server:{factory}"),
        *("--host", host, "--port", str(port)),
        *("--log-level", "error", "--timeout-graceful-shutdown", "3"),
    ]


def answers(url: str) -> bool:
    """Whether a Prefect server is ready at a URL."""
    try:
        with urlopen(f"{url}/api/health", timeout=ANSWER_SECONDS) as answer:
            return bool(answer.read() == b"true")
    except (OSError, ValueError):
        return False
