"""Sessions of browsers: a sealed cookie.

A cookie holds what a program sends as `Authorization`, encrypted with a key derived from the
installation's secret. The server keeps nothing: it may be killed at any time, and removing a token
ends all its sessions.
"""

import base64
import hmac
from hashlib import sha256
from urllib.parse import urlsplit

from cryptography.fernet import Fernet, InvalidToken
from starlette.requests import Request
from starlette.responses import Response

SESSION_SECONDS = 12 * 3600
"""Life of a session: a working day. An engineering choice."""


class Sessions:
    """Cookies of the page.

    Args:
        path: The path that browsers send them to.
        secret: The installation's secret, `USER:PASSWORD`.
    """

    def __init__(self, path: str, secret: str) -> None:
        self._path = path
        key = hmac.digest(secret.encode(), b"shockwave page session", "sha256")
        self._seal = Fernet(base64.urlsafe_b64encode(key))

    def read(self, request: Request) -> str:
        """Read the credentials in the cookie of a request; empty if it has none that is valid."""
        cookie = request.cookies.get(_name(request), "")
        try:
            return self._seal.decrypt(cookie.encode(), ttl=SESSION_SECONDS).decode()
        except (InvalidToken, UnicodeEncodeError):
            return ""

    def begin(self, request: Request, response: Response, credentials: str) -> None:
        """Give a browser a cookie, which it sends for navigation within this site alone."""
        shown = request.headers.get("origin") or str(request.url)  # a proxy may serve HTTPS
        response.set_cookie(
            _name(request),
            self._seal.encrypt(credentials.encode()).decode(),
            path=self._path,
            secure=urlsplit(shown).scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def end(self, request: Request, response: Response) -> None:
        """Delete the cookie of a browser."""
        response.delete_cookie(_name(request), path=self._path)


def _name(request: Request) -> str:
    """Name a cookie by host and port: browsers share cookies between the ports of a host."""
    host = request.headers.get("host", "").lower()
    return f"shockwave-{sha256(host.encode()).hexdigest()[:8]}"
