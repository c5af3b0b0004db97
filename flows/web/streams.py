"""Server-sent events: a service's events and jobs' output, as they come.

Each event has an id. After a lost connection, a client sends the last id as `Last-Event-ID` and
misses nothing. A stream ends when its token is removed.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated

from anyio import sleep, to_thread
from fastapi import APIRouter, Depends, Header, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import TypeAdapter, ValidationError

from flows.api.job_logs import JobLogs, LogPlace
from flows.web.backend import RequestRefused, describe_errors
from flows.web.dependencies import AfterRound, Api, Caller, Check, Service, Tail, Target
from predictor.errors import InputError, ShockwaveError
from warehouse.inbox.tokens import Token

END = "end"
"""The last event of a stream that ends."""

POLL_SECONDS = 1.0
"""Interval between polls. An engineering choice."""

MOST_STREAMS = 64
"""Most concurrent streams, and most concurrent uploads. An engineering bound."""

MOST_OF_ONE = 8
"""Most concurrent streams of a token, so that no user takes all. An engineering bound."""

_BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_PLACES = TypeAdapter(dict[str, LogPlace])

LastEvent = Annotated[
    str, Header(max_length=2**14, description="Id of the last event that the caller knows.")
]


class Slots:
    """The numbers of open streams, or of uploads, by token."""

    def __init__(self, what: str = "stream", most_of_one: int = MOST_OF_ONE) -> None:
        self._what, self._most_of_one = what, most_of_one
        self._open = Counter[Token]()

    def take(self, caller: Token) -> None:
        """Open a stream.

        Raises:
            RequestRefused: Too many are open.
        """
        if self._open[caller] >= self._most_of_one:
            problem = f"{self._most_of_one} {self._what}s of this token are open already"
            remedy = "close one, or wait until one has ended"
            raise RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, self._what, problem, remedy)
        if self._open.total() >= MOST_STREAMS:
            problem = f"{MOST_STREAMS} {self._what}s are open already"
            status = HTTPStatus.SERVICE_UNAVAILABLE
            raise RequestRefused(status, self._what, problem, "try again later")
        self._open[caller] += 1

    def give_back(self, caller: Token) -> None:
        """Close a stream."""
        self._open -= Counter([caller])


async def hold_slot(request: Request, caller: Caller) -> AsyncIterator[None]:
    """Hold a slot until the stream ends."""
    slots: Slots = request.app.state.slots
    slots.take(caller)
    try:
        yield
    finally:
        slots.give_back(caller)


async def find_place(after_round: AfterRound = -1, last_event_id: LastEvent = "") -> list[int]:
    """Return the round of the last event that the caller knows, and its index in the round.

    Raises:
        InputError: The id does not belong to this stream.
    """
    if not last_event_id:
        return [after_round + 1, -1]
    parts = last_event_id.split(".")
    if len(parts) != 2 or not all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts):
        raise _refuse_id(last_event_id)
    return [int(part) for part in parts]


async def open_logs(
    job: Target, api: Api, backend: Service, last_event_id: LastEvent = "", tail: Tail = None
) -> AsyncIterator[JobLogs]:
    """Open a job's logs after the caller's place, until the stream ends.

    Raises:
        ShockwaveError: See `AuthorizedApi.open_logs`; or the id does not belong to this stream.
    """
    shown = _parse_places(last_event_id) if last_event_id else {}
    logs = await backend.read(lambda: api.open_logs(job, shown, tail))
    try:
        yield logs
    finally:
        await to_thread.run_sync(logs.close, abandon_on_cancel=True)  # closing may wait for Docker


routes = APIRouter(
    prefix="/v1",
    dependencies=[Depends(hold_slot)],
    default_response_class=EventSourceResponse,
    responses=describe_errors(
        *(HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY),
        *(HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE),
    ),
)


@routes.get("/events/stream")
async def stream_events(
    api: Api,
    backend: Service,
    is_known: Check,
    place: Annotated[list[int], Depends(find_place)],
) -> AsyncIterator[ServerSentEvent]:
    """Stream events; an id is a round and the event's index in it."""

    def read_new() -> list[ServerSentEvent]:
        nonlocal place
        events, index = [], -1
        rows = api.list_events(place[0] - 1)
        for before, row in zip([None, *rows], rows, strict=False):
            index = index + 1 if before and before.round == row.round else 0
            if [row.round, index] > place:
                place = [row.round, index]
                events.append(ServerSentEvent(id=f"{row.round}.{index}", data=asdict(row)))
        return events

    async for event in _follow(is_known, lambda: backend.read(read_new)):
        yield event


@routes.get("/jobs/{job}/logs/stream")
async def stream_logs(
    backend: Service, is_known: Check, logs: Annotated[JobLogs, Depends(open_logs)]
) -> AsyncIterator[ServerSentEvent]:
    """Stream the output of a job's containers; an id says how much of each was shown.

    After the end of the job, the last event is `end`.
    """

    def read_new() -> list[ServerSentEvent]:
        events, ended = [], logs.has_ended()  # before its last output is read
        for name, text in logs.read_new():
            # JSON has no bytes: invalid UTF-8 is escaped here and restored by the client.
            part = {"container": name, "text": text.decode(errors="surrogateescape")}
            known = json.dumps(logs.places, separators=(",", ":"))
            events.append(ServerSentEvent(id=known, raw_data=json.dumps(part)))
        return [*events, ServerSentEvent(event=END, raw_data="null")] if ended else events

    async for event in _follow(is_known, lambda: backend.ask_hosts(read_new)):
        yield event


async def _follow(
    is_known: Check,
    read_new: Callable[[], Awaitable[list[ServerSentEvent]]],
) -> AsyncIterator[ServerSentEvent]:
    """Poll for events while the caller is known and the service answers."""
    yield ServerSentEvent(retry=round(POLL_SECONDS * 1e3))
    try:
        while await is_known():
            for event in await read_new():
                yield event
                if event.event == END:
                    return
            await sleep(POLL_SECONDS)
    except ShockwaveError:
        return  # the client gets the error when it reconnects


def _parse_places(text: str) -> dict[str, LogPlace]:
    try:
        places = _PLACES.validate_json(text)
    except ValidationError:
        raise _refuse_id(text) from None
    if not all(size >= 0 and _BASE64.fullmatch(tail) for size, tail in places.values()):
        raise _refuse_id(text)
    return places


def _refuse_id(text: str) -> InputError:
    problem = f"{text[:100]!r} is not an event id of this stream"
    return InputError("Last-Event-ID", problem, "leave it out to start from the beginning")
