"""The API and the page of a service behind their gate, over real HTTP, without Prefect's server."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from threading import Thread

import uvicorn
from starlette.responses import PlainTextResponse

from flows.prefect_server.command import KEPT_SECONDS
from flows.prefect_server.gate import Gate, SideBySide
from flows.scheduler.options import ServiceOptions
from flows.scheduler.scheduler import open_run, schedule
from flows.web.api import PREFIX, create_api
from flows.web.backend import ServiceBackend
from flows.web.page.app import PAGE, create_page
from flows.web.single_sign_on import SingleSignOn
from harness.dockerd import mounts
from harness.waiting import POLL_SECONDS
from warehouse.inbox.inbox import Inbox

SECRET = "shockwave:of-this-installation-and-no-other"


@contextmanager
def served(warehouse: Path, users: SingleSignOn | None = None) -> Iterator[str]:
    """The address of a warehouse's service until the context ends."""
    with socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        backend = ServiceBackend(warehouse, SECRET, single_sign_on=users)
        nobody = PlainTextResponse("Not Found", 404)
        app = SideBySide(
            SideBySide(nobody, PREFIX, create_api(backend)), PAGE, create_page(backend, SECRET)
        )
        gate = Gate(app, [url])
        server = uvicorn.Server(
            uvicorn.Config(
                gate,
                log_level="error",
                lifespan="off",
                proxy_headers=False,
                timeout_graceful_shutdown=1,
                timeout_keep_alive=KEPT_SECONDS,
            )
        )
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server ended before it served"
            time.sleep(POLL_SECONDS)
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join()


def head(storage: Path) -> str:
    """The fields of a cluster file before its nodes."""
    read = ", ".join(f'"{path}"' for path in mounts())
    return f'storage = "{storage}"\nuser = "1000:1000"\nmounts = [{read}]\ngrace_seconds = 1\n'


def drive(warehouse: Path, inbox: Inbox, options: ServiceOptions, rounds: int = 1) -> str:
    """Drive some rounds of a service; returns its run."""
    with open_run(warehouse, inbox, options) as run:
        schedule(run, warehouse, rounds=rounds)
        return run.name
