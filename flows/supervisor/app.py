"""The app of `shockwave up`: Prefect's server with reports, API and live page."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from flows.prefect_server.garbage import collecting_rarely_from_now

if TYPE_CHECKING:
    from fastapi import FastAPI


def create_app() -> "FastAPI":
    """Create the app of a warehouse's service.

    Raises:
        RuntimeError: The environment is not that of `flows.supervisor.service`.
    """
    with collecting_rarely_from_now():
        return _app()


def _app() -> "FastAPI":
    from starlette.staticfiles import StaticFiles

    from flows.prefect_server.command import REPORTS, WAREHOUSE
    from flows.prefect_server.server import beside, closed, hand_out, own_secret, prefect_app
    from flows.scheduler.options import DATABASE_URL
    from flows.web.api import PREFIX, create_api
    from flows.web.backend import ServiceBackend
    from flows.web.page.app import PAGE, create_page

    app, secret = prefect_app(), own_secret()
    hand_out(app, "/reports", StaticFiles(directory=Path(os.environ[REPORTS]), check_dir=False))
    database_url = os.environ.get(DATABASE_URL, "")
    backend = ServiceBackend(Path(os.environ[WAREHOUSE]), secret, database_url)
    beside(app, PREFIX, create_api(backend))
    beside(app, PAGE, create_page(backend, secret))
    return closed(app)
