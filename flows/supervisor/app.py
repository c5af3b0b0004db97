"""The app of `shockwave up`: Prefect's server with reports, API and live page."""

import os
import time
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from flows.prefect_server.garbage import start_collecting_rarely

if TYPE_CHECKING:
    from fastapi import FastAPI

LOOK_SECONDS = 30.0
"""Interval at which the server checks that it answers itself. An engineering choice."""


def create_app() -> "FastAPI":
    """Create the app of a warehouse's service.

    Raises:
        RuntimeError: `flows.supervisor.service` did not set the environment.
    """
    with start_collecting_rarely():
        from starlette.staticfiles import StaticFiles

        from flows.prefect_server.command import REPORTS, URL, WAREHOUSE
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
        from flows.web.single_sign_on import find_single_sign_on

        app, secret = create_prefect_app(), read_own_secret()
        serve_files(
            app, "/reports", StaticFiles(directory=Path(os.environ[REPORTS]), check_dir=False)
        )
        database_url = os.environ.get(DATABASE_URL, "")
        users = find_single_sign_on()
        backend = ServiceBackend(Path(os.environ[WAREHOUSE]), secret, database_url, users)
        serve_beside(app, PREFIX, create_api(backend))
        serve_beside(app, PAGE, create_page(backend, secret))
        Thread(target=_report_answers, args=[os.environ[URL]], daemon=True).start()
        return add_gate(app)


def _report_answers(url: str) -> None:
    """Report a sign of life to the supervisor whenever the server answers a request of its own."""
    from flows.prefect_server.children import ALIVE
    from flows.prefect_server.command import answers

    while True:
        time.sleep(LOOK_SECONDS)
        if answers(url):
            print(ALIVE, flush=True)
