"""The gate of a server: the checks of a request before Prefect sees it."""

import hmac
from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_OWN = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
)
_SANDBOX = "sandbox allow-scripts allow-downloads"
_POLICIES = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""No foreign page shows the UI in a frame, loads parts of it, or sees where a link came from."""


_ITSELF = ("prefect-in-memory", None)
"""Address at which Prefect's server asks itself, for an automation's action: in its process and
without a port, which no request over a socket can claim."""


class Gate:
    """Middleware that refuses foreign hosts and foreign pages with 403.

    A page of another origin reaches a server of this machine by its address, with its own
    `Origin`, or by a name of its own that it has pointed here (DNS rebinding), with that name as
    `Host`. Programs send no `Origin`. Answers have a policy that keeps browsers from loading
    anything from elsewhere.

    Args:
        app: The server.
        origins: The addresses at which it may be reached, `scheme://host[:port]`.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str]) -> None:
        self._app = app
        self._origins = {origin.lower() for origin in origins}
        self._hosts = {urlsplit(origin).netloc for origin in self._origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] not in ("http", "websocket") or scope.get("server") == _ITSELF:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            refused = f"no server of the name {', '.join(hosts)!r}"
        elif any(origin.lower() not in self._origins for origin in origins):
            refused = f"nothing for pages of {', '.join(origins)!r}"
        else:
            await self._app(scope, receive, _with_policies(scope, send))
            return
        known = ", ".join(sorted(self._origins))
        await PlainTextResponse(f"{refused}; this is {known}\n", 403)(scope, receive, send)


def _with_policies(scope: Scope, send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(_POLICIES)
            headers.setdefault("Content-Security-Policy", _OWN)
        await send(message)

    return sent if scope["type"] == "http" else send


class SecretRequired:
    """Pages that need the secret; browsers ask for it as user name and password.

    A sandbox keeps their scripts from the UI that is served beside them.

    Args:
        app: The app that serves them.
        secret: `USER:PASSWORD`.
    """

    def __init__(self, app: ASGIApp, secret: str) -> None:
        self._app = app
        self._policy = f"{_SANDBOX}; {_OWN}"
        self._expected = f"Basic {b64encode(secret.encode()).decode()}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with 401."""
        authorization = Headers(scope=scope).get("authorization", "")
        if not hmac.compare_digest(authorization.encode(), self._expected):
            asks = {"WWW-Authenticate": 'Basic realm="Shockwave"'}
            await PlainTextResponse("Unauthorized\n", 401, asks)(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = self._policy
                headers["Cache-Control"] = "no-store"
            await send(message)

        await self._app(scope, receive, sent)


class SideBySide:
    """Middleware that leaves an address, and what is below it, to another app.

    Args:
        app: The app of all other addresses, such as Prefect's, which never sees them.
        path: The address.
        page: The app that answers there.
    """

    def __init__(self, app: ASGIApp, path: str, page: ASGIApp) -> None:
        self._app, self._path, self._page = app, path, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or leave it."""
        ours = scope["type"] == "http" and f"{scope['path']}/".startswith(f"{self._path}/")
        await (self._page if ours else self._app)(scope, receive, send)
