"""Apps of the Prefect servers that Shockwave starts; they end with their parent process."""

import os
from pathlib import Path

from fastapi import FastAPI
from prefect.server.api import collections
from prefect.server.api.server import create_app as create_prefect
from prefect.settings import get_current_settings
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from flows.servers.children import end_with_parent
from flows.servers.command import REPORTS, TRACES
from flows.servers.gate import Gate, Locked
from flows.servers.traces import traces


class _Packaged(StaticFiles):
    """Prefect's views of its integrations, which it would ask GitHub for."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        return await super().get_response(f"{path}.json", scope)


class _Beside:
    """Middleware that leaves one address to another app, which Prefect's own never sees.

    Args:
        app: Prefect's app.
        path: The address.
        page: The app that answers there.
    """

    def __init__(self, app: ASGIApp, path: str, page: ASGIApp) -> None:
        self._app, self._path, self._page = app, path, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] == "http" and scope["path"] == self._path
        await (self._page if ours else self._app)(scope, receive, send)


def create_plain_app() -> FastAPI:
    """Prefect's app behind a gate, for a command that starts a server.

    Raises:
        RuntimeError: The environment is not that of `Access.server_env`.
    """
    app = _prefect()
    _close(app)
    return app


def create_app() -> FastAPI:
    """Prefect's app for `shockwave up`, with the reports and the page of traces."""
    app = _prefect()
    reports = StaticFiles(directory=Path(os.environ[REPORTS]), check_dir=False)
    _hand_out(app, "/reports", reports)
    # Prefect asks each form for a token of its own; the gate refuses forms of other pages.
    page = Locked(traces(Path(os.environ[TRACES])), _secret(), sandbox=False)
    app.add_middleware(_Beside, path="/traces", page=page)
    _close(app)
    return app


def _prefect() -> FastAPI:
    end_with_parent()
    api = get_current_settings().server.api
    if not (api.auth_string and api.csrf_protection_enabled and api.cors_allowed_origins != "*"):
        raise RuntimeError("a server needs a secret, CSRF protection and its own addresses")
    app = create_prefect()
    views = Path(collections.__file__).parent / "collections_data" / "views"
    _hand_out(app, "/api/collections/views", _Packaged(directory=views))
    return app


def _close(app: FastAPI) -> None:
    """Put the gate before all else."""
    origins = get_current_settings().server.api.cors_allowed_origins.split(",")
    app.add_middleware(Gate, origins=origins)  # the last one added is the outermost


def _hand_out(app: FastAPI, path: str, files: StaticFiles) -> None:
    """Hand out files to who has the secret; comes before Prefect's own routes."""
    app.router.routes.insert(0, Mount(path, Locked(files, _secret())))


def _secret() -> str:
    secret = get_current_settings().server.api.auth_string
    assert secret  # _prefect has checked it
    return secret.get_secret_value()
