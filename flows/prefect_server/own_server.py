"""The Prefect server that a command starts if PREFECT_API_URL is not set.

Prefect itself starts an ephemeral server in every thread that finds no address, because
`temporary_settings` apply only to the current context. Here, the settings apply to the whole
process and its children, and ephemeral servers are disabled.
"""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event
from typing import Any
from urllib.parse import urlsplit

from httpx import HTTPError, HTTPStatusError, InvalidURL, codes
from prefect import context, get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_API_URL,
    PREFECT_SERVER_ALLOW_EPHEMERAL_MODE,
    get_current_settings,
    temporary_settings,
)
from prefect.settings.legacy import Setting

from flows.prefect_server.access import Access, read_access
from flows.prefect_server.children import run_child
from flows.prefect_server.command import answers, make_server_command
from flows.prefect_server.crashes import crash_dead_runs
from flows.prefect_server.environment import private_env, set_env
from flows.prefect_server.prefect_driver import needs_server
from predictor.errors import InputError, first_line

REACH_SECONDS = 10.0
"""Timeout of the first request to a configured server. An engineering bound."""

_UNREACHED = ("Failed to reach API", "Found incompatible versions")
"""Beginnings of error messages of Prefect's client, which has no exception classes for them."""

_UNKNOWN_USER = (codes.UNAUTHORIZED, codes.FORBIDDEN)

SEND_SECONDS = 30.0
"""Timeout for sending pending events and logs before the server stops. An engineering bound."""


@contextmanager
def run_own_server() -> Iterator[None]:
    """Use one server for this process if no server is configured.

    The server stops at the end of the context, or when this process ends.

    Raises:
        InputError: The configured server cannot be reached, at the start or later; or others can
            read the secret's file, or its content is invalid.
        WarehouseError: The secret's file cannot be read or written; or the server ended by itself,
            or is not ready in time.
    """
    if not needs_server():
        with reach_server() as client:
            crash_dead_runs(client)
        with _reaching():
            yield
        return
    with (
        run_plain_server() as access,
        apply_settings(access.client_settings() | {PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: False}),
    ):
        with get_client(sync_client=True) as client:
            crash_dead_runs(client)
        yield


@contextmanager
def reach_server(settings: Mapping[Setting, Any] | None = None) -> Iterator[SyncPrefectClient]:
    """Open a client of the configured server, or of the one that `settings` configure.

    Raises:
        InputError: It cannot be reached, or refuses a request.
    """
    with temporary_settings(settings or {}), _reaching():
        with (
            temporary_settings({PREFECT_API_REQUEST_TIMEOUT: REACH_SECONDS}),
            get_client(sync_client=True) as client,
        ):
            client.raise_for_api_version_mismatch()
        with get_client(sync_client=True) as client:
            yield client


@contextmanager
def _reaching() -> Iterator[None]:
    """Raise `InputError` if the configured server cannot be reached or refuses a request."""
    try:
        yield
    except (HTTPError, InvalidURL, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not str(error).startswith(_UNREACHED):
            raise
        url = urlsplit(PREFECT_API_URL.value() or "")
        shown = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()
        if isinstance(error, HTTPStatusError) and error.response.status_code not in _UNKNOWN_USER:
            problem = f"the Prefect server at {shown} refused a request ({first_line(error)})"
            raise InputError("PREFECT_API_URL", problem, "see the server's log") from None
        raise InputError(
            "PREFECT_API_URL",
            f"no Prefect server can be used at {shown} ({first_line(error.__cause__ or error)})",
            "start one there, give its PREFECT_API_AUTH_STRING, or unset both",
        ) from None


@contextmanager
def run_plain_server(
    env: Mapping[str, str] | None = None, port: int | None = None
) -> Iterator[Access]:
    """Run a Prefect server without a UI, with this process's settings; yield its access once ready.

    Variables of `env` are added to its environment. Without a port, it gets a free one. For errors,
    see `run_own_server`.
    """
    host, port = "127.0.0.1", port or _free_port()
    access = read_access(f"http://{host}:{port}")
    own_env = _server_env() | dict(env or {}) | access.server_env()
    command = make_server_command("flows.prefect_server.server:create_plain_app", host, port)
    with run_child("Prefect server", command, own_env) as server:
        server.wait_until(lambda: answers(access.url), Event())
        yield access


@contextmanager
def apply_settings(updates: Mapping[Setting, Any]) -> Iterator[None]:
    """Apply settings to all threads of this process and to its children.

    At the end of the context, send pending events and logs.
    """
    variables = {setting.name: str(value) for setting, value in updates.items()}
    everywhere = context.GLOBAL_SETTINGS_CONTEXT
    with temporary_settings(updates), set_env(private_env() | variables):
        # New threads start from the global context.
        context.GLOBAL_SETTINGS_CONTEXT = context.get_settings_context()
        try:
            yield
        finally:
            send_pending()
            context.GLOBAL_SETTINGS_CONTEXT = everywhere


def send_pending(seconds: float = SEND_SECONDS) -> None:
    """Send pending events and logs."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (EventsWorker, APILogWorker):
        worker.drain_all(timeout=seconds)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _server_env() -> dict[str, str]:
    """Return this process's settings, for a server without a UI."""
    return get_current_settings().to_environment_variables(exclude_unset=True) | {
        "PREFECT_UI_ENABLED": "0",
        # The client gets the errors, so the server need not log its retries.
        "PREFECT_LOGGING_SERVER_LEVEL": "CRITICAL",
        "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "0",  # saves a second; nothing here uses blocks
        "PREFECT__SERVER_EPHEMERAL": "1",
        "PREFECT__SERVER_FINAL": "1",
    }
