"""The front desk of a service over HTTP: a client of its API."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, urlsplit
from uuid import uuid4

import httpx
from pydantic import TypeAdapter

from flows.api.front import FrontDesk, format_logs
from flows.api.rows import Accepted, EventRow, JobRow, NodeRow, QueueRow, Status
from flows.prefect_server.environment import is_loopback
from flows.prefect_server.secret import authorization
from predictor.errors import InputError, ShockwaveError, WarehouseBusy
from tasks.commands import CommandKind

if TYPE_CHECKING:
    from flows.api.job_history import JobHistory, PriceRow, TenantRow
    from flows.api.whatif import ForecastRow
    from flows.explain.answer import Answer

ANSWER_SECONDS = 120.0
"""Timeout of an answer; a queue of hundreds of jobs takes seconds. An engineering bound."""

QUIET_SECONDS = 60.0
"""Silence after which a stream counts as lost; a service sends something every 15 s. An engineering
bound."""

TRIES, WAIT_SECONDS = 5, 1.0
"""Attempts per request, and the pause after a failure. Engineering bounds."""

MOST_LOST = 60
"""Connections lost in a row before following ends: a minute. An engineering bound."""

Row = TypeVar("Row")


class Client(FrontDesk):
    """A service's API.

    A submission or command that gets no answer is sent again with the same key, so that it takes
    effect once.

    Args:
        url: Where the service is, such as `http://127.0.0.1:4200`.
        token: A token, as `shockwave token add` prints it.
        sleep: Waits for some seconds.

    Raises:
        InputError: The URL is invalid, or would send the token unencrypted over a network.
    """

    def __init__(
        self, url: str, token: str, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.url = check_url(url)
        self._sleep = sleep
        headers = {b"Authorization": authorization(token).encode()}
        secure = self.url.startswith("https:")
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=ANSWER_SECONDS,
            verify=secure,  # to read the certificates of all authorities takes 20 ms
            trust_env=secure,  # a proxy would see the token
        )

    def who(self) -> dict[str, Any]:
        """Whose token this is: its `name`, `role` and `tenant`."""
        return cast("dict[str, Any]", self._ask("GET", "/me"))

    def submit(self, job: Mapping[str, Any], *, key: str = "") -> Accepted:
        """See `FrontDesk`."""
        return self._parsed(Accepted, self._ask("POST", "/jobs", dict(job), _key(key)))

    def expect(self, job: Mapping[str, Any]) -> QueueRow:
        """See `FrontDesk`."""
        return self._parsed(QueueRow, self._ask("POST", "/expect", dict(job)))

    def forecast(self, change: Mapping[str, Any]) -> "list[ForecastRow]":
        """See `FrontDesk`."""
        from flows.api.whatif import ForecastRow

        return self._parsed(list[ForecastRow], self._ask("POST", "/forecast", dict(change)))

    def command(
        self, kind: CommandKind, target: str, *, value: float = 0.0, key: str = ""
    ) -> Accepted:
        """See `FrontDesk`."""
        path = f"/{'nodes' if kind.of_node else 'jobs'}/{_part(target)}/{kind.value}"
        body = {"value": value} if kind is CommandKind.BUDGET else None
        return self._parsed(Accepted, self._ask("POST", path, body, _key(key)))

    def add(self, node: Mapping[str, Any], *, key: str = "") -> Accepted:
        """See `FrontDesk`."""
        return self._parsed(Accepted, self._ask("POST", "/nodes", dict(node), _key(key)))

    def tenant(self, name: str, terms: Mapping[str, Any], *, key: str = "") -> Accepted:
        """See `FrontDesk`."""
        path = f"/tenants/{_part(name)}"
        return self._parsed(Accepted, self._ask("PATCH", path, dict(terms), _key(key)))

    def status(self) -> Status:
        """See `FrontDesk`."""
        return self._parsed(Status, self._ask("GET", "/status"))

    def jobs(self) -> list[JobRow]:
        """See `FrontDesk`."""
        return self._parsed(list[JobRow], self._ask("GET", "/jobs"))

    def job(self, job: str) -> JobRow:
        """See `FrontDesk`."""
        return self._parsed(JobRow, self._ask("GET", f"/jobs/{_part(job)}"))

    def queue(self) -> list[QueueRow]:
        """See `FrontDesk`."""
        return self._parsed(list[QueueRow], self._ask("GET", "/queue"))

    def nodes(self) -> list[NodeRow]:
        """See `FrontDesk`."""
        return self._parsed(list[NodeRow], self._ask("GET", "/nodes"))

    def tenants(self) -> "list[TenantRow]":
        """See `FrontDesk`."""
        from flows.api.job_history import TenantRow

        return self._parsed(list[TenantRow], self._ask("GET", "/tenants"))

    def prices(self) -> "list[PriceRow]":
        """See `FrontDesk`."""
        from flows.api.job_history import PriceRow

        return self._parsed(list[PriceRow], self._ask("GET", "/prices"))

    def why(self, job: str) -> "Answer":
        """See `FrontDesk`."""
        from flows.explain.answer import Answer

        return self._parsed(Answer, self._ask("GET", f"/jobs/{_part(job)}/why"))

    def course(self, job: str) -> "JobHistory":
        """See `FrontDesk`."""
        from flows.api.job_history import JobHistory

        return self._parsed(JobHistory, self._ask("GET", f"/jobs/{_part(job)}/course"))

    def events(self, after_round: int = -1, *, follow: bool = False) -> Iterator[EventRow]:
        """See `FrontDesk`; a connection that is lost is made again, and nothing is missed."""
        path = f"/events?after_round={after_round}"
        if not follow:
            yield from self._parsed(list[EventRow], self._ask("GET", path))
            return
        for data in self._followed(f"{path}&follow=true"):
            yield self._parsed(EventRow, data)

    def logs(self, job: str, *, follow: bool = False) -> Iterator[bytes]:
        """See `FrontDesk`; a connection that is lost is made again, and nothing is missed."""
        path = f"/jobs/{_part(job)}/logs"
        if not follow:
            with self._streamed(path) as answer:
                yield from answer.iter_bytes()
            return
        yield from format_logs(
            (data["container"], data["text"].encode(errors="surrogateescape"))
            for data in self._followed(f"{path}?follow=true")
        )

    def close(self) -> None:
        """See `FrontDesk`."""
        self._http.close()

    def _parsed(self, kind: type[Row], data: Any) -> Row:
        return TypeAdapter(kind).validate_python(data)

    def _ask(self, method: str, path: str, body: Any = None, key: str = "") -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        for tried in range(1, TRIES + 1):
            try:
                answer = self._http.request(method, f"/v1{path}", json=body, headers=headers)
                return _content(answer)
            except (httpx.TransportError, WarehouseBusy) as error:
                if tried == TRIES or isinstance(error, httpx.ConnectError):
                    raise self._lost(error) from None
                self._sleep(WAIT_SECONDS)
        raise AssertionError("the last try raises")

    def _lost(self, error: Exception) -> ShockwaveError:
        if isinstance(error, ShockwaveError):
            return error
        problem = f"does not answer ({str(error) or type(error).__name__})"
        return WarehouseBusy(self.url, problem, "is shockwave up? shockwave logout asks it no more")

    @contextmanager
    def _streamed(self, path: str, known: str = "") -> Iterator[httpx.Response]:
        """An answer as it comes.

        Raises:
            ShockwaveError: The request is refused, or gets no answer.
        """
        headers = {"Last-Event-ID": known} if known else {}
        quiet = httpx.Timeout(ANSWER_SECONDS, read=QUIET_SECONDS)
        try:
            with self._http.stream("GET", f"/v1{path}", headers=headers, timeout=quiet) as answer:
                if answer.status_code != HTTPStatus.OK:
                    answer.read()
                    _content(answer)
                yield answer
        except httpx.TransportError as error:
            raise self._lost(error) from None

    def _followed(self, path: str) -> Iterator[Any]:
        """The data of server-sent events, without end."""
        known, failed, begun = "", 0, False
        while True:
            try:
                with self._streamed(path, known) as answer:
                    begun = True
                    for name, text in _fields(answer.iter_lines()):
                        failed = 0
                        if name == "id":
                            known = text
                        elif name == "data":
                            yield json.loads(text)
            except WarehouseBusy as error:
                failed += 1
                if failed > MOST_LOST or (isinstance(error, _TooMany) and not begun):
                    raise
            self._sleep(WAIT_SECONDS)


class _TooMany(WarehouseBusy):
    """Too many connections follow; a service counts lost ones for a while."""


def _fields(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Names and values of a stream's lines; an id comes before its data."""
    for line in lines:
        name, _, text = line.partition(":")
        yield name, text.removeprefix(" ")


def _content(answer: httpx.Response) -> Any:
    """The content of an answer.

    Raises:
        InputError: The request is refused.
        WarehouseBusy: The service cannot answer now.
    """
    try:
        content = answer.json()
        if answer.is_success:
            return content
        parts = str(content["place"]), str(content["problem"]), str(content["remedy"])
    except (ValueError, KeyError, TypeError):
        place, problem = (
            str(answer.request.url),
            f"answered {answer.status_code} {answer.text[:80]!r}",
        )
        raise InputError(place, problem, "give the address of a service of shockwave") from None
    place, problem, remedy = parts
    if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        raise WarehouseBusy(place, problem, remedy)
    if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        raise _TooMany(place, problem, remedy)
    raise InputError(place.removeprefix("body: "), problem, remedy)


def check_url(url: str) -> str:
    """A service's URL, if a token may be sent there.

    Raises:
        InputError: It is invalid, or would send the token unencrypted over a network.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises where it is no number
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InputError("url", f"{url!r} is no address", "give one like http://127.0.0.1:4200")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        problem = f"{url} would send the token unencrypted over the network"
        raise InputError("url", problem, "give an address with https://, or one of this machine")
    return f"{parts.scheme}://{parts.netloc}"


def _part(target: str) -> str:
    """A job or node as a part of a path.

    Raises:
        InputError: The name is empty or no part of a path.
    """
    if not target.strip(".") or "/" in target or not target.isprintable():  # another address
        raise InputError("job", f"there is no job {target!r}", "give the id or name of one")
    return quote(target, safe="")


def _key(key: str) -> str:
    return key or uuid4().hex
