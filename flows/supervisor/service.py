"""`shockwave up`: start and supervise the Prefect server, deployments, scheduler and forecasts."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from threading import Event
from time import monotonic, sleep
from types import FrameType
from typing import TYPE_CHECKING

from flows.prefect_server.children import POLL_SECONDS, READY_SECONDS, Child
from flows.prefect_server.command import (
    REPORTS,
    SINGLE_SIGN_ON,
    URL,
    WAREHOUSE,
    answers,
    make_server_command,
    shows,
)
from flows.prefect_server.logs import start_log
from flows.scheduler.leadership import TOKEN, LeaseSite, lead
from flows.scheduler.options import DATABASE_URL, ServiceOptions
from flows.scheduler.process import FOLDER, find_service
from flows.supervisor.config import ListenAddress, Service
from predictor.errors import InputError, Interrupted, WarehouseError

if TYPE_CHECKING:
    from flows.prefect_server.access import Access

STEADY_SECONDS = 60.0
"""Time since it was ready after which a process's count of failures is reset. An engineering
choice."""

LONGEST_PAUSE = 32.0
"""Longest pause before a restart, in seconds; it doubles from 1 s with each failure in a row. An
engineering choice."""

SILENT_SECONDS, SILENT_ROUNDS = 300.0, 3
"""Longest silence of Prefect's server before it is restarted, in seconds; of the scheduler, in
seconds plus rounds. Engineering bounds; `_longest_wait`, for hosts that do not answer, is added."""

APP = "flows.supervisor.app:create_app"
"""Factory of the server's app, for uvicorn."""


def describe_access(listening: ListenAddress) -> tuple[str, str]:
    """Return lines that say where the password and the live page are."""
    from flows.prefect_server.access import installation_file

    return (
        f"The UI asks for a password: the line in {installation_file()}. "
        "Where a browser asks for a user name as well, it is the part before the colon.",
        f"Jobs, GPUs and the queue: {listening.shown}/live",
    )


def serve(service: Service, report: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then stop all processes.

    `report` is called with each line of status.

    Raises:
        InputError: See `Service.check`.
        WarehouseError: The warehouse cannot be written, or a process does not start at first.
        Interrupted: SIGINT was received.
    """
    start_log(service.log_format)
    with _catch_signals() as stop, ExitStack() as started:
        listening, url = service.listening, service.database_url
        place = LeaseSite(service.warehouse, url, listening.shown, service.options.speed)
        if not service.standby:
            service.check()
        leader = started.enter_context(lead(place, stop, report, standby=service.standby))
        if leader is None:
            return
        if service.standby:
            service.check()
        from flows.prefect_server.access import describe_first_start, read_access

        access = read_access(listening.url, listening.proxy)
        report(f"Starting Prefect at {listening.shown}{describe_first_start(url)}.")
        supervised = list[SupervisedProcess]()

        def supervise() -> None:
            leader.check()
            for process in supervised:
                process.restart_if_failed()

        for started_with in _processes(service, access, leader.token):
            process = started.enter_context(closing(SupervisedProcess(*started_with, report)))
            if not process.wait_until_ready(stop, supervise):
                return
            supervised.append(process)
        for line in describe_access(listening):
            report(line)
        report(f"Ready: {listening.shown}/deployments (Ctrl-C stops it)")
        leader.announce(())
        known = list[str]()
        while not stop.wait(POLL_SECONDS):
            supervise()
            down = [process.down for process in supervised if process.down]
            if down != known:
                with suppress(WarehouseError):  # a full disk must not end the service
                    leader.announce(down)
                    known = down


_COMMAND = "from flows.cli.main import main; main()"

LOG = "service.log"
"""Log of a detached service, in the inbox's folder."""


def start_detached(service: Service, command: Sequence[str]) -> str:
    """Start a service in the background by a command; once it is ready, return its addresses.

    Raises:
        InputError: See `Service.check`.
        WarehouseBusy: The warehouse has a service.
        WarehouseError: The service ended, or was not ready in time.
    """
    service.check()
    log = service.warehouse / FOLDER / LOG
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _COMMAND, *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = monotonic() + READY_SECONDS
    while not ((server := find_service(service.warehouse)) and server.ready):
        if process.poll() is not None or monotonic() > deadline:
            lines = log.read_text().splitlines() or ["it printed nothing"]
            raise WarehouseError(
                str(log), f"the service did not start ({lines[-1]})", "read this log"
            )
        sleep(POLL_SECONDS)
    ready = f"Ready: {server.url}/deployments (process {server.pid}; shockwave down stops it)"
    return "\n".join((*describe_access(service.listening), ready))


Process = tuple[str, list[str], dict[str, str], Callable[[Child], bool], float, float]
"""Name, command line, environment, readiness test, longest start (s) and longest silence (s)."""


def _processes(service: Service, access: "Access", token: int) -> Iterator[Process]:
    """Yield the Prefect server, deployments, scheduler and forecasts, in start order."""
    listening, warehouse, client = service.listening, str(service.warehouse), access.client_env()
    database = {DATABASE_URL: service.database_url} if service.database_url else {}
    yield (
        "Prefect server",
        make_server_command(APP, listening.host, listening.port, listening.tls),
        _server_env(service) | access.server_env(),
        lambda child: answers(access.url),
        READY_SECONDS,
        SILENT_SECONDS,
    )
    yield (
        "serving the deployments",
        [sys.executable, "-m", "flows.deployments.serving", warehouse],
        client | {REPORTS: str(service.reports)} | database,
        lambda child: child.reported_ready.is_set() and shows(access.url),
        READY_SECONDS,
        math.inf,
    )
    options, waits = service.options, _longest_wait(service.options)
    yield (
        "scheduler",
        [sys.executable, "-m", "flows.scheduler.scheduler", warehouse, service.options.text],
        client | {TOKEN: str(token), REPORTS: str(service.reports)} | database,
        lambda child: child.reported_ready.is_set(),
        READY_SECONDS + waits,
        SILENT_SECONDS + waits + SILENT_ROUNDS * options.round_seconds / options.speed,
    )
    yield (
        "forecasts",
        [sys.executable, "-m", "flows.api.forecaster", warehouse],
        database,
        lambda child: child.reported_ready.is_set(),
        READY_SECONDS,
        math.inf,
    )


AWAY_SECONDS = 900.0
"""Time for which a scheduler waits for a Slurm that does not answer, before it begins anew. An
engineering choice."""


def _longest_wait(options: ServiceOptions) -> float:
    """Return the longest time in seconds for which a round waits for containers.

    A round ends containers twice, each time within the grace period. It starts a gang's containers
    one after the other, at most on all nodes.
    """
    if options.partition:
        from containers.slurm.brain import END_SECONDS
        from containers.slurm.commands import Commands
        from flows.runs.queue_run import read_kill_seconds

        seconds = 0.0
        with suppress(InputError):  # the scheduler says so
            seconds = float(read_kill_seconds(Commands()))
        return 2.0 * (seconds + END_SECONDS) + AWAY_SECONDS
    if options.cluster is None:
        return 0.0
    from containers.docker.daemon import WORK_SECONDS
    from containers.slurm.cluster import SlurmSite
    from containers.slurm.engine import KILL_SECONDS
    from flows.runs.cluster_file import read_site

    nodes = read_site(options.cluster)
    if isinstance(nodes, SlurmSite):
        return 2.0 * (nodes.grace_seconds + KILL_SECONDS) + AWAY_SECONDS
    return 2.0 * (nodes.grace_seconds + WORK_SECONDS) + len(nodes.nodes) * WORK_SECONDS


class SupervisedProcess:
    """A process that is restarted whenever it fails.

    It is killed if its start takes longer than `ready_seconds`, or if it gives no sign of life for
    `silent_seconds`. Variables of `env` are added to this process's environment. `report` is called
    with each line of status.

    Attributes:
        down: Why it is not ready at present, in words; empty if it is.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        ready: Callable[[Child], bool],
        ready_seconds: float,
        silent_seconds: float,
        report: Callable[[str], None],
    ) -> None:
        self._what, self._ready = (name, command, env, ready_seconds), ready
        self._silent_seconds, self._report = silent_seconds, report
        self._failures, self.down = 0, ""
        self._begin()

    def _begin(self) -> None:
        self._child = Child(*self._what)
        self._ready_since: float | None = None
        self._again_at: float | None = None

    def _is_ready(self) -> bool:
        ready = self._child.is_ready(lambda: self._ready(self._child))
        if ready and self._ready_since is None:
            self._ready_since = monotonic()
        return ready

    def wait_until_ready(self, stop: Event, supervise: Callable[[], None]) -> bool:
        """Wait until the process is ready for the first time; return False if `stop` is set first.

        Meanwhile, restart it if it is killed, and `supervise` what runs already.

        Raises:
            WarehouseError: It ended by itself, or is not ready in time.
        """
        while not stop.wait(POLL_SECONDS):
            supervise()
            if self._again_at is not None or self._child.was_killed:
                self.restart_if_failed()
            elif self._is_ready():
                return True
        return False

    def restart_if_failed(self) -> None:
        """Restart the process if it failed; the pause doubles with each failure in a row."""
        if self._again_at is not None:
            if monotonic() >= self._again_at:
                try:
                    self._begin()
                except OSError as error:  # the machine is short of memory or processes
                    self._fail(f"{self._child.name} cannot be started: {error.strerror}")
            return
        try:
            if self._is_ready():
                self._check_alive()
                self.down = ""
        except WarehouseError as error:
            self._child.stop(0.0)
            self._fail(f"{error.place} {error.problem}")

    def _fail(self, problem: str) -> None:
        since = self._ready_since
        steady = since is not None and monotonic() - since > STEADY_SECONDS
        self._failures = 1 if steady else self._failures + 1
        again = f" ({self._failures} times in a row)" if self._failures > 1 else ""
        self.down = f"{problem}{again}"
        self._report(f"{problem}; restarting it")
        pause = min(2.0 ** min(self._failures - 1, 16), LONGEST_PAUSE)
        self._again_at = monotonic() + pause

    def _check_alive(self) -> None:
        if monotonic() - self._child.heard_at > self._silent_seconds:
            problem, remedy = "makes no progress", "see its log"
            raise WarehouseError(self._child.name, problem, remedy)

    def close(self) -> None:
        """Stop the process."""
        self._child.stop()


@contextmanager
def _catch_signals() -> Iterator[Event]:
    """Yield an event that SIGTERM and SIGINT set; after SIGINT, raise `Interrupted` at the end."""
    stop, numbers = Event(), []

    def on_signal(number: int, frame: FrameType | None) -> None:
        numbers.append(number)
        stop.set()

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if signal.SIGINT in numbers:
        raise Interrupted("shockwave up", "stopped", "start it again with the same options")


def _server_env(service: Service) -> dict[str, str]:
    import prefect
    from prefect.settings import get_current_settings

    from flows.prefect_server.prefect_driver import SERVER_SETTINGS

    settings, kept = get_current_settings(), f"PT{24 * 60 * service.prefect_days:.0f}M"  # ISO 8601
    env = {setting.name: str(value) for setting, value in SERVER_SETTINGS.items()} | {
        "PREFECT_SERVER_UI_API_URL": "/api",  # relative, so that it holds for any host name
        "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": kept,
        "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": kept,
        REPORTS: str(service.reports),
        WAREHOUSE: str(service.warehouse),
        URL: service.listening.url,
    }
    if (users := service.listening.single_sign_on) is not None:
        env[SINGLE_SIGN_ON] = str(users.absolute())
    if service.database_url:
        env["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = service.database_url
    usual = prefect.__ui_static_path__.parent
    if not settings.server.ui.static_directory and not os.access(usual, os.W_OK):
        env["PREFECT_UI_STATIC_DIRECTORY"] = str(settings.home / "ui")  # installed by another user
    return env
