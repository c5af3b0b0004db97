"""A service behind HTTP: authentication, threads, error statuses, and a limit on bodies."""

import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from anyio import CapacityLimiter, Lock, Semaphore, to_thread
from fastapi import HTTPException
from pydantic import BaseModel
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.api.authorization import AuthorizedApi, NotAllowed
from flows.api.commands import JobNotFound, ServiceCommands
from flows.api.forecaster import NICENESS
from flows.campaigns import Runner
from flows.campaigns.runners import open_executor
from flows.prefect_server.secret import authorization
from flows.web.single_sign_on import SingleSignOn
from predictor.errors import InputError, ShockwaveError, WarehouseBusy, WarehouseError
from warehouse.inbox.accepting import KeyUsed
from warehouse.inbox.tokens import Role, Token, Tokens

MOST_BYTES = 2**16
"""Most bytes of a request's body. An engineering bound."""

READS, WRITES, LOOKUPS, LOOKS = 1, 32, 1, 4
"""Threads that read records, write to the inbox (several share a flush), look up tokens, and wait
for Docker hosts. Engineering bounds."""

UPLOADS, UNPACKING = 8, 1
"""Archives received at a time, and unpacked at a time. Engineering bounds."""

UPLOADS_OF_ONE, UPLOAD_SECONDS = 4, 300.0
"""Most archives of a token at a time, received or waiting, so that no user takes all; time in which
one must be received. Engineering bounds."""

SIMULATIONS = 1
"""Processes that simulate the queue. An engineering bound."""

Result = TypeVar("Result")


class Problem(BaseModel):
    """The reason why a request is refused."""

    place: str
    problem: str
    remedy: str


def describe_errors(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """Describe errors for the API's schema."""
    return {status.value: {"model": Problem, "description": status.phrase} for status in statuses}


class RequestRefused(HTTPException):
    """The request is refused, with an HTTP status."""

    def __init__(self, status: HTTPStatus, place: str, problem: str, remedy: str) -> None:
        self.problem = Problem(place=place, problem=problem, remedy=remedy)
        headers = {"WWW-Authenticate": 'Bearer realm="Shockwave"'}
        super().__init__(status, problem, headers if status == HTTPStatus.UNAUTHORIZED else None)


STATUSES = {
    NotAllowed: HTTPStatus.FORBIDDEN,
    JobNotFound: HTTPStatus.NOT_FOUND,
    KeyUsed: HTTPStatus.CONFLICT,
    InputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    ShockwaveError: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""HTTP status by class of error; the first match counts."""


def get_http_status(error: ShockwaveError) -> HTTPStatus:
    """Return the HTTP status for an error."""
    return next(status for kind, status in STATUSES.items() if isinstance(error, kind))


@dataclass(eq=False, slots=True)
class _Lookup:
    """A token to look up, then its owner or the database's error."""

    token: str
    found: Token | None = None
    failed: ShockwaveError | None = None
    done: bool = False


class ServiceBackend:
    """A warehouse's service behind HTTP: authenticates callers and runs calls in threads.

    The service may not have begun yet. The holder of the installation's secret, `USER:PASSWORD`, is
    an operator. With single sign-on, a proxy may name the caller.
    """

    def __init__(
        self,
        warehouse: Path,
        secret: str,
        database_url: str = "",
        single_sign_on: SingleSignOn | None = None,
    ) -> None:
        self._where = warehouse, database_url
        self._single_sign_on = single_sign_on
        self._user = secret.partition(":")[0]
        self._expected = authorization(secret).encode()
        self._service: ServiceCommands | None = None
        self._tokens: Tokens | None = None
        self._opening = Lock()
        self._writes, self._reads = CapacityLimiter(WRITES), CapacityLimiter(READS)
        self._looks, self._simulations = CapacityLimiter(LOOKS), CapacityLimiter(SIMULATIONS)
        self._finders = CapacityLimiter(LOOKUPS)  # not READS: reading records is slow
        self.uploads, self._unpacking = Semaphore(UPLOADS), CapacityLimiter(UNPACKING)
        self._finding, self._lookups = Lock(), list[_Lookup]()

    async def open_api(self, caller: Token) -> AuthorizedApi:
        """Open the service for a caller.

        Raises:
            WarehouseBusy: The service has not started.
        """
        async with self._opening:
            if self._service is None:
                try:
                    self._service = await to_thread.run_sync(
                        lambda: ServiceCommands(*self._where), limiter=self._finders
                    )
                except InputError:
                    problem = "has not started"
                    raise WarehouseBusy("service", problem, "try again in a few seconds") from None
        return AuthorizedApi(self._service, caller)

    def find_user(self, request: HTTPConnection) -> Token | None:
        """Return the user whom a trusted proxy names; None without single sign-on."""
        return self._single_sign_on.find(request) if self._single_sign_on else None

    async def authenticate(self, credentials: str) -> Token | None:
        """Return the owner of an `Authorization` header; None if it is invalid.

        Raises:
            WarehouseError: The database does not answer, or its entry of the token is damaged.
        """
        if hmac.compare_digest(credentials.encode(), self._expected):
            return Token(self._user, Role.OPERATOR)
        scheme, _, token = credentials.partition(" ")
        if scheme.lower() != "bearer":
            return None
        mine = _Lookup(token.strip())
        self._lookups.append(mine)
        try:
            async with self._finding:
                if not mine.done:
                    await self._look_up(mine)
        finally:
            self._lookups.remove(mine)
        if mine.failed:
            raise mine.failed
        return mine.found

    async def _look_up(self, mine: _Lookup) -> None:
        """Look up the tokens of all waiting requests in one transaction.

        If the database does not answer, all of them fail at once, not one timeout after the other.

        Raises:
            WarehouseError: The database's entry of this token is damaged.
        """
        together = [lookup for lookup in self._lookups if not lookup.done]
        try:
            owners = await self._find_owners(together)
        except WarehouseError as error:
            if isinstance(error, WarehouseBusy):
                for lookup in together:
                    lookup.failed, lookup.done = error, True
                return
            together = [mine]  # another token's entry may be damaged
            owners = await self._find_owners(together)
        for lookup, owner in zip(together, owners, strict=True):
            lookup.found, lookup.done = owner, True

    async def _find_owners(self, lookups: Sequence[_Lookup]) -> list[Token | None]:
        def find() -> list[Token | None]:
            self._tokens = self._tokens or Tokens(*self._where)
            return self._tokens.find(*(lookup.token for lookup in lookups))

        return await to_thread.run_sync(find, limiter=self._finders)

    async def read(self, work: Callable[[], Result]) -> Result:
        """Run work that reads the service's records."""
        return await to_thread.run_sync(work, limiter=self._reads)

    async def simulate(self, api: AuthorizedApi, work: Callable[[AuthorizedApi], Result]) -> Result:
        """Run work that simulates the queue, and can be pickled, with an API for the same caller.

        It runs in a process of its own, which gives way to all others.

        Raises:
            WarehouseBusy: The process was killed twice.
        """
        call = partial(_simulate, self._where, api.caller, work)

        def wait() -> Result:
            return _open_processes().submit(call).result()

        for _ in range(2):  # the process may have been killed while it was idle
            try:
                return await to_thread.run_sync(wait, limiter=self._simulations)
            except BrokenExecutor:
                _open_processes.cache_clear()
        problem = "lost the process that simulates the queue"
        raise WarehouseBusy("service", problem, "ask again")

    async def ask_hosts(self, work: Callable[[], Result]) -> Result:
        """Run work that waits for Docker hosts, which may not answer."""
        return await to_thread.run_sync(work, limiter=self._looks)

    async def unpack(self, work: Callable[[], Result]) -> Result:
        """Run work that unpacks an archive of a stranger."""
        return await to_thread.run_sync(work, limiter=self._unpacking)

    async def write(self, work: Callable[[], Result]) -> Result:
        """Run work that writes to the inbox."""
        return await to_thread.run_sync(work, limiter=self._writes)


def _simulate(
    where: tuple[Path, str], caller: Token, work: Callable[[AuthorizedApi], Result]
) -> Result:
    return work(AuthorizedApi(_open_service(where), caller))


@cache
def _open_service(where: tuple[Path, str]) -> ServiceCommands:
    return ServiceCommands(*where)


@cache
def _open_processes() -> Executor:
    """Return the processes that simulate queues, which give way to all others."""
    return open_executor(Runner.PROCESSES, SIMULATIONS, partial(os.nice, NICENESS))


class BodyLimit:
    """Middleware that refuses large bodies with 413."""

    def __init__(self, app: ASGIApp, larger: Mapping[str, int] = MappingProxyType({})) -> None:
        self._app, self._larger = app, larger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; refuse it once its body exceeds the limit of its path."""
        taken, most = 0, self._larger.get(scope.get("path", ""), MOST_BYTES)

        async def received() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                problem = f"is larger than {most // 2**10:,} KiB"
                status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                raise RequestRefused(status, "body", problem, "send less")
            return message

        await self._app(scope, received, send)
