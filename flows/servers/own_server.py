"""The one Prefect server that a command starts for itself where it is told of none.

Prefect starts servers too, wherever a thread of it finds no address: `temporary_settings`
hold for one thread and what copies its context. Here they hold for the whole process and
for those it starts, and Prefect may start none.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event
from typing import Any

from prefect import context
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_SERVER_ALLOW_EPHEMERAL_MODE,
    get_current_settings,
    temporary_settings,
)
from prefect.settings.legacy import Setting

from flows.servers.children import child
from flows.servers.command import answers, server_command
from flows.servers.prefect_driver import starts_server

SEND_SECONDS = 30.0
"""How long events and logs may take that are still to be sent to a server that is stopped."""


@contextmanager
def own_server() -> Iterator[None]:
    """Talk to one server of this process, where it is told of none.

    It is stopped with the context, and ends with this process however that ends.

    Raises:
        WarehouseError: It ended by itself, or is not ready in time.
    """
    if not starts_server():
        yield
        return
    with (
        plain_server() as url,
        _settings_of_all({PREFECT_API_URL: url, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: False}),
    ):
        try:
            yield
        finally:
            _send_all()


@contextmanager
def plain_server(env: Mapping[str, str] | None = None) -> Iterator[str]:
    """A Prefect server without a UI, with the settings of this process.

    Args:
        env: Added to its environment.

    Yields:
        The URL of its API, once it answers.

    Raises:
        WarehouseError: It ended by itself, or is not ready in time.
    """
    host, port = "127.0.0.1", _free_port()
    url, command = f"http://{host}:{port}", server_command("create_plain_app", host, port)
    with child("Prefect server", command, _server_env() | dict(env or {})) as server:
        server.wait_until(lambda: answers(url), Event())
        yield f"{url}/api"


@contextmanager
def _settings_of_all(updates: Mapping[Setting, Any]) -> Iterator[None]:
    """Settings for all threads of this process, and for the processes that they start."""
    names = {setting.name: str(value) for setting, value in updates.items()}
    environment = {name: os.environ.get(name) for name in names}
    everywhere = context.GLOBAL_SETTINGS_CONTEXT
    with temporary_settings(updates):
        context.GLOBAL_SETTINGS_CONTEXT = context.get_settings_context()
        os.environ.update(names)
        try:
            yield
        finally:
            context.GLOBAL_SETTINGS_CONTEXT = everywhere
            for name, value in environment.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _send_all() -> None:
    """Send what is on its way to the server, as long as it is there."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (EventsWorker, APILogWorker):
        worker.drain_all(timeout=SEND_SECONDS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _server_env() -> dict[str, str]:
    """The settings of this process, on a server without a UI that goes with it."""
    return get_current_settings().to_environment_variables(exclude_unset=True) | {
        "DO_NOT_TRACK": "1",
        "PREFECT_UI_ENABLED": "0",
        "PREFECT__SERVER_EPHEMERAL": "1",
        "PREFECT__SERVER_FINAL": "1",
    }
