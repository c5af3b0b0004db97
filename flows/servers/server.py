"""Apps of the Prefect servers that Shockwave starts; they end with their parent process."""

import os
from pathlib import Path

from fastapi import FastAPI
from prefect.server.api import collections
from prefect.server.api.server import create_app as create_prefect
from prefect.settings import get_current_settings
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from flows.servers.children import end_with_parent
from flows.servers.command import REPORTS, TRACES
from flows.servers.gate import Gate, Locked
from flows.servers.traces import traces


class _Packaged(StaticFiles):
    """Prefect's views of its integrations, which it would ask GitHub for."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        return await super().get_response(f"{path}.json", scope)


def create_plain_app() -> FastAPI:
    """Prefect's app behind a gate, for a command that starts a server.

    Raises:
        RuntimeError: The environment is not that of `Access.server_env`.
    """
    end_with_parent()
    api = get_current_settings().server.api
    if not (api.auth_string and api.csrf_protection_enabled and api.cors_allowed_origins != "*"):
        raise RuntimeError("a server needs a secret, CSRF protection and its own addresses")
    app = create_prefect()
    views = Path(collections.__file__).parent / "collections_data" / "views"
    _hand_out(app, "/api/collections/views", _Packaged(directory=views))
    app.add_middleware(Gate, origins=api.cors_allowed_origins.split(","))  # the outermost
    return app


def create_app() -> FastAPI:
    """Prefect's app for `shockwave up`, with the reports and the page of traces."""
    app = create_plain_app()
    reports = StaticFiles(directory=Path(os.environ[REPORTS]), check_dir=False)
    _hand_out(app, "/reports", reports)
    page = Locked(traces(Path(os.environ[TRACES])), _secret(), sandbox=False)
    app.router.routes.insert(0, Route("/traces", page))
    return app


def _hand_out(app: FastAPI, path: str, files: StaticFiles) -> None:
    """Hand out files to who has the secret; comes before Prefect's own routes."""
    app.router.routes.insert(0, Mount(path, Locked(files, _secret())))


def _secret() -> str:
    secret = get_current_settings().server.api.auth_string
    assert secret  # create_plain_app has checked it
    return secret.get_secret_value()
