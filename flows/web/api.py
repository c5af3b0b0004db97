"""The HTTP API of a service, `/v1`: the desk's questions and commands, for holders of tokens.

The installation's secret makes its holder an operator.
"""

from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as Unrouted
from starlette.types import ASGIApp

from flows.api.front import format_logs
from flows.api.job_history import JobHistory, PriceRow, TenantRow
from flows.api.rows import Accepted, EventRow, JobRow, NodeRow, QueueRow, Status
from flows.api.submission import NodeRequest, TenantUpdate
from flows.api.whatif import ForecastRow, WhatIf
from flows.explain.answer import Answer
from flows.runs.job_file import JobFile
from flows.runs.toml_file import mistake_of
from flows.web.backend import Backend, BodyLimit, Problem, RequestRefused, get_http_status
from flows.web.streams import EVENTS, Streams
from predictor.errors import ShockwaveError
from tasks.commands import CommandKind
from warehouse.inbox.tokens import Token

PREFIX = "/v1"
"""Path of the API; the next incompatible version is `/v2`."""

MOST_PROBLEM = 500
"""Most characters of a field of a `Problem`. An engineering bound."""


class Budget(BaseModel):
    """A job's budget in the market."""

    value: Annotated[float, Field(allow_inf_nan=False)]


ANSWERS: dict[int | str, dict[str, Any]] = {
    status.value: {"model": Problem, "description": status.phrase}
    for status in (
        *(HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN),
        *(HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
        *(HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE),
    )
}
"""Error answers, which every address has."""

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
        description="Makes it idempotent: again with the same key, it is not repeated.",
    ),
]


async def _asking(request: Request) -> Backend:
    asking: Backend = request.app.state.asking
    return asking


Asked = Annotated[Backend, Depends(_asking)]


async def _streams(request: Request) -> Streams:
    streams: Streams = request.app.state.streams
    return streams


Streamed = Annotated[Streams, Depends(_streams)]
Authorization = Annotated[str, Header(description="`Bearer TOKEN`")]
Follow = Annotated[bool, Query(description="Go on with what comes, as server-sent events.")]
LastEvent = Annotated[
    str, Header(max_length=2**14, description="Of `follow`: the last event that is known.")
]
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {EVENTS: {}}},
    429: {"model": Problem, "description": HTTPStatus.TOO_MANY_REQUESTS.phrase},
}
"""Documentation of an answer that may be a stream of events."""
PRINTED: dict[int | str, dict[str, Any]] = {
    200: {"content": {EVENTS: {}, "application/octet-stream": {}}}
}
"""Documentation of an answer that may be the output of containers."""


async def _caller(asking: Asked, authorization: Authorization = "") -> Token:
    token = await asking.who(authorization)
    if token is None:
        problem = "is not known" if authorization else "is missing"
        remedy = "send Authorization: Bearer TOKEN; an operator makes one: shockwave token add"
        raise RequestRefused(HTTPStatus.UNAUTHORIZED, "token", problem, remedy)
    return token


Caller = Annotated[Token, Depends(_caller)]

routes = APIRouter(prefix=PREFIX, responses=ANSWERS)


@routes.post("/jobs", status_code=201)
async def submit(job: JobFile, caller: Caller, asking: Asked, key: Key = "") -> Accepted:
    """Hand a job in. Once this answers, nothing loses it."""
    return await asking.write(lambda: asking.service.submit(caller, job, key))


@routes.post("/expect")
async def expect(job: JobFile, caller: Caller, asking: Asked) -> QueueRow:
    """What is expected of a job, were it handed in; nothing is."""
    return await asking.read(lambda: asking.service.expect(caller, job))


@routes.get("/jobs")
async def jobs(caller: Caller, asking: Asked) -> list[JobRow]:
    """All jobs, by id."""
    return await asking.read(lambda: asking.service.jobs(caller))


@routes.get("/jobs/{job}")
async def job(job: Target, caller: Caller, asking: Asked) -> JobRow:
    """A job."""
    return await asking.read(lambda: asking.service.job(caller, job))


@routes.get("/jobs/{job}/why")
async def why(job: Target, caller: Caller, asking: Asked) -> Answer:
    """Why a job has or has no GPUs, in the last round in which it was active."""
    return await asking.read(lambda: asking.service.why(caller, job))


@routes.get("/jobs/{job}/course")
async def course(job: Target, caller: Caller, asking: Asked) -> JobHistory:
    """A job so far: its leases, forecasts and losses."""
    return await asking.read(lambda: asking.service.course(caller, job))


@routes.post("/jobs/{job}/budget", status_code=202)
async def budget(
    job: Target, given: Budget, caller: Caller, asking: Asked, key: Key = ""
) -> Accepted:
    """Give a job another budget in the market."""
    asked = CommandKind.BUDGET, job, key, given.value
    return await asking.write(lambda: asking.service.command(caller, *asked))


def _command(kind: CommandKind, summary: str) -> None:
    what = "nodes" if kind.of_node else "jobs"

    @routes.post(f"/{what}/{{target}}/{kind.value}", status_code=202, name=kind.value)
    async def commanded(target: Target, caller: Caller, asking: Asked, key: Key = "") -> Accepted:
        return await asking.write(lambda: asking.service.command(caller, kind, target, key))

    routes.routes[-1].description = summary  # type: ignore[attr-defined]


_command(CommandKind.CANCEL, "Cancel a job: it gets no more GPUs, and ends with the next round.")
_command(CommandKind.HOLD, "Put a job on hold: it gets no GPUs until it is released.")
_command(CommandKind.RELEASE, "Release a job that is on hold.")
_command(CommandKind.REQUEUE, "Take a job's GPUs for a round, after which it waits in line.")
_command(CommandKind.DRAIN, "Take a node out of service; jobs on it are preempted.")
_command(CommandKind.CORDON, "Let no job start on a node; those on it go on.")
_command(CommandKind.UNCORDON, "Bring a drained or cordoned node back into service.")
_command(CommandKind.REMOVE, "Take a node out of the cluster; jobs on it are preempted.")


@routes.post("/nodes", status_code=202)
async def add(node: NodeRequest, caller: Caller, asking: Asked, key: Key = "") -> Accepted:
    """Add a node to the cluster, whose index is the next one."""
    return await asking.write(lambda: asking.service.add(caller, node, key))


@routes.get("/queue")
async def queue(caller: Caller, asking: Asked) -> list[QueueRow]:
    """The active jobs in line, with what is expected of each."""
    return await asking.read(lambda: asking.service.queue(caller))


@routes.post("/forecast")
async def forecast(change: WhatIf, caller: Caller, asking: Asked) -> list[ForecastRow]:
    """What is expected of the active jobs, as things are and with a change; nothing is accepted."""
    return await asking.read(lambda: asking.service.forecast(caller, change))


@routes.get("/nodes")
async def nodes(caller: Caller, asking: Asked) -> list[NodeRow]:
    """The nodes, their GPUs, and the jobs that hold them."""
    return await asking.read(lambda: asking.service.nodes(caller))


@routes.get("/tenants")
async def tenants(caller: Caller, asking: Asked) -> list[TenantRow]:
    """The tenants, their budgets in the market, and what they hold."""
    return await asking.read(lambda: asking.service.tenants(caller))


@routes.patch("/tenants/{tenant}", status_code=202)
async def terms(
    tenant: Annotated[str, Path(min_length=1, max_length=100)],
    given: TenantUpdate,
    caller: Caller,
    asking: Asked,
    key: Key = "",
) -> Accepted:
    """Change what holds for a tenant; what is not given stays as it is."""
    return await asking.write(lambda: asking.service.tenant(caller, tenant, given, key))


@routes.get("/prices")
async def prices(caller: Caller, asking: Asked) -> list[PriceRow]:
    """What a GPU-round of each type cost in the last rounds."""
    return await asking.read(asking.service.prices)


@routes.get("/events", response_model=list[EventRow], responses=STREAM)
async def events(
    caller: Caller,
    asking: Asked,
    streamed: Streamed,
    after_round: Annotated[int, Query(ge=-1, le=2**31, description="Known already.")] = -1,
    follow: Follow = False,
    last_event_id: LastEvent = "",
    authorization: Authorization = "",
) -> Any:
    """What happened to jobs and nodes, and what was asked of them, in order."""
    if follow:
        return streamed.events(caller, authorization, last_event_id, after_round)
    return await asking.read(lambda: asking.service.events(caller, after_round))


@routes.get("/jobs/{job}/logs", response_class=StreamingResponse, responses=STREAM | PRINTED)
async def logs(
    job: Target,
    caller: Caller,
    asking: Asked,
    streamed: Streamed,
    follow: Follow = False,
    last_event_id: LastEvent = "",
    authorization: Authorization = "",
) -> StreamingResponse:
    """What a job's containers printed, the oldest first, each after a line with its name.

    A line of a job that begins like those, with `--- `, has that begin twice.
    """
    if follow:
        return await streamed.log(caller, authorization, job, last_event_id)
    printed = await asking.read(lambda: asking.service.printed(caller, job))

    def parts() -> Iterator[bytes]:
        with closing(printed):
            yield from format_logs(printed.more())

    return StreamingResponse(parts(), media_type="application/octet-stream")


@routes.get("/me")
async def me(caller: Caller) -> Token:
    """Whose token this is, and what it allows."""
    return caller


@routes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(caller: Caller, asking: Asked) -> PlainTextResponse:
    """Where the service stands, in the text format of Prometheus."""
    text = await asking.read(asking.service.metrics)
    return PlainTextResponse(text, media_type="text/plain; version=1.0.0; charset=utf-8")


@routes.get("/status")
async def status(caller: Caller, asking: Asked) -> Status:
    """Where the service stands."""
    return await asking.read(asking.service.status)


def create_api(asking: Backend) -> ASGIApp:
    """The API of a service."""
    api = FastAPI(
        title="Shockwave",
        version=PREFIX.removeprefix("/v"),
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # its page would load from other hosts
        redoc_url=None,
        routes=routes.routes,  # as they are: a router that is included is made again when asked
    )
    api.state.asking, api.state.streams = asking, Streams(asking)
    _answer_problems(api)
    return BodyLimit(api)


def _answer_problems(api: FastAPI) -> None:
    """Answer all errors with a `Problem`."""

    def answer(status: int, problem: Problem, headers: Any = None) -> JSONResponse:
        shown = {
            field: text.encode(errors="replace").decode()[:MOST_PROBLEM]
            for field, text in problem.model_dump().items()
        }
        return JSONResponse(shown, status, headers)

    def of(error: ShockwaveError) -> Problem:
        return Problem(place=error.place, problem=error.problem, remedy=error.remedy)

    async def refused(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Unrouted)
        remedy = f"see {PREFIX}/openapi.json"
        problem = getattr(error, "problem", None) or Problem(
            place=request.url.path, problem=str(error.detail), remedy=remedy
        )
        return answer(error.status_code, problem, error.headers)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        where, *field = (first := error.errors()[0])["loc"]
        if first["type"] == "json_invalid":
            problem = Problem(place=where, problem="is no JSON", remedy="send a JSON object")
        else:
            first = {**first, "loc": tuple(field)}
            problem = of(mistake_of(str(where), first, JobFile, "a job"))
        return answer(HTTPStatus.UNPROCESSABLE_ENTITY, problem)

    async def failed(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ShockwaveError)
        return answer(get_http_status(error), of(error))

    api.add_exception_handler(Unrouted, refused)
    api.add_exception_handler(RequestValidationError, invalid)
    api.add_exception_handler(ShockwaveError, failed)
