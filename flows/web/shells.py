"""Shells in jobs' containers, over WebSockets.

Binary messages are what is typed and printed. A text message of a client is JSON with the `rows`
and `columns` of its terminal; the last one of the service has the `exit` code.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from anyio import (
    CancelScope,
    CapacityLimiter,
    WouldBlock,
    create_task_group,
    fail_after,
    sleep,
    to_thread,
)
from fastapi import APIRouter, Query, WebSocket
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import JSONResponse
from starlette.status import WS_1000_NORMAL_CLOSURE as NORMAL_CLOSURE
from starlette.status import WS_1013_TRY_AGAIN_LATER as TRY_AGAIN_LATER
from starlette.websockets import WebSocketDisconnect

from flows.web.backend import Problem, RequestRefused, Result, ServiceBackend, get_http_status
from flows.web.dependencies import Check, Target, get_caller, get_check
from flows.web.streams import Slots
from predictor.errors import ShockwaveError
from warehouse.inbox.tokens import Token

if TYPE_CHECKING:
    from containers.docker.daemon import Shell

CHECK_SECONDS = 5.0
"""Interval after which a caller is looked up again. An engineering choice."""

SEND_SECONDS = 30.0
"""Time after which a shell ends whose program does not read: meanwhile nobody would notice that its
client is gone. An engineering bound."""

MOST_SHELLS = 16
"""Most concurrent shells; each takes two threads. An engineering bound."""

MOST_REASON = 123
"""Most bytes of the reason with which a WebSocket is closed (RFC 6455, 5.5)."""

routes = APIRouter(prefix="/v1")
_shells, _threads = CapacityLimiter(MOST_SHELLS), CapacityLimiter(2 * MOST_SHELLS)


class Size(BaseModel):
    """The size of a terminal, in characters."""

    rows: Annotated[int, Field(ge=1, le=1000)]
    columns: Annotated[int, Field(ge=1, le=1000)]


@routes.websocket("/jobs/{job}/shell")
async def open_shell(
    connection: WebSocket,
    job: Target,
    command: Annotated[list[str] | None, Query(max_length=100)] = None,
) -> None:
    """Open a shell in a running job of the caller, until it or the connection ends."""
    backend: ServiceBackend = connection.app.state.backend
    credentials = connection.headers.get("authorization", "")
    try:
        caller = await get_caller(connection, backend, credentials)
        with _hold_slot(connection, caller):
            api = await backend.open_api(caller)
            is_known = await get_check(connection, backend, credentials)
            shell = await backend.ask_hosts(lambda: api.open_shell(job, command or ()))
            try:
                await connection.accept()
                reason = await _pass_on(connection, shell, is_known)
                code = await backend.ask_hosts(shell.wait)
                await _close(connection, code, reason)
            finally:
                shell.end()  # which ends abandoned threads, too
                with CancelScope(shield=True):
                    await to_thread.run_sync(shell.close)
    except (RequestRefused, ShockwaveError) as error:
        await _refuse(connection, error)


@contextmanager
def _hold_slot(connection: WebSocket, caller: Token) -> Iterator[None]:
    """Count a shell until its end.

    Raises:
        RequestRefused: Too many are open.
    """
    slots: Slots = connection.app.state.slots
    slots.take(caller)
    try:
        try:
            _shells.acquire_on_behalf_of_nowait(connection)
        except WouldBlock:
            problem, status = f"{MOST_SHELLS} are open already", HTTPStatus.SERVICE_UNAVAILABLE
            raise RequestRefused(status, "shell", problem, "try again later") from None
        try:
            yield
        finally:
            _shells.release_on_behalf_of(connection)
    finally:
        slots.give_back(caller)


async def _pass_on(connection: WebSocket, shell: "Shell", is_known: Check) -> str:
    """Pass on what is typed and printed until the end; return why we ended it, if we did."""
    reason = ""

    async def end_of_unknown() -> None:
        nonlocal reason
        try:
            while await is_known():
                await sleep(CHECK_SECONDS)
        except ShockwaveError as error:
            reason = f"{error.place}: {error.problem}"
        shell.end()

    async def send() -> None:
        nonlocal reason
        try:
            await _send(connection, shell)
        except TimeoutError:
            reason = f"its program did not read for {SEND_SECONDS:g} s what was typed"
        except WebSocketDisconnect:
            pass
        shell.end()

    async with create_task_group() as tasks:
        tasks.start_soon(end_of_unknown)
        tasks.start_soon(send)
        while text := await _run(shell.receive):
            with suppress(WebSocketDisconnect, RuntimeError):  # `send` notices, too
                await connection.send_bytes(text)
        tasks.cancel_scope.cancel()
    return reason


async def _run(work: Callable[[], Result]) -> Result:
    """Run work that may wait for ever in a thread, which a cancellation abandons."""
    return await to_thread.run_sync(work, limiter=_threads, abandon_on_cancel=True)


async def _send(connection: WebSocket, shell: "Shell") -> None:
    while True:
        message = await connection.receive()
        if message["type"] == "websocket.disconnect":
            return
        with fail_after(SEND_SECONDS):
            if keys := message.get("bytes"):
                await _run(partial(shell.send, keys))
            elif text := message.get("text"):
                with suppress(ValidationError):
                    size = Size.model_validate_json(text)
                    await _run(partial(shell.resize, size.rows, size.columns))


async def _close(connection: WebSocket, code: int | None, reason: str) -> None:
    shown = reason.encode()[:MOST_REASON].decode(errors="ignore")
    with suppress(WebSocketDisconnect, RuntimeError):
        await connection.send_text(json.dumps({"exit": code}))
        await connection.close(TRY_AGAIN_LATER if reason else NORMAL_CLOSURE, shown)


async def _refuse(connection: WebSocket, error: RequestRefused | ShockwaveError) -> None:
    if isinstance(error, RequestRefused):
        status, problem = HTTPStatus(error.status_code), error.problem
    else:
        status = get_http_status(error)
        problem = Problem(place=error.place, problem=error.problem, remedy=error.remedy)
    await connection.send_denial_response(JSONResponse(problem.model_dump(), status))
