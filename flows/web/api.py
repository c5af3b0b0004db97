"""The HTTP API of a service, `/v1`: its routes call the methods of `AuthorizedApi`."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from http import HTTPStatus
from operator import methodcaller
from tempfile import TemporaryFile
from typing import Annotated, Any

from anyio import fail_after
from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as Unrouted
from starlette.types import ASGIApp

from containers.leasing.code import MOST_PACKED
from flows.api.authorization import AuthorizedApi, find_code_owner
from flows.api.forecast import ForecastRow
from flows.api.job_history import JobHistory, PriceRow, TenantRow, UsageRow
from flows.api.log_format import format_logs
from flows.api.named_commands import NamedCommands
from flows.api.requests import NodeRequest, TenantUpdate, WhatIf, WindowRequest
from flows.api.rows import Accepted, DryRun, EventRow, JobRow, NodeRow, QueueRow, Status, WindowRow
from flows.explain.answer import Answer
from flows.runs.job_file import JobFile
from flows.runs.toml_file import make_input_error
from flows.web import shells, streams
from flows.web.backend import (
    UPLOAD_SECONDS,
    UPLOADS_OF_ONE,
    BodyLimit,
    Problem,
    RequestRefused,
    ServiceBackend,
    describe_errors,
    get_http_status,
)
from flows.web.dependencies import AfterRound, Api, Caller, Key, Service, Tail, Target
from predictor.errors import ShockwaveError
from tasks.commands import CommandKind
from warehouse.inbox.tokens import Token

PREFIX = "/v1"
"""Path of the API."""

MOST_PROBLEM = 500
"""Most characters of a `Problem`'s field. An engineering bound."""


class Budget(BaseModel):
    """A job's budget in the market."""

    value: Annotated[float, Field(allow_inf_nan=False)]


ANSWERS = describe_errors(
    *(HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN),
    *(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    *(HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE),
)
"""Errors that every route may return."""

LOGS: dict[int | str, dict[str, Any]] = {200: {"content": {"application/octet-stream": {}}}}
METRICS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {}}}}

routes = APIRouter(prefix=PREFIX, responses=ANSWERS)


@routes.post("/jobs", status_code=201)
async def submit(job: JobFile, api: Api, backend: Service, key: Key = "") -> Accepted:
    """Submit a job durably."""
    return await backend.write(lambda: api.submit(job, key=key))


class StoredCode(BaseModel):
    """Code that jobs of its tenant may name."""

    sha256: str


async def hold_upload(request: Request, caller: Caller) -> AsyncIterator[None]:
    """Hold a slot until the archive is stored."""
    uploads: streams.Slots = request.app.state.uploads
    uploads.take(caller)
    try:
        yield
    finally:
        uploads.give_back(caller)


@routes.post(
    "/code",
    status_code=201,
    dependencies=[Depends(hold_upload)],
    responses=describe_errors(HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS),
)
async def store_code(
    request: Request,
    api: Api,
    backend: Service,
    tenant: Annotated[str, Query(max_length=100, description="Its owner.")] = "",
) -> StoredCode:
    """Store the code of jobs, an archive .tar.gz, as `NAME#sha256=…`."""
    find_code_owner(api.caller, tenant)  # before the archive is received
    with TemporaryFile() as archive:
        async with backend.uploads:
            try:
                with fail_after(UPLOAD_SECONDS):
                    async for part in request.stream():
                        archive.write(part)
            except TimeoutError:
                problem = f"took longer than {UPLOAD_SECONDS:g} s"
                remedy = "leave out data, or send it over a faster network"
                status = HTTPStatus.REQUEST_TIMEOUT
                raise RequestRefused(status, "body", problem, remedy) from None
            archive.seek(0)
            return StoredCode(sha256=await backend.unpack(lambda: api.store_code(archive, tenant)))


@routes.post("/jobs/forecast")
async def forecast_job(job: JobFile, api: Api, backend: Service) -> DryRun:
    """Forecast the start and end of a job, without submitting it."""
    return await backend.simulate(api, methodcaller("forecast_job", job))


def _add_query(path: str, query: Callable[..., Any], answer: Any) -> None:
    """Add a route that reads by a method of `AuthorizedApi`, about the job of its path if any."""

    async def read(api: Api, backend: Service) -> Any:
        return await backend.read(partial(query, api))

    async def read_of_job(job: Target, api: Api, backend: Service) -> Any:
        return await backend.read(partial(query, api, job))

    about = (query.__doc__ or "").partition("\n")[0]
    call = read_of_job if "{job}" in path else read
    routes.get(path, name=query.__name__, description=about, response_model=answer)(call)


for _path, _query, _answer in (
    ("/jobs", AuthorizedApi.list_jobs, list[JobRow]),
    ("/jobs/{job}", AuthorizedApi.get_job, JobRow),
    ("/jobs/{job}/why", AuthorizedApi.explain, Answer),
    ("/jobs/{job}/history", AuthorizedApi.get_job_history, JobHistory),
    ("/queue", AuthorizedApi.list_queue, list[QueueRow]),
    ("/nodes", AuthorizedApi.list_nodes, list[NodeRow]),
    ("/windows", AuthorizedApi.list_windows, list[WindowRow]),
    ("/tenants", AuthorizedApi.list_tenants, list[TenantRow]),
    ("/prices", AuthorizedApi.list_prices, list[PriceRow]),
    ("/usage", AuthorizedApi.list_usage, list[UsageRow]),
    ("/status", AuthorizedApi.get_status, Status),
):
    _add_query(_path, _query, _answer)


@routes.get("/jobs/{job}/logs", response_class=StreamingResponse, responses=LOGS)
async def read_logs(
    job: Target, api: Api, backend: Service, tail: Tail = None
) -> StreamingResponse:
    """Read the output of a job's containers, the oldest first, each after a heading with its name.

    A job's line that looks like a heading, with `--- ` at its start, gets that prefix twice.
    """
    logs = await backend.read(lambda: api.open_logs(job, tail=tail))

    def parts() -> Iterator[bytes]:
        with closing(logs):
            yield from format_logs(logs.read_new())

    return StreamingResponse(parts(), media_type="application/octet-stream")


@routes.post("/jobs/{job}/budget", status_code=202)
async def set_budget(
    job: Target, budget: Budget, api: Api, backend: Service, key: Key = ""
) -> Accepted:
    """Set the budget of a job in the market."""
    return await backend.write(lambda: api.set_budget(job, budget.value, key=key))


def _add_command(kind: CommandKind) -> None:
    what = "nodes" if kind.of_node else "jobs"

    async def command(target: Target, api: Api, backend: Service, key: Key = "") -> Accepted:
        return await backend.write(lambda: api.send_command(kind, target, key=key))

    command.__doc__ = getattr(NamedCommands, kind.value).__doc__
    routes.post(f"/{what}/{{target}}/{kind.value}", status_code=202, name=kind.value)(command)


for _kind in (
    *(CommandKind.CANCEL, CommandKind.HOLD, CommandKind.RELEASE, CommandKind.REQUEUE),
    *(CommandKind.DRAIN, CommandKind.CORDON, CommandKind.UNCORDON, CommandKind.REMOVE),
    CommandKind.IMAGE,
):
    _add_command(_kind)


@routes.post("/nodes", status_code=202)
async def add_node(node: NodeRequest, api: Api, backend: Service, key: Key = "") -> Accepted:
    """Add a node durably; it gets the next index."""
    return await backend.write(lambda: api.add_node(node, key=key))


@routes.post("/nodes/{target}/maintain", status_code=202)
async def maintain(
    target: Target, window: WindowRequest, api: Api, backend: Service, key: Key = ""
) -> Accepted:
    """Set a node aside for maintenance for a time."""
    return await backend.write(lambda: api.add_window(target, window, key=key))


class TenantWindow(WindowRequest):
    """A time for which a node is reserved for a tenant."""

    tenant: Annotated[str, Field(min_length=1, max_length=100)]


@routes.post("/nodes/{target}/reserve", status_code=202)
async def reserve(
    target: Target, reserved: TenantWindow, api: Api, backend: Service, key: Key = ""
) -> Accepted:
    """Reserve a node for the jobs of a tenant for a time."""
    window = WindowRequest(**reserved.model_dump(exclude={"tenant"}, exclude_unset=True))
    tenant = reserved.tenant
    return await backend.write(lambda: api.add_window(target, window, tenant=tenant, key=key))


@routes.post("/windows/{window}/reopen", status_code=202)
async def reopen(
    window: Annotated[int, Path(ge=1, le=2**31)], api: Api, backend: Service, key: Key = ""
) -> Accepted:
    """End a window of a node; one that has not begun does not begin."""
    return await backend.write(lambda: api.reopen(window, key=key))


@routes.post("/forecast")
async def forecast(change: WhatIf, api: Api, backend: Service) -> list[ForecastRow]:
    """Forecast the active jobs, with and without a hypothetical change."""
    return await backend.simulate(api, methodcaller("forecast", change))


@routes.patch("/tenants/{tenant}", status_code=202)
async def update_tenant(
    tenant: Annotated[str, Path(min_length=1, max_length=100)],
    terms: TenantUpdate,
    api: Api,
    backend: Service,
    key: Key = "",
) -> Accepted:
    """Change terms of a tenant; omitted terms keep their values."""
    return await backend.write(lambda: api.update_tenant(tenant, terms, key=key))


@routes.get("/events")
async def list_events(api: Api, backend: Service, after_round: AfterRound = -1) -> list[EventRow]:
    """List events of jobs and nodes, and commands, in order."""
    return await backend.read(lambda: api.list_events(after_round))


@routes.get("/me")
async def get_caller(caller: Caller) -> Token:
    """Return the name, role and tenant of the caller."""
    return caller


@routes.get("/metrics", response_class=Response, responses=METRICS)
async def export_metrics(api: Api, backend: Service) -> PlainTextResponse:
    """Export metrics in the text format of Prometheus."""
    text = await backend.read(api.export_metrics)
    return PlainTextResponse(text, media_type="text/plain; version=1.0.0; charset=utf-8")


def create_api(backend: ServiceBackend) -> ASGIApp:
    """Create the API of a service."""
    api = FastAPI(
        title="Shockwave",
        version=PREFIX.removeprefix("/v"),
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # FastAPI's page loads scripts from other hosts
        redoc_url=None,
        routes=[
            *routes.routes,
            *streams.routes.routes,
            *shells.routes.routes,
        ],  # routers would be built anew
    )
    api.state.backend, api.state.slots = backend, streams.Slots()
    api.state.uploads = streams.Slots("upload", UPLOADS_OF_ONE)
    _answer_problems(api)
    return BodyLimit(api, {f"{PREFIX}/code": MOST_PACKED})


def _answer_problems(api: FastAPI) -> None:
    """Make every error response a `Problem`."""

    def answer(status: int, problem: Problem, headers: Any = None) -> JSONResponse:
        shown = {
            # JSON responses are UTF-8, which has no lone surrogates.
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
            problem = Problem(place=where, problem="is not JSON", remedy="send a JSON object")
        else:
            first = {**first, "loc": tuple(field)}
            problem = of(make_input_error(str(where), first, JobFile, "a job"))
        return answer(HTTPStatus.UNPROCESSABLE_ENTITY, problem)

    async def failed(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ShockwaveError)
        return answer(get_http_status(error), of(error))

    api.add_exception_handler(Unrouted, refused)
    api.add_exception_handler(RequestValidationError, invalid)
    api.add_exception_handler(ShockwaveError, failed)
