"""Shells in jobs' containers, over WebSockets.

Binary messages are what is typed and printed. A text message of a client is JSON with the `rows`
and `columns` of its terminal; the last one of the service has the `exit` code.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from anyio import CancelScope, CapacityLimiter, create_task_group, sleep, to_thread
from fastapi import APIRouter, Query, WebSocket
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import JSONResponse
from starlette.websockets import WebSocketDisconnect

from flows.web.backend import Problem, RequestRefused, Result, ServiceBackend, get_http_status
from flows.web.dependencies import Target, get_caller, get_check
from flows.web.streams import Slots
from predictor.errors import ShockwaveError

if TYPE_CHECKING:
    from containers.docker.daemon import Shell

CHECK_SECONDS = 5.0
"""Interval after which a caller is looked up again. An engineering choice."""

MOST_SHELLS = 16
"""Most concurrent shells; each takes two threads. An engineering bound."""

routes = APIRouter(prefix="/v1")
_receivers, _senders = CapacityLimiter(MOST_SHELLS), CapacityLimiter(MOST_SHELLS)


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
    slots: Slots = connection.app.state.slots
    credentials = connection.headers.get("authorization", "")
    try:
        caller = await get_caller(connection, backend, credentials)
        slots.take(caller)
    except (RequestRefused, ShockwaveError) as error:
        await _refuse(connection, error)
        return
    try:
        api = await backend.open_api(caller)
        is_known = await get_check(connection, backend, credentials)
        shell = await backend.ask_hosts(lambda: api.open_shell(job, command or ()))
    except (RequestRefused, ShockwaveError) as error:
        slots.give_back(caller)
        await _refuse(connection, error)
        return
    try:
        await connection.accept()
        async with create_task_group() as tasks:

            async def end_of_unknown() -> None:
                while await is_known():
                    await sleep(CHECK_SECONDS)
                shell.end()

            async def send() -> None:
                with suppress(WebSocketDisconnect):
                    await _send(connection, shell)
                shell.end()

            tasks.start_soon(end_of_unknown)
            tasks.start_soon(send)
            while text := await _run(shell.receive, _receivers):
                with suppress(WebSocketDisconnect, RuntimeError):  # `send` notices, too
                    await connection.send_bytes(text)
            tasks.cancel_scope.cancel()
        code = await backend.ask_hosts(shell.wait)
        with suppress(WebSocketDisconnect, RuntimeError):
            await connection.send_text(json.dumps({"exit": code}))
            await connection.close()
    finally:
        slots.give_back(caller)
        shell.end()  # which ends abandoned threads, too
        with CancelScope(shield=True):
            await to_thread.run_sync(shell.close)


async def _run(work: Callable[[], Result], limiter: CapacityLimiter) -> Result:
    """Run work that may wait for ever in a thread, which a cancellation abandons."""
    return await to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)


async def _send(connection: WebSocket, shell: "Shell") -> None:
    while True:
        message = await connection.receive()
        if message["type"] == "websocket.disconnect":
            return
        if keys := message.get("bytes"):
            await _run(partial(shell.send, keys), _senders)
        elif text := message.get("text"):
            with suppress(ValidationError):
                size = Size.model_validate_json(text)
                await _run(partial(shell.resize, size.rows, size.columns), _senders)


async def _refuse(connection: WebSocket, error: RequestRefused | ShockwaveError) -> None:
    if isinstance(error, RequestRefused):
        status, problem = HTTPStatus(error.status_code), error.problem
    else:
        status = get_http_status(error)
        problem = Problem(place=error.place, problem=error.problem, remedy=error.remedy)
    await connection.send_denial_response(JSONResponse(problem.model_dump(), status))
