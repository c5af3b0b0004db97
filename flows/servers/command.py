"""How a Prefect server is started, and whether it answers; imports nothing of Prefect."""

import sys
from urllib.request import urlopen

REPORTS = "SHOCKWAVE_REPORTS"
"""The environment variable with the folder that is served as `/reports`."""

ANSWER_SECONDS = 10.0
"""Until a server that does not answer counts as not ready; a busy one takes seconds."""


def server_command(factory: str, host: str, port: int) -> list[str]:
    """The command that starts a Prefect server.

    Args:
        factory: Of `flows.servers.server`, which app it serves.
        host: Address to listen on.
        port: Port to listen on.
    """
    return [
        *(sys.executable, "-m", "uvicorn", "--factory", f"flows.servers.server:{factory}"),
        *("--host", host, "--port", str(port)),
        *("--log-level", "error", "--timeout-graceful-shutdown", "3"),
    ]


def answers(url: str) -> bool:
    """Whether a Prefect server is ready there."""
    try:
        with urlopen(f"{url}/api/health", timeout=ANSWER_SECONDS) as answer:
            return bool(answer.read() == b"true")
    except (OSError, ValueError):
        return False
