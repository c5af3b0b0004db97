"""Sessions of browsers: a sealed cookie, and the token without which a form is refused.

A cookie holds what a program sends as `Authorization`, encrypted with a key of the installation's
secret. Nothing is kept here: the server may be killed at any moment, and a token that is removed
ends all its sessions. Browsers send cookies by themselves, so each form carries a token that a page
of others cannot know.
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
        path: The address that browsers send them to.
        secret: The installation's, `USER:PASSWORD`.
    """

    def __init__(self, path: str, secret: str) -> None:
        self._path = path
        self._seal = Fernet(base64.urlsafe_b64encode(_key(secret, "session")))
        self._forms = _key(secret, "form")

    def cookie_of(self, request: Request) -> str:
        """The cookie of a request, if it was made here and is not too old; else empty."""
        cookie = request.cookies.get(_name(request), "")
        return cookie if self._opened(cookie) is not None else ""

    def authorization(self, cookie: str) -> str:
        """The credentials in a cookie; empty if there are none."""
        return self._opened(cookie) or ""

    def _opened(self, cookie: str) -> str | None:
        try:
            return self._seal.decrypt(cookie.encode(), ttl=SESSION_SECONDS).decode()
        except (InvalidToken, UnicodeEncodeError):
            return None

    def made(self, authorization: str) -> str:
        """A cookie with credentials; empty before the login."""
        return self._seal.encrypt(authorization.encode()).decode()

    def give(self, request: Request, response: Response, cookie: str) -> None:
        """Give a browser a cookie, for pages of ours and no script."""
        shown = request.headers.get("origin") or str(request.url)  # of a proxy, as browsers see it
        response.set_cookie(
            _name(request),
            cookie,
            path=self._path,
            secure=urlsplit(shown).scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def end(self, request: Request, response: Response) -> None:
        """Take the cookie from a browser."""
        response.delete_cookie(_name(request), path=self._path)

    def form_token(self, cookie: str) -> str:
        """The token that forms of a cookie's owner carry."""
        return hmac.digest(self._forms, cookie.encode(), "sha256").hex()

    def own_form(self, cookie: str, token: str) -> bool:
        """Whether a form comes from a page that was shown with this cookie."""
        return bool(cookie) and hmac.compare_digest(
            self.form_token(cookie).encode(), token.encode(errors="replace")
        )


def _key(secret: str, use: str) -> bytes:
    return hmac.digest(secret.encode(), f"shockwave page {use}".encode(), "sha256")


def _name(request: Request) -> str:
    """A cookie name by host and port: browsers share cookies between the ports of a host."""
    host = request.headers.get("host", "").lower()
    return f"shockwave-{sha256(host.encode()).hexdigest()[:8]}"
