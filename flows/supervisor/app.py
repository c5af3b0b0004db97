"""The app of `shockwave up`: Prefect's, and beside it reports, traces, API and live page."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from flows.prefect_server.garbage import collecting_rarely_from_now

if TYPE_CHECKING:
    from fastapi import FastAPI


def create_app() -> "FastAPI":
    """The app of a warehouse's service.

    Raises:
        RuntimeError: The environment is not that of `flows.supervisor.service`.
    """
    with collecting_rarely_from_now():
        return _app()


def _app() -> "FastAPI":
    from starlette.staticfiles import StaticFiles

    from flows.api.authorization import AuthorizedApi
    from flows.deployments.forms import traces_of
    from flows.prefect_server.command import REPORTS, WAREHOUSE
    from flows.prefect_server.gate import Locked
    from flows.prefect_server.server import beside, closed, hand_out, own_secret, prefect_app
    from flows.prefect_server.traces import traces
    from flows.scheduler.options import DATABASE_URL
    from flows.web.api import PREFIX, create_api
    from flows.web.backend import Backend
    from flows.web.page.app import PAGE, create_page

    app = prefect_app()
    warehouse = Path(os.environ[WAREHOUSE])
    hand_out(app, "/reports", StaticFiles(directory=Path(os.environ[REPORTS]), check_dir=False))
    page = Locked(traces(traces_of(warehouse)), own_secret(), sandbox=False)
    beside(app, "/traces", page)
    service = AuthorizedApi(warehouse, os.environ.get(DATABASE_URL, ""))
    asking = Backend(service, own_secret())
    beside(app, PREFIX, create_api(asking))
    beside(app, PAGE, create_page(asking, own_secret()))
    return closed(app)
