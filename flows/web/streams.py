"""Server-sent events: events of the service and output of jobs, live.

Each event has an id; a client that lost the connection sends the last id as `Last-Event-ID` and
misses nothing. A comment now and then keeps the connection; a token that is removed ends it.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from http import HTTPStatus
from threading import Thread
from typing import Any

from anyio import sleep
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from flows.api.job_logs import JobLogs, LogPlace
from flows.web.backend import Backend, RequestRefused
from predictor.errors import InputError, ShockwaveError
from warehouse.inbox.tokens import Token

LOOK_SECONDS = 1.0
"""Interval between looks for more. An engineering choice."""

QUIET_LOOKS = 15
"""Looks without anything new after which a comment is sent. An engineering choice."""

MOST_FOLLOWERS = 64
"""Most concurrent streams. An engineering bound."""

MOST_OF_ONE = 8
"""Most concurrent streams of a token, so that no user takes all. An engineering bound."""

EVENTS = "text/event-stream"
"""The type of a stream's content."""

_BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_SHOWN = TypeAdapter(dict[str, LogPlace])


class Streams:
    """The streams of a service.

    Args:
        asking: The service, as requests ask it.
    """

    def __init__(self, asking: Backend) -> None:
        self._asking = asking
        self._following = Counter[Token]()

    def events(
        self, caller: Token, authorization: str, known: str, after: int
    ) -> StreamingResponse:
        """Events of the service; an id is the round and the number within it.

        Args:
            caller: Who follows.
            authorization: The caller's credentials.
            known: The last id that the caller knows; empty if none.
            after: The last round that the caller knows, if it has no id.

        Raises:
            InputError: The id does not belong to this stream.
        """
        place = _place(known) if known else (after + 1, -1)
        service = self._asking.service

        async def frames() -> AsyncIterator[str]:
            nonlocal place
            rows = await self._asking.read(lambda: service.events(caller, place[0] - 1))
            number = -1
            for before, row in zip([None, *rows], rows, strict=False):
                number = number + 1 if before and before.round == row.round else 0
                if (row.round, number) > place:
                    place = row.round, number
                    yield _frame(f"{row.round}.{number}", asdict(row))

        return self._stream(caller, authorization, frames)

    async def log(
        self, caller: Token, authorization: str, target: str, known: str
    ) -> StreamingResponse:
        """The output of a job's containers, in parts; an id is what was shown up to its part.

        Raises:
            ShockwaveError: See `Guarded.printed`; or the id does not belong to this stream.
        """
        shown = _shown(known) if known else {}
        service = self._asking.service
        printed = await self._asking.read(lambda: service.printed(caller, target, shown))

        async def frames() -> AsyncIterator[str]:
            for name, text, place in await self._asking.look(lambda: _parts(printed)):
                # JSON has no bytes: invalid UTF-8 is escaped, and restored by the client
                part = {"container": name, "text": text.decode(errors="surrogateescape")}
                yield _frame(json.dumps(place, separators=(",", ":")), part)

        return self._stream(caller, authorization, frames, printed.close)

    def _stream(
        self,
        caller: Token,
        authorization: str,
        frames: Callable[[], AsyncIterator[str]],
        close: Callable[[], None] = lambda: None,
    ) -> StreamingResponse:
        """Frames as they come, until the other side leaves or its token is removed."""

        async def followed() -> AsyncIterator[str]:
            yield f"retry: {LOOK_SECONDS * 1e3:.0f}\n\n"
            quiet = 0
            while await self._asking.who(authorization) == caller:
                quiet += 1
                try:
                    async for frame in frames():
                        quiet = 0
                        yield frame
                except ShockwaveError:
                    return  # the client gets the error when it connects again
                if quiet >= QUIET_LOOKS:
                    quiet = 0
                    yield ":\n\n"
                await sleep(LOOK_SECONDS)

        def ended() -> None:
            self._following -= Counter([caller])
            Thread(target=close).start()  # closing may wait for Docker

        self._following += Counter([caller])
        try:
            self._check(caller)
        except RequestRefused:
            ended()
            raise
        return _Stream(followed(), ended)

    def _check(self, caller: Token) -> None:
        """Refuse a stream beyond the bounds.

        Raises:
            Refused: There are too many streams.
        """
        if self._following[caller] > MOST_OF_ONE:
            problem = f"{MOST_OF_ONE} connections follow with this token already"
            raise RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, "follow", problem, "end one of them")
        if self._following.total() > MOST_FOLLOWERS:
            problem = f"{MOST_FOLLOWERS} connections follow already"
            raise RequestRefused(
                HTTPStatus.SERVICE_UNAVAILABLE, "follow", problem, "try again later"
            )


class _Stream(StreamingResponse):
    """A stream that calls back when it has ended, even if nobody read it."""

    def __init__(self, frames: AsyncIterator[str], ended: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # of proxies
        super().__init__(frames, media_type=EVENTS, headers=headers)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


def _frame(known: str, data: Any) -> str:
    return f"id: {known}\ndata: {json.dumps(data)}\n\n"


def _parts(printed: JobLogs) -> list[tuple[str, bytes, dict[str, LogPlace]]]:
    return [(name, text, printed.place) for name, text in printed.more()]


def _place(known: str) -> tuple[int, int]:
    number, _, index = known.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in (number, index)):
        raise _foreign(known)
    return int(number), int(index)


def _shown(known: str) -> dict[str, LogPlace]:
    try:
        shown = _SHOWN.validate_json(known)
    except ValidationError:
        raise _foreign(known) from None
    if not all(size >= 0 and _BASE64.fullmatch(tail) for size, tail in shown.values()):
        raise _foreign(known)
    return shown


def _foreign(known: str) -> InputError:
    problem = f"{known[:100]!r} is no id of this stream"
    return InputError("Last-Event-ID", problem, "leave it out to begin anew")
