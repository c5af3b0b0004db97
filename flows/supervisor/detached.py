"""A service in the background: `shockwave up --detach`."""

import os
import subprocess
import sys
import time
from dataclasses import fields

from flows.prefect_server.children import POLL_SECONDS, READY_SECONDS
from flows.prefect_server.logs import LogFormat
from flows.scheduler.options import DATABASE_URL, ServiceOptions
from flows.scheduler.process import FOLDER, find_service
from flows.supervisor.service import Service, describe_access
from predictor.errors import WarehouseError

COMMAND = "from flows.cli.main import main; main()"

LOG = "service.log"
"""Its log, in the folder of the inbox."""


def start_detached(service: Service) -> str:
    """Start a service in the background, wait until it is ready, and say where it is, in lines.

    Raises:
        InputError: See `Service.check`.
        WarehouseBusy: The warehouse has a service.
        WarehouseError: It ended, or is not ready in time.
    """
    service.check()
    log = service.warehouse / FOLDER / LOG
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", COMMAND, "up", *_arguments(service)],
            env={
                **os.environ,
                **({DATABASE_URL: service.database_url} if service.database_url else {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + READY_SECONDS
    while not ((server := find_service(service.warehouse)) and server.ready):
        if process.poll() is not None or time.monotonic() > deadline:
            lines = log.read_text().splitlines() or ["nothing was said"]
            raise WarehouseError(str(log), f"the service did not start ({lines[-1]})", "see there")
        time.sleep(POLL_SECONDS)
    ready = f"Ready: {server.url}/deployments (process {server.pid}; shockwave down stops it)"
    return "\n".join((*describe_access(service.listening), ready))


def _arguments(service: Service) -> list[str]:
    """Its options on a command line; the database's URL, which has a password, is in none."""
    listening, chosen = service.listening, service.options
    default = ServiceOptions()
    options = {
        "host": listening.host,
        "port": listening.port,
        "tls_cert": listening.tls_cert,
        "tls_key": listening.tls_key,
        "behind_proxy": listening.proxy,
        "warehouse": service.warehouse,
        "log_format": "" if service.log_format is LogFormat.TEXT else service.log_format.value,
    } | {
        field.name: value
        for field in fields(chosen)
        if (value := getattr(chosen, field.name)) != getattr(default, field.name)
    }
    return [
        text
        for name, value in options.items()
        if value not in (None, "")
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]
