"""The gate of a server: checks of a request before Prefect sees it."""

import hmac
import logging
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
"""Foreign pages cannot frame the UI, load parts of it, or see which page linked to them."""


_DENIED = "ASGI callable returned without completing handshake."
"""uvicorn (0.54) logs it as an error for every WebSocket that is refused with a response."""

logging.getLogger("uvicorn.error").addFilter(lambda record: record.getMessage() != _DENIED)


_ITSELF = ("prefect-in-memory", None)
"""Address from which Prefect's server calls itself for an automation's action, in its process. It
has no port, so no request over a socket can claim it."""


class Gate:
    """Middleware that refuses foreign hosts and foreign pages with 403.

    A foreign page can reach a server of this machine in two ways: by the server's address, with the
    page's `Origin`; or by a name that its owner points to this machine (DNS rebinding), with that
    name as `Host`. Programs send no `Origin`. Responses have a policy that keeps browsers from
    loading anything from elsewhere. `origins` are the server's addresses, `scheme://host[:port]`.
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
    """Middleware that demands the secret `USER:PASSWORD`; browsers ask their users for it.

    A sandbox keeps the scripts of the app's pages from the UI on the same host.
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
    """Middleware that passes requests at or below a path to another app, `page`.

    The first app, such as Prefect's, never sees them.
    """

    def __init__(self, app: ASGIApp, path: str, page: ASGIApp) -> None:
        self._app, self._path, self._page = app, path, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to one of the apps."""
        ours = scope["type"] in ("http", "websocket") and f"{scope['path']}/".startswith(
            f"{self._path}/"
        )
        await (self._page if ours else self._app)(scope, receive, send)
