"""The app of `shockwave up`'s server: Prefect's, and beside it reports, traces and the API."""

import os
from pathlib import Path

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from flows.servers.command import REPORTS, WAREHOUSE
from flows.servers.gate import Locked
from flows.servers.server import beside, closed, hand_out, own_secret, prefect_app
from flows.servers.traces import traces
from flows.service.api import PREFIX, create_api
from flows.service.forms import traces_of
from flows.service.guarded import Guarded
from flows.service.options import DATABASE_URL


def create_app() -> FastAPI:
    """The app of a warehouse's service.

    Raises:
        RuntimeError: The environment is not that of `flows.service.service`.
    """
    app = prefect_app()
    warehouse = Path(os.environ[WAREHOUSE])
    hand_out(app, "/reports", StaticFiles(directory=Path(os.environ[REPORTS]), check_dir=False))
    page = Locked(traces(traces_of(warehouse)), own_secret(), sandbox=False)
    beside(app, "/traces", page)
    service = Guarded(warehouse, os.environ.get(DATABASE_URL, ""))
    beside(app, PREFIX, create_api(service, own_secret()))
    return closed(app)
