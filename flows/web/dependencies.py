"""Dependencies of the API's routes: the caller's API, keys, and parameters."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Header, Path, Query, Request, Security
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


async def get_caller(backend: Service, credentials: Credentials) -> Token:
    """Return the owner of the credentials.

    Raises:
        RequestRefused: The credentials are missing or unknown.
    """
    token = await backend.authenticate(credentials)
    if token is None:
        problem = "is not known" if credentials else "is missing"
        remedy = "send Authorization: Bearer TOKEN; an operator makes one: shockwave token add"
        raise RequestRefused(HTTPStatus.UNAUTHORIZED, "token", problem, remedy)
    return token


Caller = Annotated[Token, Depends(get_caller)]


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
