"""Apps of the Prefect servers that Shockwave starts; they end with their parent process."""

import os
from pathlib import Path

from fastapi import FastAPI
from prefect.server.api.server import create_app as create_prefect
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from flows.servers.children import end_with_parent
from flows.servers.command import REPORTS


def create_plain_app() -> FastAPI:
    """Prefect's app, for a command that starts a server."""
    end_with_parent()
    return create_prefect()


def create_app() -> FastAPI:
    """Prefect's app for `shockwave up`, with the route `/reports` before the UI's catch-all."""
    app = create_plain_app()
    reports = StaticFiles(directory=Path(os.environ[REPORTS]), check_dir=False)
    app.router.routes.insert(0, Mount("/reports", reports, name="reports"))
    return app
