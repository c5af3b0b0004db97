"""Browser sessions, each in an encrypted cookie.

The cookie contains the `Authorization` header of a program, encrypted with a key derived from the
installation's secret. The server keeps no sessions, so they survive its restarts. Removing a token
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
    """The page's cookies, which browsers send to `path`; `secret` is the installation's."""

    def __init__(self, path: str, secret: str) -> None:
        self._path = path
        key = hmac.digest(secret.encode(), b"shockwave page session", "sha256")
        self._seal = Fernet(base64.urlsafe_b64encode(key))

    def read(self, request: Request) -> str:
        """Return the credentials in a request's cookie; empty without a valid cookie."""
        cookie = request.cookies.get(_name(request), "")
        try:
            return self._seal.decrypt(cookie.encode(), ttl=SESSION_SECONDS).decode()
        except (InvalidToken, UnicodeEncodeError):
            return ""

    def begin(self, request: Request, response: Response, credentials: str) -> None:
        """Set a cookie that the browser sends only for navigation within this site."""
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
    """Return a cookie's name with a hash of host and port: a host's ports share cookies."""
    host = request.headers.get("host", "").lower()
    return f"shockwave-{sha256(host.encode()).hexdigest()[:8]}"
