"""A node's Docker daemon: the only code that talks to Docker.

Errors come out as `NodeGone` (the daemon does not answer) or `Refused` (it does, and
says no).
"""

import contextlib
import math
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import docker
import docker.constants
import docker.errors
import docker.tls
import docker.types
import requests.exceptions

from containers.docker.nodes import Node
from containers.docker.rendering import GPUS, JOB, NODE, RANK, ROUND, RUN, Rendered
from containers.docker.ssh import SshAdapter

ANSWER_SECONDS = 10.0
"""A daemon that takes longer to answer a question counts as gone."""
WORK_SECONDS = 120.0
"""The same for making, starting and removing a container: drivers of GPUs take their time."""
CONNECTIONS = 32
"""At once to one daemon."""
_BY_SSH = "http://ssh:22"
"""What the SDK takes for the address of a daemon that is reached by `ssh`."""
LOG_LINES = 20
"""Of a container that crashed, looked through for its last words."""

NO_HOST = {"com.docker.network.bridge.inhibit_ipv4": "true"}
"""Of a private network: its bridge has no address, at which its host could be reached."""


class NodeGone(Exception):
    """A daemon does not answer; the text says how it failed."""


class Refused(Exception):
    """A daemon refuses what it is asked for; the text says why."""


@dataclass(frozen=True, slots=True)
class Found:
    """A container that a daemon has.

    Attributes:
        id: As Docker names it.
        name: As it was rendered.
        job_id: Its job.
        round: In which its lease began.
        rank: Place of its node in its gang.
        gpus: All GPUs of the lease, as the cluster numbers them.
        running: Whether it runs.
        begun: Whether it ever ran.
    """

    id: str
    name: str
    job_id: int
    round: int
    rank: int
    gpus: tuple[int, ...]
    running: bool
    begun: bool


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended.

    Attributes:
        code: What it exited with; 128 + n where signal n killed it.
        out_of_memory: Whether it was killed for its memory limit.
        last_words: The last line that it wrote, shortened.
    """

    code: int
    out_of_memory: bool
    last_words: str


class Daemon:
    """The Docker daemon of a node.

    Args:
        node: The node.

    Raises:
        NodeGone: No client can be made for its endpoint.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        with _asked():
            oldest = docker.constants.MINIMUM_DOCKER_API_VERSION
            self._client = self._connect(ANSWER_SECONDS, oldest)
            version = self._client.version(api_version=False)["ApiVersion"]
            self._client.api._version = version
            self._patient = self._connect(WORK_SECONDS, version)

    def _connect(self, seconds: float, version: str) -> Any:
        client = self._make_client(timeout=seconds, version=version)
        client.api.trust_env = False  # or REQUESTS_CA_BUNDLE would stand in for ca.pem
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
        """What it tells of itself and its machine."""
        with _asked():
            info: dict[str, Any] = self._client.info()
        return info

    def image(self, name: str) -> str:
        """The id of an image.

        Raises:
            Refused: It is not there.
        """
        with _asked():
            return str(self._client.images.get(name).short_id)

    def probe(self, rendered: Rendered) -> tuple[int, str]:
        """Run a container to its end and remove it; returns its exit code and what it said.

        Raises:
            Refused: It cannot be started.
        """
        self.start(rendered)
        with _asked():
            container = self._client.containers.get(rendered.name)
            try:
                code = container.wait(timeout=ANSWER_SECONDS)["StatusCode"]
                return code, container.logs().decode(errors="replace").strip()
            finally:
                container.remove(force=True)

    def found(self, run: str) -> list[Found]:
        """The containers of a run on this node."""
        filters = {"label": [f"{RUN}={run}", f"{NODE}={self._node.name}"]}
        with _asked():
            rows = self._client.api.containers(all=True, filters=filters)
        return [_found(row) for row in rows if row["Labels"].keys() >= _NEEDED]

    def other_runs(self, run: str) -> set[str]:
        """Runs that have containers running on this daemon beside one, whatever nodes they name."""
        filters = {"label": [RUN]}
        with _asked():
            rows = self._client.api.containers(filters=filters)
        return {row["Labels"][RUN] for row in rows} - {run}

    def start(self, rendered: Rendered) -> None:
        """Create and start a container; one of that name that is there already is started.

        Raises:
            Refused: It cannot be; nothing is left of it.
        """
        options = dict(rendered.options)
        if devices := options.pop("devices_by_id", None):
            options["device_requests"] = [
                docker.types.DeviceRequest(device_ids=devices, capabilities=[["gpu"]])
            ]
        with _asked():
            if rendered.network:
                self._make_network(rendered)
            try:
                self._create_and_start(rendered.name, options)
            except docker.errors.APIError:
                if rendered.network:
                    self._remove_network(rendered.network)
                raise

    def _create_and_start(self, name: str, options: dict[str, Any]) -> None:
        containers = self._patient.containers
        try:
            container = containers.create(name=name, **options)
        except docker.errors.APIError as error:
            if error.status_code != 409:
                raise
            container = containers.get(name)
            if container.labels != options["labels"]:  # of a round that was never recorded
                container.remove(force=True)
                container = containers.create(name=name, **options)
        try:
            container.start()
        except docker.errors.APIError:
            container.remove(force=True)
            raise

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

    def stop(self, found: Found, grace_seconds: float) -> bool:
        """Ask a container to end, and kill it if it does not.

        Returns:
            Whether it ended by itself within the time given.
        """
        container = self._patient.api
        with _asked():
            try:
                container.stop(found.id, timeout=math.ceil(grace_seconds))
                state = container.inspect_container(found.id)["State"]
            except docker.errors.NotFound:
                return True
        return bool(state["ExitCode"] != 137)

    def remove(self, found: Found) -> None:
        """Remove a container, whatever it does."""
        with _asked(), contextlib.suppress(docker.errors.NotFound):
            self._patient.api.remove_container(found.id, force=True, v=True)

    def remove_network(self, name: str) -> None:
        """Remove a private network, if it is there."""
        with _asked():
            self._remove_network(name)

    def _remove_network(self, name: str) -> None:
        with contextlib.suppress(docker.errors.NotFound):
            try:
                self._client.api.remove_network(name)
            except docker.errors.APIError as error:
                if error.status_code != 403:  # another container is still in it
                    raise

    def exit(self, found: Found) -> Exit:
        """How a container ended that does not run."""
        with _asked():
            state = self._client.api.inspect_container(found.id)["State"]
            log = self._client.api.logs(found.id, tail=LOG_LINES)
        lines = [line.strip() for line in log.decode(errors="replace").splitlines()]
        words = next((line for line in reversed(lines) if line), state.get("Error", ""))
        shown = "".join(letter if letter.isprintable() else " " for letter in words)
        return Exit(state["ExitCode"], state["OOMKilled"], shown[:200])

    def figures(self, container: str) -> Iterator[dict[str, Any]]:
        """What a container takes, once a second until it ends; may break at any moment."""
        figures: Iterator[dict[str, Any]] = self._client.api.stats(container, decode=True)
        return figures

    def close(self) -> None:
        """Close its connections."""
        self._client.close()
        self._patient.close()


_UNREACHABLE = (
    docker.errors.DockerException,
    requests.exceptions.RequestException,
    OSError,
    EOFError,
    ValueError,  # of an endpoint or an answer that make no sense
    LookupError,  # of an answer that is no Docker's
    TypeError,
)


@contextlib.contextmanager
def _asked() -> Iterator[None]:
    """Turn what the SDK raises into one of two errors."""
    try:
        yield
    except docker.errors.ImageNotFound as error:
        raise Refused(f"{_explained(error)}: build or load the image on that node") from None
    except docker.errors.APIError as error:
        if error.status_code in (502, 503, 504):
            raise NodeGone(_explained(error)) from None
        raise Refused(_explained(error)) from None
    except _UNREACHABLE as error:
        raise NodeGone(_cause(error)) from None


def _cause(error: BaseException) -> str:
    """The first cause of an error: what wraps it names only the layers between."""
    if isinstance(error, requests.exceptions.Timeout):
        return f"no answer in {ANSWER_SECONDS:g} s"
    within = [error, *error.args, error.__cause__, error.__context__]
    for cause in within:
        if isinstance(cause, ssl.SSLError):
            return _certificates(cause)
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    inner = next((cause for cause in within[1:] if isinstance(cause, BaseException)), None)
    if inner is not None:
        return _cause(inner)
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _certificates(error: ssl.SSLError) -> str:
    """Whose certificate is refused, and why."""
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
