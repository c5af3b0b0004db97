"""Command and health checks of a Prefect server, without importing Prefect."""

import ssl
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from predictor.errors import InputError

REPORTS = "SHOCKWAVE_REPORTS"
"""Environment variable with the folder served as `/reports`."""

WAREHOUSE = "SHOCKWAVE_WAREHOUSE"
"""Environment variable with the server's warehouse."""

URL = "SHOCKWAVE_URL"
"""Environment variable with the server's URL for programs on this machine."""

SINGLE_SIGN_ON = "SHOCKWAVE_SINGLE_SIGN_ON"
"""Environment variable with the file of single sign-on."""

ROOT = Path(__file__).parents[2]
"""Folder of our packages; uvicorn would default to the working folder."""

KEPT_SECONDS = 75
"""Keep-alive timeout of connections: longer than clients' (httpx: 5 s), so that no client sends a
request on a closing connection. As nginx; an engineering bound."""

ANSWER_SECONDS = 10.0
"""Timeout of a health check; a busy server takes seconds to answer. An engineering bound."""


def make_server_command(
    factory: str, host: str, port: int, tls: tuple[str, str] | None = None
) -> list[str]:
    """Return the command that starts a Prefect server.

    `factory` is the `MODULE:FUNCTION` that creates the app. `tls` has the files of a certificate
    and its key, to serve HTTPS.
    """
    return [
        *(sys.executable, "-m", "uvicorn", "--factory", factory),
        *("--app-dir", str(ROOT), "--host", host, "--port", str(port)),
        *("--log-level", "error", "--timeout-graceful-shutdown", "3"),
        *("--timeout-keep-alive", str(KEPT_SECONDS)),
        "--no-proxy-headers",  # any client could name another address as its own
        *(("--ssl-certfile", tls[0], "--ssl-keyfile", tls[1]) if tls else ()),
    ]


def answers(url: str) -> bool:
    """Return whether a Prefect server is ready at a URL.

    Raises:
        InputError: Its certificate is not valid for the URL.
    """
    return _content(f"{url}/api/health") == b"true"


def shows(url: str) -> bool:
    """Return whether a Prefect server serves its UI at a URL.

    Raises:
        InputError: Its certificate is not valid for the URL.
    """
    return bool(_content(f"{url}/"))


def _content(url: str) -> bytes:
    """Return the content at a URL; empty if there is no response."""
    try:
        # No proxy: the server is ours, mostly on this machine.
        with build_opener(ProxyHandler({})).open(url, timeout=ANSWER_SECONDS) as answer:
            content: bytes = answer.read()
            return content
    except URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise InputError(
                "tls_cert",
                f"is not valid for {url} ({error.reason.verify_message})",
                "give one that is, or name its authority's certificate in SSL_CERT_FILE",
            ) from None
        return b""
    except (OSError, ValueError):
        return b""
