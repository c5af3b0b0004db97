"""Access of HTTP requests to a service: callers, threads, and bounds on bodies."""

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

from anyio import CapacityLimiter, Lock, to_thread
from fastapi import HTTPException
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.api.authorization import AuthorizedApi, JobNotFound, NotAllowed, make_receipt
from flows.api.rows import Accepted
from flows.prefect_server.secret import authorization
from predictor.errors import InputError, ShockwaveError, WarehouseBusy, WarehouseError
from warehouse.inbox.entries import Entry
from warehouse.inbox.tokens import Role, Token

MOST_BYTES = 2**16
"""Most bytes of a request's body. An engineering bound."""

READS, WRITES, LOOKUPS, LOOKS = 1, 32, 1, 4
"""Threads that read a service's records, that write to the inbox (several share a flush), that look
up tokens, and that wait for Docker hosts. Engineering bounds."""

Result = TypeVar("Result")


class Problem(BaseModel):
    """Why a request is refused."""

    place: str
    problem: str
    remedy: str


class RequestRefused(HTTPException):
    """A request that is refused, and why."""

    def __init__(self, status: HTTPStatus, place: str, problem: str, remedy: str) -> None:
        self.problem = Problem(place=place, problem=problem, remedy=remedy)
        asks = {"WWW-Authenticate": 'Bearer realm="Shockwave"'}
        super().__init__(status, problem, asks if status == HTTPStatus.UNAUTHORIZED else None)


STATUSES = {
    NotAllowed: HTTPStatus.FORBIDDEN,
    JobNotFound: HTTPStatus.NOT_FOUND,
    InputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    ShockwaveError: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""HTTP status by class of an error; the first class that matches counts."""


def get_http_status(error: ShockwaveError) -> HTTPStatus:
    """The status of the answer to an error."""
    return next(status for kind, status in STATUSES.items() if isinstance(error, kind))


@dataclass(eq=False, slots=True)
class _Lookup:
    """The look-up of a token: then its owner, or the error of the database."""

    token: str
    found: Token | None = None
    failed: ShockwaveError | None = None
    done: bool = False


class Backend:
    """A service as requests see it, in a shared pool of threads.

    Args:
        service: The service.
        secret: The installation's, `USER:PASSWORD`.
    """

    def __init__(self, service: AuthorizedApi, secret: str) -> None:
        self.service = service
        self._user = secret.partition(":")[0]
        self._expected = authorization(secret).encode()
        self._writes, self._reads = CapacityLimiter(WRITES), CapacityLimiter(READS)
        self._looks = CapacityLimiter(LOOKS)
        self._finders = CapacityLimiter(LOOKUPS)  # of their own, not behind readers of records
        self._finding, self._lookups = Lock(), list[_Lookup]()

    async def who(self, given: str) -> Token | None:
        """The owner of credentials; None if they are invalid."""
        if hmac.compare_digest(given.encode(), self._expected):
            return Token(self._user, Role.OPERATOR)
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer":
            return None
        mine = _Lookup(token.strip())
        self._lookups.append(mine)
        try:
            async with self._finding:
                if not mine.done:
                    await self._find(mine)
        finally:
            self._lookups.remove(mine)
        if mine.failed:
            raise mine.failed
        return mine.found

    async def _find(self, mine: _Lookup) -> None:
        """Look up the tokens of all waiting requests in one transaction.

        If the database does not answer, all of them fail at once, not one after the other.

        Raises:
            WarehouseError: The database's entry of this token is damaged.
        """
        together = [lookup for lookup in self._lookups if not lookup.done]
        try:
            tokens = await self._whose(together)
        except WarehouseError as error:
            if isinstance(error, WarehouseBusy):
                for lookup in together:
                    lookup.failed, lookup.done = error, True
                return
            together = [mine]  # perhaps the entry of another token is damaged
            tokens = await self._whose(together)
        for lookup, token in zip(together, tokens, strict=True):
            lookup.found, lookup.done = token, True

    async def _whose(self, lookups: Sequence[_Lookup]) -> list[Token | None]:
        tokens = (lookup.token for lookup in lookups)
        return await to_thread.run_sync(self.service.who, *tokens, limiter=self._finders)

    async def read(self, work: Callable[[], Result]) -> Result:
        """Read the service's records."""
        return await to_thread.run_sync(work, limiter=self._reads)

    async def look(self, work: Callable[[], Result]) -> Result:
        """Ask Docker hosts, which may not answer; readers of records do not wait for them."""
        return await to_thread.run_sync(work, limiter=self._looks)

    async def write(self, work: Callable[[], list[Entry]]) -> Accepted:
        """Have something accepted."""
        return make_receipt(await to_thread.run_sync(work, limiter=self._writes))


class BodyLimit:
    """Middleware that reads no more of a body than is allowed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with 413."""
        taken = 0

        async def received() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MOST_BYTES:
                problem = f"is larger than {MOST_BYTES // 2**10} KiB"
                status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                raise RequestRefused(status, "body", problem, "send a job's declaration alone")
            return message

        await self._app(scope, received, send)
