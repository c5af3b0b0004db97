"""Dependencies of the API's routes: the caller's API, keys, and parameters."""

import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Header, Path, Query, Request, Security
from fastapi.requests import HTTPConnection
from fastapi.security import HTTPBasic, HTTPBearer

from flows.api.authorization import AuthorizedApi
from flows.web.backend import RequestRefused, ServiceBackend
from warehouse.inbox.tokens import Token


class _DeclaredBasic(HTTPBasic):
    """The scheme for the schema only: FastAPI's own answers malformed credentials by itself."""

    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        """Accept any header; `get_caller` checks it."""


_TOKEN = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="A token of the service: shockwave token add",
)
_SECRET = _DeclaredBasic(
    auto_error=False,
    scheme_name="installation",
    description="The secret of the installation; its holder is an operator.",
)


async def get_backend(request: Request) -> ServiceBackend:
    """Return the service behind the API."""
    backend: ServiceBackend = request.app.state.backend
    return backend


Service = Annotated[ServiceBackend, Depends(get_backend)]


async def get_credentials(
    request: Request, _token: object = Security(_TOKEN), _secret: object = Security(_SECRET)
) -> str:
    """Return the `Authorization` header; the parameters declare both schemes in the schema."""
    return request.headers.get("authorization", "")


Credentials = Annotated[str, Depends(get_credentials)]


USER_SECONDS = 3600.0
"""Longest stream of a user whom a proxy names; the next request shows whether it still does. An
engineering choice."""

SAFE = ("GET", "HEAD")
"""Methods that change nothing."""


async def get_caller(request: HTTPConnection, backend: Service, credentials: Credentials) -> Token:
    """Return the owner of the credentials, or the user whom a trusted proxy names.

    Raises:
        RequestRefused: The credentials are missing or unknown.
    """
    if user := backend.find_user(request):
        # The proxy knows users by a cookie, which browsers send for foreign pages, too. The gate
        # refuses foreign origins; what remains to refuse is a request without an origin.
        is_safe = request.scope["type"] == "http" and request.scope["method"] in SAFE
        if not is_safe and "origin" not in request.headers:  # a WebSocket is a shell
            problem, remedy = "is missing", "use a token: shockwave token add"
            raise RequestRefused(HTTPStatus.FORBIDDEN, "Origin", problem, remedy)
        return user
    token = await backend.authenticate(credentials)
    if token is None:
        problem = "is not known" if credentials else "is missing"
        remedy = "send Authorization: Bearer TOKEN; an operator makes one: shockwave token add"
        raise RequestRefused(HTTPStatus.UNAUTHORIZED, "token", problem, remedy)
    return token


Caller = Annotated[Token, Depends(get_caller)]


async def get_check(
    request: HTTPConnection, backend: Service, credentials: Credentials
) -> Callable[[], Awaitable[bool]]:
    """Return a function that says whether the caller of a stream is still known."""
    until = time.monotonic() + USER_SECONDS

    async def is_known() -> bool:
        if backend.find_user(request):  # by headers of the stream's beginning
            return time.monotonic() < until
        return await backend.authenticate(credentials) is not None

    return is_known


Check = Annotated[Callable[[], Awaitable[bool]], Depends(get_check)]


async def get_api(backend: Service, caller: Caller) -> AuthorizedApi:
    """Open the service's API for the caller."""
    return await backend.open_api(caller)


Api = Annotated[AuthorizedApi, Depends(get_api)]

Target = Annotated[
    str,
    Path(
        min_length=1,
        max_length=100,
        description="A job by id or name, or a node by index or name.",
    ),
]
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=100,
        description="A request that is repeated with the same key has no further effect.",
    ),
]
Tail = Annotated[int | None, Query(ge=0, le=2**31, description="Only so many of the last lines.")]
AfterRound = Annotated[
    int, Query(ge=-1, le=2**31, description="The last round that the caller knows.")
]
