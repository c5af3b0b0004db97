"""The app of the live page, `/live`: access to its pages, and the commands of its forms.

It serves browsers as the API serves programs, through the same `Guarded`.
"""

import base64
import re
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, cast
from urllib.parse import quote

from anyio import to_thread
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from flows.api.submission import NodeRequest
from flows.prefect_server.secret import authorization
from flows.web.backend import Backend, BodyLimit, get_http_status
from flows.web.page.form import forecast_form, make_form, make_key, parse_form
from flows.web.page.sessions import Sessions
from flows.web.page.views import (
    FOLDER,
    LOOK,
    NODE_ORDERS,
    ORDERS,
    load_templates,
    make_job_page,
    make_log_page,
    make_overview,
    make_whatif_page,
    open_logs,
)
from predictor.errors import ShockwaveError
from tasks.commands import CommandKind
from warehouse.inbox.entries import Entry
from warehouse.inbox.tokens import Token

PAGE = "/live"
"""Where it is."""

_STYLE = LOOK.read_text(encoding="utf-8") + (FOLDER / "live.css").read_text(encoding="utf-8")
_SCRIPT = (FOLDER / "live.js").read_text(encoding="utf-8")
_BELOW = re.compile(rf"{PAGE}(/whatif|/submit|/jobs/[\w%.~-]{{1,300}})?")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; "
    "connect-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""What a page may load and run: its own style and script, nothing else."""


class Page:
    """The page of a service.

    Args:
        asking: The service, as requests ask it.
        secret: The installation's, `USER:PASSWORD`.
    """

    def __init__(self, asking: Backend, secret: str) -> None:
        self._asking, self._secret = asking, secret
        self._sessions = Sessions(PAGE, secret)

    async def _caller(self, request: Request) -> Token | None:
        header = self._sessions.authorization(self._sessions.cookie_of(request))
        request.state.caller = await self._asking.who(header) if header else None
        return cast("Token | None", request.state.caller)

    def _shown(
        self,
        request: Request,
        template: str,
        caller: Token | None,
        code: int = 200,
        problem: str = "",
        **more: Any,
    ) -> Response:
        known = self._sessions.cookie_of(request)
        cookie = known or self._sessions.made("")
        body = (
            load_templates()
            .get_template(template)
            .render(
                caller=caller,
                csrf=self._sessions.form_token(cookie),
                problem=problem,
                root=PAGE,
                script=Markup(_SCRIPT),
                style=Markup(_STYLE),
                **more,
            )
        )
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
        if code == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="Shockwave"'
        response = HTMLResponse(body.encode(errors="replace"), code, headers)
        if not known:
            self._sessions.give(request, response, cookie)
        return response

    def _asks(self, request: Request, to: str, problem: str = "") -> Response:
        """Ask for a token."""
        return self._shown(request, "login.html.j2", None, 401, problem, to=to)

    async def failed(self, request: Request, error: Exception) -> Response:
        """Show an error, to a caller who may not have logged in."""
        assert isinstance(error, ShockwaveError)
        caller = getattr(request.state, "caller", None)
        return self._shown(request, "problem.html.j2", caller, get_http_status(error), str(error))

    async def _answer(
        self, request: Request, template: str, work: Callable[[Token], Awaitable[dict[str, Any]]]
    ) -> Response:
        """A page, or the login form for a caller without a session; 304 if unchanged."""
        caller = await self._caller(request)
        if caller is None:
            return self._asks(request, quote(request.url.path))
        content = await work(caller)
        response = await to_thread.run_sync(
            lambda: self._shown(request, template, caller, **content)
        )
        response.headers["ETag"] = tag = f'"{sha256(bytes(response.body)).hexdigest()[:32]}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return response

    async def overview(self, request: Request) -> Response:
        """The cluster."""
        asking = self._asking
        return await self._answer(
            request,
            "overview.html.j2",
            lambda caller: asking.read(lambda: make_overview(asking.service, caller)),
        )

    async def job(self, request: Request) -> Response:
        """A job."""
        asking, target = self._asking, request.path_params["job"]
        return await self._answer(
            request,
            "job.html.j2",
            lambda caller: asking.read(lambda: make_job_page(asking.service, caller, target)),
        )

    async def logs(self, request: Request) -> Response:
        """What a job printed."""
        asking, target = self._asking, request.path_params["job"]

        async def shown(caller: Token) -> dict[str, Any]:
            printed = await asking.read(lambda: open_logs(asking.service, caller, target))
            return await asking.look(lambda: make_log_page(*printed))

        return await self._answer(request, "log.html.j2", shown)

    async def whatif(self, request: Request) -> Response:
        """What a change would do."""
        asking, asked = self._asking, dict(request.query_params)
        return await self._answer(
            request,
            "whatif.html.j2",
            lambda caller: asking.read(lambda: make_whatif_page(asking.service, caller, asked)),
        )

    async def blank(self, request: Request) -> Response:
        """The form that hands a job in."""
        asking = self._asking
        return await self._answer(
            request,
            "submit.html.j2",
            lambda caller: asking.read(lambda: make_form(asking.service, caller, {})),
        )

    async def submit(self, request: Request) -> Response:
        """Hand the job of a form in, or forecast its effect."""
        caller, asking = await self._caller(request), self._asking
        if caller is None:
            return self._asks(request, f"{PAGE}/submit")
        fields = await self._form(request)
        if (do := fields.get("do")) not in ("foretell", "submit"):
            raise HTTPException(400, "this form says neither foretell nor submit; load it again")
        problem, code, rows = "", 200, dict[str, Any]()
        key = fields.get("key", "")[:100]
        try:
            if do == "foretell":
                rows = await asking.read(lambda: forecast_form(asking.service, caller, fields))
            else:
                handed_in = await asking.write(
                    lambda: asking.service.submit(caller, parse_form(fields), make_key(fields))
                )
                return RedirectResponse(f"{PAGE}/jobs/{handed_in.job_id}", 303)
        except ShockwaveError as error:
            problem, code = str(error), get_http_status(error)
        content = await asking.read(lambda: make_form(asking.service, caller, fields, key))
        return await to_thread.run_sync(
            lambda: self._shown(
                request, "submit.html.j2", caller, code, problem, **{**content, **rows}
            )
        )

    async def _form(self, request: Request) -> dict[str, str]:
        """The fields of a form, checked to come from a page of ours.

        Raises:
            HTTPException: It does not.
        """
        async with request.form(max_files=0, max_fields=40) as form:
            fields = {name: text for name, text in form.items() if isinstance(text, str)}
        cookie = self._sessions.cookie_of(request)
        if not self._sessions.own_form(cookie, fields.get("csrf", "")):
            raise HTTPException(403, "this form has no CSRF token of its page; load it again")
        return fields

    async def login(self, request: Request) -> Response:
        """Begin a session."""
        fields = await self._form(request)
        proof_text, to = fields.get("token", "").strip(), fields.get("to", "")
        proof = authorization(proof_text)
        to = to if _BELOW.fullmatch(to) else PAGE
        if await self._asking.who(proof) is None:
            return self._asks(request, to, "This token is not known.")
        response = RedirectResponse(to, 303)
        self._sessions.give(request, response, self._sessions.made(proof))
        return response

    async def logout(self, request: Request) -> Response:
        """End a session."""
        await self._form(request)
        response = RedirectResponse(PAGE, 303)
        self._sessions.end(request, response)
        return response

    async def command(self, request: Request) -> Response:
        """Give a command about a job."""
        caller = await self._caller(request)
        target, name = request.path_params["job"], request.path_params["command"]
        if caller is None:
            return self._asks(request, PAGE)
        await self._form(request)
        kind = _known(next((kind for kind in ORDERS if kind.value == name), None))
        await self._asking.write(lambda: self._asking.service.command(caller, kind, target))
        return RedirectResponse(f"{PAGE}/jobs/{quote(target, '')}", 303)

    async def node(self, request: Request) -> Response:
        """Give a command about a node."""
        target, name = request.path_params["node"], request.path_params["command"]
        kind = next((kind for kind in NODE_ORDERS if kind.value == name), None)
        return await self._operated(
            request,
            lambda caller, fields: self._asking.service.command(caller, _known(kind), target),
        )

    async def add(self, request: Request) -> Response:
        """Add a node."""
        return await self._operated(
            request,
            lambda caller, fields: self._asking.service.add(caller, _added(fields)),
        )

    async def _operated(
        self, request: Request, work: Callable[[Token, dict[str, str]], list[Entry]]
    ) -> Response:
        """Give a command of a form on the overview."""
        caller = await self._caller(request)
        if caller is None:
            return self._asks(request, PAGE)
        fields = await self._form(request)
        await self._asking.write(lambda: work(caller, fields))
        return RedirectResponse(PAGE, 303)

    @property
    def routes(self) -> list[Route]:
        """Its addresses."""
        return [
            Route(PAGE, self.overview),
            Route(f"{PAGE}/whatif", self.whatif),
            Route(f"{PAGE}/submit", self.blank),
            Route(f"{PAGE}/submit", self.submit, methods=["POST"]),
            Route(f"{PAGE}/jobs/{{job}}", self.job),
            Route(f"{PAGE}/jobs/{{job}}/logs", self.logs),
            Route(f"{PAGE}/nodes", self.add, methods=["POST"]),
            Route(f"{PAGE}/nodes/{{node}}/{{command}}", self.node, methods=["POST"]),
            Route(f"{PAGE}/login", self.login, methods=["POST"]),
            Route(f"{PAGE}/logout", self.logout, methods=["POST"]),
            Route(f"{PAGE}/jobs/{{job}}/{{command}}", self.command, methods=["POST"]),
        ]


def _added(fields: dict[str, str]) -> NodeRequest:
    return (
        NodeRequest(name=name[:60]) if (name := fields.get("name", "").strip()) else NodeRequest()
    )


def _known(kind: CommandKind | None) -> CommandKind:
    if kind is None:
        raise HTTPException(404, "there is no such command")
    return kind


def create_page(asking: Backend, secret: str) -> ASGIApp:
    """The live page of a service.

    Args:
        asking: The service, as requests ask it.
        secret: The installation's, `USER:PASSWORD`.
    """
    page = Page(asking, secret)
    return BodyLimit(
        Starlette(routes=page.routes, exception_handlers={ShockwaveError: page.failed})
    )
