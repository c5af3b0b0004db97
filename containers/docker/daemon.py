"""Client of a node's Docker daemon; the only module that calls the Docker SDK.

Its calls raise `NodeGone` if the daemon does not answer, and `Refused` if it refuses a request.
"""

import contextlib
import math
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

import docker
import docker.constants
import docker.errors
import docker.tls
import requests.exceptions

from containers.docker.nodes import Node
from containers.docker.rendering import GPUS, JOB, NODE, RANK, ROUND, RUN, Rendered
from containers.docker.ssh import SshAdapter
from containers.leasing.engine import KILLED, STOPPED, Exit, Found, Lacking, NodeGone, Refused

ANSWER_SECONDS = 10.0
"""Timeout of a query, after which the daemon counts as gone. An engineering bound."""
CREATED_SECONDS = 0.05
"""Time between questions whether another process has created a container."""
WORK_SECONDS = 120.0
"""Timeout of creating, starting and removing containers. GPU drivers can be slow. An engineering
bound."""
CONNECTIONS = 32
"""Largest number of connections to a daemon. An engineering bound."""
_BY_SSH = "http://ssh:22"
"""Placeholder address of a daemon behind `ssh`, for the SDK."""
LOG_LINES = 20
"""Last log lines of a crashed container, searched for its last words. An engineering choice."""

MOST_LOG_LINES = 100_000
"""Most log lines of a container that are kept. Docker keeps 20 MB (`rendering.py`). An engineering
bound."""

NO_HOST = {"com.docker.network.bridge.inhibit_ipv4": "true"}
"""Options of a private network: a bridge without an address, so that the host is unreachable."""


MOST_RECEIVED = 2**15
"""Most bytes that are received from a shell at a time. An engineering bound."""

GOODBYE = b"\x03\x04"
"""Ctrl-C and Ctrl-D: Docker leaves a program running whose terminal is closed."""


class Shell:
    """A program in a container, whose terminal is here. One thread may receive, another send."""

    def __init__(
        self, api: Any, container: str, command: list[str], close: Callable[[], None]
    ) -> None:
        self._api, self._close = api, close
        self._sending = Lock()
        given = {"stdin": True, "tty": True, "environment": {"TERM": "xterm"}}
        self._id = api.exec_create(container, command, **given)["Id"]
        opened = api.exec_start(self._id, tty=True, socket=True)
        self._opened = opened  # owns the connection
        self._socket: socket.socket = getattr(opened, "_sock", opened)
        self._socket.settimeout(None)

    def receive(self) -> bytes:
        """Wait for what the program prints; nothing once it has ended."""
        try:
            return self._socket.recv(MOST_RECEIVED)
        except OSError:
            return b""

    def send(self, keys: bytes) -> None:
        """Send what is typed; after the program's end it is lost."""
        with self._sending, contextlib.suppress(OSError):
            self._socket.sendall(keys)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal, in characters."""
        with contextlib.suppress(docker.errors.APIError, OSError):
            self._api.exec_resize(self._id, height=rows, width=columns)

    def wait(self) -> int | None:
        """Return the program's exit code; None if it is unknown, as its container is gone."""
        with contextlib.suppress(docker.errors.APIError, OSError):
            code: int | None = self._api.exec_inspect(self._id)["ExitCode"]
            return code
        return None

    def end(self) -> None:
        """Interrupt the program, and let `receive` and `send` return; never waits.

        A program that left its input unread until `send` waited is not interrupted.
        """
        if self._sending.acquire(blocking=False):
            with contextlib.suppress(OSError):
                self._socket.settimeout(0.0)
                self._socket.sendall(GOODBYE)
            self._sending.release()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it, and close all connections."""
        self.end()
        self._opened.close()
        self._close()


class Daemon:
    """The Docker daemon of a node.

    Raises:
        NodeGone: No client can be made for its endpoint.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        with _translated():
            oldest = docker.constants.MINIMUM_DOCKER_API_VERSION
            self._client = self._connect(ANSWER_SECONDS, oldest)
            version = self._client.version(api_version=False)["ApiVersion"]
            self._client.api._version = version
            self._slow_client = self._connect(WORK_SECONDS, version)

    def _connect(self, seconds: float, version: str) -> Any:
        client = self._make_client(timeout=seconds, version=version)
        client.api.trust_env = False  # otherwise REQUESTS_CA_BUNDLE replaces ca.pem
        return client

    def _make_client(self, **options: Any) -> Any:
        if self._node.endpoint.startswith("ssh://"):
            client = docker.DockerClient(base_url=_BY_SSH, **options)
            client.api.mount("http://", SshAdapter(self._node.endpoint, CONNECTIONS))
            return client
        folder = self._node.tls
        tls = folder and docker.tls.TLSConfig(
            client_cert=(str(folder / "cert.pem"), str(folder / "key.pem")),
            ca_cert=str(folder / "ca.pem"),
            verify=True,
        )
        return docker.DockerClient(
            base_url=self._node.endpoint, tls=tls or False, max_pool_size=CONNECTIONS, **options
        )

    def info(self) -> dict[str, Any]:
        """Return the daemon's description of itself and its machine (`docker info`)."""
        with _translated():
            info: dict[str, Any] = self._client.info()
        return info

    def components(self) -> dict[str, str]:
        """Return the versions of components such as `Engine` and `runc`, by name."""
        with _translated():
            parts: list[dict[str, str]] = self._client.version().get("Components") or []
        return {part["Name"]: part["Version"] for part in parts}

    def image(self, name: str) -> str:
        """Return the id of an image, a digest of its contents.

        Raises:
            Lacking: The node lacks the image.
            Refused: The image has volumes.
        """
        with _translated():
            image = self._client.images.get(name)
            _refuse_volumes(name, image.attrs["Config"].get("Volumes") or ())
            return str(image.id)

    def find_in_registry(self, name: str) -> None:
        """Look for an image in its registry.

        Raises:
            Refused: The registry does not answer, lacks the image, or does not show it to us.
        """
        with _translated():
            self._client.images.get_registry_data(name)

    def pull(self, name: str) -> None:
        """Pull an image; credentials are those of `docker login` on this machine.

        Raises:
            Refused: The registry does not answer, lacks the image, or does not show it to us.
        """
        with _translated(WORK_SECONDS):
            self._slow_client.images.pull(name)

    def probe(self, rendered: Rendered) -> tuple[int, str]:
        """Run a container to its end and remove it; return its exit code and log.

        Raises:
            Refused: The container cannot be started.
        """
        self.start(rendered)
        with _translated():
            container = self._client.containers.get(rendered.name)
            try:
                code = container.wait(timeout=ANSWER_SECONDS)["StatusCode"]
                return code, container.logs().decode(errors="replace").strip()
            finally:
                container.remove(force=True)

    def found(self, run: str) -> list[Found]:
        """Return the containers of a run on this node."""
        filters = {"label": [f"{RUN}={run}", f"{NODE}={self._node.name}"]}
        with _translated():
            rows = self._client.api.containers(all=True, filters=filters)
        return [_found(row) for row in rows if row["Labels"].keys() >= _NEEDED]

    def runs(self, *, stopped: bool = False) -> set[str]:
        """Return runs with running or, if `stopped`, any containers, on any node of the daemon."""
        with _translated():
            rows = self._client.api.containers(all=stopped, filters={"label": [RUN]})
        return {row["Labels"][RUN] for row in rows}

    def nodes_of(self, run: str) -> set[str]:
        """Return the names of a run's nodes that have running containers on this daemon."""
        with _translated():
            rows = self._client.api.containers(filters={"label": [f"{RUN}={run}", NODE]})
        return {row["Labels"][NODE] for row in rows}

    def start(self, rendered: Rendered) -> None:
        """Create and start a container, or start the existing one of that name.

        Raises:
            Refused: The container cannot be started; it is removed.
        """
        if rendered.network:
            with _translated():
                self._make_network(rendered)
        try:
            with _translated(WORK_SECONDS):
                self._create_and_start(rendered.name, rendered.options)
        except Refused:
            if rendered.network:
                self.remove_network(rendered.network)
            raise

    def _create_and_start(self, name: str, options: dict[str, Any]) -> None:
        containers = self._slow_client.containers
        try:
            container = containers.create(name=name, **options)
        except docker.errors.APIError as error:
            if error.status_code != 409:
                raise
            container = self._wait_for_created(name)
            if container.labels != options["labels"]:  # of a round that was never recorded
                container.remove(force=True)
                container = containers.create(name=name, **options)
        try:
            mounted = [mount for mount in container.attrs["Mounts"] if mount["Type"] == "volume"]
            _refuse_volumes(options["image"], [mount["Destination"] for mount in mounted])
            container.start()
        except (docker.errors.APIError, Refused):
            container.remove(force=True, v=True)
            raise

    def _wait_for_created(self, name: str) -> Any:
        """Return a container of whose name another process may still be creating one."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return self._slow_client.containers.get(name)
            except docker.errors.NotFound:
                if time.monotonic() > deadline:
                    raise
            time.sleep(CREATED_SECONDS)

    def _make_network(self, rendered: Rendered) -> None:
        labels = {RUN: rendered.options["labels"][RUN]}
        if not self._client.networks.list(names=[f"^{rendered.network}$"]):
            with contextlib.suppress(docker.errors.APIError):  # another rank was faster
                self._client.networks.create(
                    rendered.network,
                    internal=True,
                    check_duplicate=True,
                    labels=labels,
                    options=NO_HOST,
                )

    def divide(self, found: Found, quota: Mapping[str, int]) -> None:
        """Change the CPU quota of a container, as `rendering.limit_processors` returns it."""
        with _translated():
            self._client.api.update_container(found.id, **quota)

    def stop(self, found: Found, grace_seconds: float) -> int:
        """Send SIGTERM, then SIGKILL after the grace period; return the exit code."""
        container, grace = self._slow_client.api, math.ceil(grace_seconds)
        with _translated(WORK_SECONDS + grace):
            try:
                container.stop(found.id, timeout=grace)
                state = container.inspect_container(found.id)["State"]
            except docker.errors.NotFound:
                return STOPPED
        # On a busy host Docker may not have recorded the end yet.
        return KILLED if state["Running"] else int(state["ExitCode"])

    def remove(self, found: Found) -> None:
        """Remove a container, running or not."""
        with _translated(WORK_SECONDS), contextlib.suppress(docker.errors.NotFound):
            self._slow_client.api.remove_container(found.id, force=True, v=True)

    def log(self, found: Found) -> bytes:
        """Return the latest lines that a container printed; empty if it is gone."""
        with _translated(), contextlib.suppress(docker.errors.NotFound):
            return bytes(self._slow_client.api.logs(found.id, tail=MOST_LOG_LINES))
        return b""

    def open_shell(self, found: Found, command: Sequence[str], close: Callable[[], None]) -> Shell:
        """Start a program with a terminal in a container; `close` follows its end.

        Raises:
            Refused: The container does not run, or lacks the program.
        """
        with _translated():
            return Shell(self._client.api, found.id, [*command], close)

    def remove_network(self, name: str) -> None:
        """Remove a private network, if it exists."""
        with _translated(), contextlib.suppress(docker.errors.NotFound):
            try:
                self._client.api.remove_network(name)
            except docker.errors.APIError as error:
                if error.status_code != 403:  # another container is still in it
                    raise

    def exit(self, found: Found) -> Exit:
        """Return the exit of an ended container."""
        with _translated():
            about = self._client.api.inspect_container(found.id)
            state, memory = about["State"], about["HostConfig"]["Memory"]
            log = self._client.api.logs(found.id, tail=LOG_LINES)
        lines = [line.strip() for line in log.decode(errors="replace").splitlines()]
        words = next((line for line in reversed(lines) if line), state.get("Error", ""))
        shown = "".join(letter if letter.isprintable() else " " for letter in words)
        return Exit(state["ExitCode"], state["OOMKilled"], shown[:200], memory)

    def figures(self, container: str) -> Iterator[dict[str, Any]]:
        """Yield a container's resource usage every second until it ends; may fail at any time."""
        figures: Iterator[dict[str, Any]] = self._client.api.stats(container, decode=True)
        return figures

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._slow_client.close()


def _refuse_volumes(image: str, folders: Iterable[str]) -> None:
    """Refuse an image with volumes: a job could fill them without a limit."""
    if declared := ", ".join(sorted(folders)):
        raise Refused(f"image {image} declares the volume {declared}: build it without VOLUME")


_UNREACHABLE = (
    docker.errors.DockerException,
    requests.exceptions.RequestException,
    OSError,
    EOFError,
    ValueError,  # a malformed endpoint or answer
    LookupError,  # an answer that Docker never sends
    TypeError,
)


@contextlib.contextmanager
def _translated(seconds: float | None = None) -> Iterator[None]:
    """Convert exceptions of the SDK to `NodeGone` or `Refused`."""
    try:
        yield
    except docker.errors.ImageNotFound as error:
        raise Lacking(f"{_explained(error)}: build or load the image on that node") from None
    except docker.errors.APIError as error:
        if error.status_code in (502, 503, 504):
            raise NodeGone(_explained(error)) from None
        raise Refused(_explained(error)) from None
    except _UNREACHABLE as error:
        raise NodeGone(_cause(error, ANSWER_SECONDS if seconds is None else seconds)) from None


def _cause(error: BaseException, seconds: float) -> str:
    """Return the root cause of an error, without its wrappers; `seconds` was the timeout."""
    if isinstance(error, requests.exceptions.Timeout):
        return f"no answer in {seconds:g} s"
    within = [error, *error.args, error.__cause__, error.__context__]
    for cause in within:
        if isinstance(cause, ssl.SSLError):
            return _certificates(cause)
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    inner = next((cause for cause in within[1:] if isinstance(cause, BaseException)), None)
    if inner is not None:
        return _cause(inner, seconds)
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _certificates(error: ssl.SSLError) -> str:
    """Explain which side refuses the other's certificate, and why."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused here: {error.verify_message}"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"{'it refuses the certificate given' if 'alert' in reason else 'TLS'}: {reason}"


def _explained(error: docker.errors.APIError) -> str:
    text = str(error.explanation or error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__


_NEEDED = {RUN, JOB, ROUND, NODE, RANK, GPUS}


def _found(row: dict[str, Any]) -> Found:
    labels = row["Labels"]
    return Found(
        id=row["Id"],
        name=row["Names"][0].removeprefix("/") if row["Names"] else "",
        job_id=int(labels[JOB]),
        round=int(labels[ROUND]),
        rank=int(labels[RANK]),
        gpus=tuple(map(int, labels[GPUS].split(","))),
        running=row["State"] in ("running", "paused", "restarting"),
        begun=row["State"] != "created",
    )
