"""A client of a service's HTTP API."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

import httpx
from pydantic import BaseModel, TypeAdapter

from flows.api.log_format import format_logs
from flows.api.named_commands import NamedCommands
from flows.api.rows import Accepted, DryRun, EventRow, JobRow, NodeRow, QueueRow, Status, WindowRow
from flows.prefect_server.environment import is_loopback
from flows.prefect_server.secret import authorization
from predictor.errors import InputError, ShockwaveError, WarehouseBusy
from tasks.commands import CommandKind

if TYPE_CHECKING:
    from flows.api.forecast import ForecastRow
    from flows.api.job_history import JobHistory, PriceRow, TenantRow, UsageRow
    from flows.api.requests import NodeRequest, TenantUpdate, WhatIf, WindowRequest
    from flows.api.shell import RemoteShell
    from flows.explain.answer import Answer
    from flows.runs.job_file import JobFile
    from warehouse.inbox.tokens import Token

ANSWER_SECONDS = 120.0
"""Timeout of a response; a forecast of hundreds of jobs takes seconds. An engineering bound."""

QUIET_SECONDS = 60.0
"""Silence after which a stream counts as lost; a service sends something every 15 s. An engineering
bound."""

TRIES, WAIT_SECONDS = 5, 1.0
"""Attempts per request, and the pause after a failure. Engineering bounds."""

MOST_LOST = 60
"""Most connections lost in a row before following ends: a minute. An engineering bound."""

Row = TypeVar("Row")


class Client(NamedCommands):
    """A service's API over HTTP; `AuthorizedApi` is the same on the service's own machine.

    If a submission or command gets no response, it is retried with the same key, so that it takes
    effect once. All methods raise `InputError` if the request is refused, and `WarehouseBusy` if
    the service does not answer.

    Args:
        url: Address of the service, such as `http://127.0.0.1:4200`.
        token: A token, as `shockwave token add` prints it.
        sleep: Waits for some seconds.

    Raises:
        InputError: The URL is invalid, or would send the token unencrypted over a network.
    """

    def __init__(
        self, url: str, token: str, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.url = check_url(url)
        self._sleep, self._token = sleep, token
        headers = {b"Authorization": authorization(token).encode()}
        secure = self.url.startswith("https:")
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=ANSWER_SECONDS,
            verify=secure,  # loading the CA certificates takes 20 ms
            trust_env=secure,  # over HTTP, a proxy would see the token
        )

    def get_caller(self) -> "Token":
        """Return the name, role and tenant of the token's owner."""
        from warehouse.inbox.tokens import Token

        return self._get(Token, "/me")

    def submit(self, job: "JobFile | Mapping[str, Any]", *, key: str = "") -> Accepted:
        """Submit a job durably; see `AuthorizedApi.submit`."""
        return self._send("POST", "/jobs", _fields(job), key)

    def store_code(self, archive: BinaryIO, tenant: str = "") -> str:
        """Store the code of jobs durably; see `AuthorizedApi.store_code`."""
        path = f"/code?tenant={quote(tenant, safe='')}" if tenant else "/code"
        stored: str = self._request("POST", path, content=archive)["sha256"]
        return stored

    def forecast_job(self, job: "JobFile | Mapping[str, Any]") -> DryRun:
        """Forecast the start and end of a job, without submitting it."""
        return self._parse(DryRun, self._request("POST", "/jobs/forecast", _fields(job)))

    def forecast(self, change: "WhatIf | Mapping[str, Any]") -> "list[ForecastRow]":
        """Forecast the active jobs; see `AuthorizedApi.forecast`."""
        from flows.api.forecast import ForecastRow

        answer = self._request("POST", "/forecast", _fields(change))
        return self._parse(list[ForecastRow], answer)

    def send_command(
        self, kind: CommandKind, target: str, *, value: float = 0.0, key: str = ""
    ) -> Accepted:
        """See `NamedCommands.send_command`."""
        path = f"/{'nodes' if kind.of_node else 'jobs'}/{_quote(target)}/{kind.value}"
        body = {"value": value} if kind is CommandKind.BUDGET else None
        return self._send("POST", path, body, key)

    def add_node(self, node: "NodeRequest | Mapping[str, Any]", *, key: str = "") -> Accepted:
        """Add a node durably; see `AuthorizedApi.add_node`."""
        return self._send("POST", "/nodes", _fields(node), key)

    def add_window(
        self,
        node: str,
        window: "WindowRequest | Mapping[str, Any]",
        *,
        tenant: str = "",
        key: str = "",
    ) -> Accepted:
        """Set a node aside for a time, durably; see `AuthorizedApi.add_window`."""
        kind, body = CommandKind.RESERVE, {"tenant": tenant}
        if not tenant:
            kind, body = CommandKind.MAINTAIN, {}
        path = f"/nodes/{_quote(node)}/{kind.value}"
        return self._send("POST", path, _fields(window) | body, key)

    def reopen(self, window: int, *, key: str = "") -> Accepted:
        """End a window durably; see `AuthorizedApi.reopen`."""
        return self._send("POST", f"/windows/{window}/reopen", None, key)

    def list_windows(self) -> list[WindowRow]:
        """List the windows of nodes that are not over, by start."""
        return self._get(list[WindowRow], "/windows")

    def update_tenant(
        self, name: str, terms: "TenantUpdate | Mapping[str, Any]", *, key: str = ""
    ) -> Accepted:
        """Change the terms of a tenant durably; see `AuthorizedApi.update_tenant`."""
        return self._send("PATCH", f"/tenants/{_quote(name)}", _fields(terms), key)

    def get_status(self) -> Status:
        """Summarize the state of the service."""
        return self._get(Status, "/status")

    def list_jobs(self) -> list[JobRow]:
        """List all jobs by id."""
        return self._get(list[JobRow], "/jobs")

    def get_job(self, job: str) -> JobRow:
        """Return a job."""
        return self._get(JobRow, f"/jobs/{_quote(job)}")

    def list_queue(self) -> list[QueueRow]:
        """List the active jobs in queue order, with their expected starts and ends."""
        return self._get(list[QueueRow], "/queue")

    def list_nodes(self) -> list[NodeRow]:
        """List the nodes and the jobs that hold their GPUs."""
        return self._get(list[NodeRow], "/nodes")

    def list_tenants(self) -> "list[TenantRow]":
        """List the tenants, their budgets and the GPUs they hold."""
        from flows.api.job_history import TenantRow

        return self._get(list[TenantRow], "/tenants")

    def list_prices(self) -> "list[PriceRow]":
        """List the market prices of the last rounds."""
        from flows.api.job_history import PriceRow

        return self._get(list[PriceRow], "/prices")

    def list_usage(self) -> "list[UsageRow]":
        """List how the last rounds used the cluster."""
        from flows.api.job_history import UsageRow

        return self._get(list[UsageRow], "/usage")

    def explain(self, job: str) -> "Answer":
        """Explain why a job holds GPUs or not; see `AuthorizedApi.explain`."""
        from flows.explain.answer import Answer

        return self._get(Answer, f"/jobs/{_quote(job)}/why")

    def get_job_history(self, job: str) -> "JobHistory":
        """List a job's leases, costs, forecasts and losses."""
        from flows.api.job_history import JobHistory

        return self._get(JobHistory, f"/jobs/{_quote(job)}/history")

    def list_events(self, after_round: int = -1) -> list[EventRow]:
        """List events; see `AuthorizedApi.list_events`."""
        return self._get(list[EventRow], f"/events?after_round={after_round}")

    def read_events(self, after_round: int = -1, *, follow: bool = False) -> Iterator[EventRow]:
        """Iterate over events; after a lost connection, continue without a gap."""
        if not follow:
            yield from self.list_events(after_round)
            return
        for data in self._follow(f"/events/stream?after_round={after_round}"):
            yield self._parse(EventRow, data)

    def read_logs(
        self, job: str, *, follow: bool = False, tail: int | None = None
    ) -> Iterator[bytes]:
        """Read the output of a job's containers; after a lost connection, continue."""
        path, asked = f"/jobs/{_quote(job)}/logs", "" if tail is None else f"?tail={tail}"
        if not follow:
            with self._stream(path + asked) as answer:
                yield from answer.iter_bytes()
            return
        yield from format_logs(
            (data["container"], data["text"].encode(errors="surrogateescape"))
            for data in self._follow(f"{path}/stream{asked}")
        )

    def open_shell(self, job: str, command: Sequence[str] = ()) -> "RemoteShell":
        """Open a shell in a running job; see `AuthorizedApi.open_shell`."""
        from flows.api.shell import RemoteShell

        query = urlencode([("command", word) for word in command])
        address = f"{self.url}/v1/jobs/{_quote(job)}/shell?{query}"
        return RemoteShell(address, self._token, ANSWER_SECONDS, _read_content)

    def export_metrics(self) -> bytes:
        """Export metrics in the text format of Prometheus."""
        with self._stream("/metrics") as answer:
            return answer.read()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _parse(self, kind: type[Row], data: Any) -> Row:
        return TypeAdapter(kind).validate_python(data)

    def _get(self, kind: type[Row], path: str) -> Row:
        return self._parse(kind, self._request("GET", path))

    def _send(self, method: str, path: str, body: Any, key: str) -> Accepted:
        return self._parse(Accepted, self._request(method, path, body, key or uuid4().hex))

    def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        key: str = "",
        content: BinaryIO | None = None,
    ) -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        for tried in range(1, TRIES + 1):
            try:
                if content:
                    content.seek(0)
                answer = self._http.request(
                    method, f"/v1{path}", json=body, headers=headers, content=content
                )
                return _read_content(answer)
            except (httpx.TransportError, WarehouseBusy) as error:
                if tried == TRIES or isinstance(error, httpx.ConnectError):
                    raise self._lost(error) from None
                self._sleep(WAIT_SECONDS)
        raise AssertionError("the last try raises")

    def _lost(self, error: Exception) -> ShockwaveError:
        if isinstance(error, ShockwaveError):
            return error
        problem = f"does not answer ({str(error) or type(error).__name__})"
        return WarehouseBusy(self.url, problem, "start it, or forget it: shockwave logout")

    @contextmanager
    def _stream(self, path: str, known: str = "") -> Iterator[httpx.Response]:
        """Open a response that is read as it arrives.

        Raises:
            ShockwaveError: The request is refused, or gets no response.
        """
        headers = {"Last-Event-ID": known} if known else {}
        quiet = httpx.Timeout(ANSWER_SECONDS, read=QUIET_SECONDS)
        try:
            with self._http.stream("GET", f"/v1{path}", headers=headers, timeout=quiet) as answer:
                if answer.status_code != HTTPStatus.OK:
                    answer.read()
                    _read_content(answer)
                yield answer
        except httpx.TransportError as error:
            raise self._lost(error) from None

    def _follow(self, path: str) -> Iterator[Any]:
        """Yield the data of server-sent events to their end; reconnect with the last event's id."""
        known, failed, begun = "", 0, False
        while True:
            try:
                with self._stream(path, known) as answer:
                    begun = True
                    for name, data in _read_events(answer.iter_lines()):
                        failed, known = 0, name or known
                        if data == END:
                            return
                        if data is not None:
                            yield json.loads(data)
            except WarehouseBusy as error:
                failed += 1
                if failed > MOST_LOST or (isinstance(error, _TooMany) and not begun):
                    raise
            self._sleep(WAIT_SECONDS)


END = "null"
"""Data of the last event of a stream that ends."""


class _TooMany(WarehouseBusy):
    """The token has too many streams; a service still counts lost streams for a while."""


def _read_events(lines: Iterator[str]) -> Iterator[tuple[str, str | None]]:
    """Iterate over the ids and data of a stream's events; a comment has no data."""
    fields = dict[str, str]()
    for line in lines:
        if line:
            name, _, text = line.partition(":")
            fields[name] = text.removeprefix(" ")
        else:
            yield fields.get("id", ""), fields.get("data")
            fields = {}


def _fields(body: "BaseModel | Mapping[str, Any]") -> dict[str, Any]:
    if isinstance(body, BaseModel):
        return body.model_dump(mode="json", exclude_unset=True)
    return dict(body)


def _read_content(answer: httpx.Response) -> Any:
    """Return the content of a response of the API.

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
    """Return a service's URL if a token may be sent to it.

    Raises:
        InputError: The URL is invalid, or would send the token unencrypted over a network.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises where it is not a number
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InputError("url", f"{url!r} is not a URL", "give one such as http://127.0.0.1:4200")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        problem = f"{url} would send the token unencrypted over the network"
        raise InputError("url", problem, "give an address with https://, or one of this machine")
    return f"{parts.scheme}://{parts.netloc}"


def _quote(target: str) -> str:
    """Quote a job or node for use in a path.

    Raises:
        InputError: The name is empty or would change the path.
    """
    if not target.strip(".") or "/" in target or not target.isprintable():
        raise InputError("job", f"there is no job {target!r}", "give the id or name of one")
    return quote(target, safe="")
