"""The app of `shockwave up`: Prefect's server with reports, API and live page."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from flows.prefect_server.garbage import start_collecting_rarely

if TYPE_CHECKING:
    from fastapi import FastAPI


def create_app() -> "FastAPI":
    """Create the app of a warehouse's service.

    Raises:
        RuntimeError: `flows.supervisor.service` did not set the environment.
    """
    with start_collecting_rarely():
        from starlette.staticfiles import StaticFiles

        from flows.prefect_server.command import REPORTS, WAREHOUSE
        from flows.prefect_server.server import (
            add_gate,
            create_prefect_app,
            read_own_secret,
            serve_beside,
            serve_files,
        )
        from flows.scheduler.options import DATABASE_URL
        from flows.web.api import PREFIX, create_api
        from flows.web.backend import ServiceBackend
        from flows.web.page.app import PAGE, create_page

        app, secret = create_prefect_app(), read_own_secret()
        serve_files(
            app, "/reports", StaticFiles(directory=Path(os.environ[REPORTS]), check_dir=False)
        )
        database_url = os.environ.get(DATABASE_URL, "")
        backend = ServiceBackend(Path(os.environ[WAREHOUSE]), secret, database_url)
        serve_beside(app, PREFIX, create_api(backend))
        serve_beside(app, PAGE, create_page(backend, secret))
        return add_gate(app)
