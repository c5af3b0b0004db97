"""Apps of the Prefect servers that Shockwave starts; they end with their parent process."""

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from flows.prefect_server.children import end_with_parent
from flows.prefect_server.garbage import start_collecting_rarely
from flows.prefect_server.gate import Gate, SecretRequired, SideBySide


class _Packaged(StaticFiles):
    """Serves views of integrations from Prefect's package; Prefect would ask GitHub for them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        return await super().get_response(f"{path}.json", scope)


def create_plain_app() -> FastAPI:
    """Create Prefect's app behind a gate, for a command that starts a server.

    Raises:
        RuntimeError: The environment is not that of `Access.server_env`.
    """
    with start_collecting_rarely():
        return add_gate(create_prefect_app())


def create_prefect_app() -> FastAPI:
    """Create Prefect's app with its own pages, without the gate.

    Raises:
        RuntimeError: See `create_plain_app`.
    """
    from prefect.server.api import collections
    from prefect.server.api.server import create_app as create_prefect
    from prefect.settings import get_current_settings

    end_with_parent()
    lock_from_the_start()
    api = get_current_settings().server.api
    if not (api.auth_string and api.csrf_protection_enabled and api.cors_allowed_origins != "*"):
        raise RuntimeError("a server needs a secret, CSRF protection and its own addresses")
    app = create_prefect()
    views = Path(collections.__file__).parent / "collections_data" / "views"
    serve_files(app, "/api/collections/views", _Packaged(directory=views))
    return app


def lock_from_the_start() -> None:
    """Let each transaction that may write take SQLite's lock when it begins.

    Prefect takes it at the first write. Where it has read before and another process wrote
    meanwhile, SQLite refuses at once ("database is locked") in place of waiting its timeout.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction

    def lock(configuration: Any, session: Any, with_for_update: bool = False) -> Any:
        return begin(configuration, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = lock


def add_gate(app: FastAPI) -> FastAPI:
    """Add the gate in front of an app."""
    from prefect.settings import get_current_settings

    origins = get_current_settings().server.api.cors_allowed_origins.split(",")
    app.add_middleware(Gate, origins=origins)  # the middleware added last is the outermost
    return app


def serve_beside(app: FastAPI, path: str, page: ASGIApp) -> None:
    """Serve another app beside Prefect's, which never sees its requests.

    Prefect demands a CSRF token with each request; for this app, the gate refuses foreign pages.
    """
    app.add_middleware(SideBySide, path=path, page=page)


def serve_files(app: FastAPI, path: str, files: StaticFiles) -> None:
    """Serve files to holders of the secret, at a path that precedes Prefect's own routes."""
    app.router.routes.insert(0, Mount(path, SecretRequired(files, read_own_secret())))


def read_own_secret() -> str:
    """Return the secret of this server."""
    from prefect.settings import get_current_settings

    secret = get_current_settings().server.api.auth_string
    assert secret  # create_prefect_app has checked it
    return secret.get_secret_value()
