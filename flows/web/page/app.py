"""The app of the live page, `/live`: sessions, pages, and commands of forms.

Browsers get what programs get from the API, through the same `AuthorizedApi`.
"""

import base64
import re
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from anyio import to_thread
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from flows.api.authorization import AuthorizedApi
from flows.api.requests import NodeRequest
from flows.prefect_server.secret import authorization
from flows.web.backend import BodyLimit, ServiceBackend, get_http_status
from flows.web.page.form import forecast_form, make_form, make_key, parse_form
from flows.web.page.sessions import Sessions
from flows.web.page.views import (
    COMMANDS,
    FOLDER,
    LOOK,
    NODE_COMMANDS,
    load_templates,
    make_job_page,
    make_jobs_page,
    make_log_page,
    make_overview,
    make_whatif_page,
    open_logs,
)
from predictor.errors import ShockwaveError
from tasks.commands import CommandKind

PAGE = "/live"
"""Path of the page."""

_STYLE = LOOK.read_text(encoding="utf-8") + (FOLDER / "live.css").read_text(encoding="utf-8")
_SCRIPT = (FOLDER / "live.js").read_text(encoding="utf-8")
_BELOW = re.compile(rf"{PAGE}(/whatif|/submit|/jobs|/jobs/[\w%.~-]{{1,300}})?")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; "
    "connect-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""Content security policy: a page loads and runs only its own style and script."""


class LoginRequired(Exception):
    """The request has no valid session."""


class Page:
    """The live page of a service; `secret` is the installation's, `USER:PASSWORD`."""

    def __init__(self, backend: ServiceBackend, secret: str) -> None:
        self._backend = backend
        self._sessions = Sessions(PAGE, secret)

    async def _open_api(self, request: Request) -> AuthorizedApi:
        """Open the service for the user whom a proxy names, or the owner of the session.

        Raises:
            LoginRequired: There is no valid session.
        """
        caller = self._backend.find_user(request)
        if caller is None and (credentials := self._sessions.read(request)):
            caller = await self._backend.authenticate(credentials)
        if caller is None:
            raise LoginRequired
        request.state.caller = caller
        return await self._backend.open_api(caller)

    def _render(
        self, request: Request, template: str, code: int = 200, problem: str = "", **content: Any
    ) -> Response:
        body = (
            load_templates()
            .get_template(template)
            .render(
                caller=getattr(request.state, "caller", None),
                problem=problem,
                root=PAGE,
                script=Markup(_SCRIPT),
                style=Markup(_STYLE),
                **content,
            )
        )
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
        if code == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="Shockwave"'
        return HTMLResponse(body.encode(errors="replace"), code, headers)

    def _ask_for_token(self, request: Request, to: str, problem: str = "") -> Response:
        return self._render(request, "login.html.j2", 401, problem, to=to)

    async def ask_to_log_in(self, request: Request, error: Exception) -> Response:
        """Show the login form, which then returns to the requested page of this site."""
        to = quote(request.url.path)
        return self._ask_for_token(request, to if _BELOW.fullmatch(to) else PAGE)

    async def show_error(self, request: Request, error: Exception) -> Response:
        """Show an error, also before the login."""
        assert isinstance(error, ShockwaveError)
        return self._render(request, "problem.html.j2", get_http_status(error), str(error))

    async def _show(
        self, request: Request, template: str, read: Callable[[AuthorizedApi], dict[str, Any]]
    ) -> Response:
        """Render a page from what `read` returns; 304 if the browser has it already."""
        api = await self._open_api(request)
        content = await self._backend.read(lambda: read(api))
        return await self._show_content(request, template, content)

    async def _show_content(
        self, request: Request, template: str, content: dict[str, Any]
    ) -> Response:
        response = await to_thread.run_sync(lambda: self._render(request, template, **content))
        tag = f'"{sha256(bytes(response.body)).hexdigest()[:32]}"'
        response.headers["ETag"] = tag
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return response

    async def show_overview(self, request: Request) -> Response:
        """Show the cluster."""
        return await self._show(request, "overview.html.j2", make_overview)

    async def show_jobs(self, request: Request) -> Response:
        """Show all jobs that fit a form."""
        fields = dict(request.query_params)
        return await self._show(request, "jobs.html.j2", lambda api: make_jobs_page(api, fields))

    async def show_job(self, request: Request) -> Response:
        """Show a job."""
        job = request.path_params["job"]
        return await self._show(request, "job.html.j2", lambda api: make_job_page(api, job))

    async def show_logs(self, request: Request) -> Response:
        """Show the output of a job."""
        api, job = await self._open_api(request), request.path_params["job"]
        row, logs = await self._backend.read(lambda: open_logs(api, job))
        content = await self._backend.ask_hosts(lambda: make_log_page(row, logs))
        return await self._show_content(request, "log.html.j2", content)

    async def show_whatif(self, request: Request) -> Response:
        """Show the effect of a hypothetical change."""
        api, fields = await self._open_api(request), dict(request.query_params)
        content = await self._backend.simulate(api, partial(make_whatif_page, fields=fields))
        return await self._show_content(request, "whatif.html.j2", content)

    async def show_form(self, request: Request) -> Response:
        """Show the form that submits a job."""
        return await self._show(request, "submit.html.j2", lambda api: make_form(api, {}))

    async def submit(self, request: Request) -> Response:
        """Submit a form's job, or forecast its effect."""
        api = await self._open_api(request)
        fields = await _read_form(request)
        if (do := fields.get("do")) not in ("forecast", "submit"):
            raise HTTPException(400, "the form does not say forecast or submit; load it again")
        problem, code, rows = "", 200, dict[str, Any]()
        try:
            if do == "forecast":
                rows = await self._backend.simulate(api, partial(forecast_form, fields=fields))
            else:
                accepted = await self._backend.write(
                    lambda: api.submit(parse_form(fields), key=make_key(fields))
                )
                return RedirectResponse(f"{PAGE}/jobs/{accepted.job_id}", 303)
        except ShockwaveError as error:
            problem, code = str(error), get_http_status(error)
        key = fields.get("key", "")[:100]
        content = await self._backend.read(lambda: make_form(api, fields, key)) | rows
        return await to_thread.run_sync(
            lambda: self._render(request, "submit.html.j2", code, problem, **content)
        )

    async def log_in(self, request: Request) -> Response:
        """Start a session."""
        fields = await _read_form(request)
        credentials = authorization(fields.get("token", "").strip())
        to = fields.get("to", "")
        to = to if _BELOW.fullmatch(to) else PAGE
        if await self._backend.authenticate(credentials) is None:
            return self._ask_for_token(request, to, "This token is not known.")
        response = RedirectResponse(to, 303)
        self._sessions.begin(request, response, credentials)
        return response

    async def log_out(self, request: Request) -> Response:
        """End a session."""
        _check_origin(request)
        response = RedirectResponse(PAGE, 303)
        self._sessions.end(request, response)
        return response

    async def command_job(self, request: Request) -> Response:
        """Command a job."""
        job = request.path_params["job"]
        return await self._command(request, COMMANDS, job, f"{PAGE}/jobs/{quote(job, '')}")

    async def command_node(self, request: Request) -> Response:
        """Command a node."""
        return await self._command(request, NODE_COMMANDS, request.path_params["node"], PAGE)

    async def _command(
        self, request: Request, kinds: Sequence[CommandKind], target: str, to: str
    ) -> Response:
        api = await self._open_api(request)
        _check_origin(request)
        kind = next((kind for kind in kinds if kind.value == request.path_params["command"]), None)
        if kind is None:
            raise HTTPException(404, "there is no such command")
        await self._backend.write(lambda: api.send_command(kind, target))
        return RedirectResponse(to, 303)

    async def add_node(self, request: Request) -> Response:
        """Add a node."""
        api = await self._open_api(request)
        name = (await _read_form(request)).get("name", "").strip()[:60]
        node = NodeRequest(name=name) if name else NodeRequest()
        await self._backend.write(lambda: api.add_node(node))
        return RedirectResponse(PAGE, 303)

    @property
    def routes(self) -> list[Route]:
        """Routes of the page."""
        return [
            Route(PAGE, self.show_overview),
            Route(f"{PAGE}/whatif", self.show_whatif),
            Route(f"{PAGE}/submit", self.show_form),
            Route(f"{PAGE}/submit", self.submit, methods=["POST"]),
            Route(f"{PAGE}/jobs", self.show_jobs),
            Route(f"{PAGE}/jobs/{{job}}", self.show_job),
            Route(f"{PAGE}/jobs/{{job}}/logs", self.show_logs),
            Route(f"{PAGE}/nodes", self.add_node, methods=["POST"]),
            Route(f"{PAGE}/nodes/{{node}}/{{command}}", self.command_node, methods=["POST"]),
            Route(f"{PAGE}/login", self.log_in, methods=["POST"]),
            Route(f"{PAGE}/logout", self.log_out, methods=["POST"]),
            Route(f"{PAGE}/jobs/{{job}}/{{command}}", self.command_job, methods=["POST"]),
        ]


def _check_origin(request: Request) -> None:
    """Refuse a form that no page of this site sent.

    Browsers send an `Origin` with every form, and the gate refuses foreign origins. What remains to
    refuse is a request without an origin.

    Raises:
        HTTPException: The request has no origin.
    """
    if "origin" not in request.headers:
        raise HTTPException(403, "this form has no Origin; send it with a browser")


async def _read_form(request: Request) -> dict[str, str]:
    _check_origin(request)
    async with request.form(max_files=0, max_fields=40) as form:
        return {name: text for name, text in form.items() if isinstance(text, str)}


def create_page(backend: ServiceBackend, secret: str) -> ASGIApp:
    """Create the live page of a service; `secret` is the installation's, `USER:PASSWORD`."""
    page = Page(backend, secret)
    handlers = {ShockwaveError: page.show_error, LoginRequired: page.ask_to_log_in}
    return BodyLimit(Starlette(routes=page.routes, exception_handlers=handlers))
