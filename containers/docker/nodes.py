"""The machines that jobs run on, and what their containers may have of them."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from predictor.errors import InputError

RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""What a run may be called, as it is part of paths and of names that Docker is given."""
USER = re.compile(r"[1-9][0-9]*:[1-9][0-9]*")
DEVICE = re.compile(r"[0-9]+|GPU-[0-9A-Fa-f-]+|MIG-[\w/-]+")
"""One GPU; `all` would be all of the machine's."""

DOCKERS_OWN = ("host", "bridge", "default", "none")
"""Networks that every daemon has, with the host in them."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of a node, or a share of its processors that stands in for one.

    Attributes:
        device: The GPU's id as the driver numbers it; empty where it is emulated.
        cpuset: Processors of an emulated one, as Docker writes them (`0-3,6`); any if empty.
        cpus: Processors' worth of time that an emulated one has; unlimited if 0.
    """

    device: str = ""
    cpuset: str = ""
    cpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with a Docker daemon.

    Attributes:
        name: Unique in the cluster.
        endpoint: Where its daemon listens: `unix://`, `ssh://` or `tcp://`.
        gpu_type: As the profile names it.
        image: The only image that its containers are made of.
        gpus: As the cluster numbers them.
        tls: Folder with `ca.pem`, `cert.pem` and `key.pem` of a `tcp://` endpoint.
    """

    name: str
    endpoint: str
    gpu_type: str
    image: str
    gpus: tuple[Gpu, ...]
    tls: Path | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What a container gets for each of its GPUs, beside the GPU.

    Attributes:
        memory_bytes: Memory, swap included; more kills it.
        pids: Processes and threads.
        scratch_bytes: Of `/tmp`, which is memory and counts as such.
        cpus: Processors' worth of time where the GPU is a real one; unlimited if 0.
    """

    memory_bytes: int = 8 * 2**30
    pids: int = 512
    scratch_bytes: int = 2**30
    cpus: float = 0.0


@dataclass(frozen=True)
class Nodes:
    """A cluster of machines, each with as many GPUs.

    Attributes:
        nodes: The machines; GPU i of the cluster is on node i // gpus_per_node.
        storage: Folder that the scheduler and all nodes see under this path; holds a folder
            for each run and job.
        user: `UID:GID` that containers run as; never root.
        datasets: Folder on each node that jobs may read.
        mounts: Other folders on each node that containers see at the same path and may read.
        limits: By GPU of a container.
        grace_seconds: From SIGTERM to SIGKILL; time to write a checkpoint.
        hung_rounds: Rounds without a sign of life after which a container counts as hung.
        network: An attachable Docker network, for gangs that span daemons.
        rendezvous_port: Where the first container of such a gang listens.

    Raises:
        InputError: A container would get more than its own: it would run as root, or see
            GPUs, folders of other jobs or a Docker socket that are not its own.
    """

    nodes: tuple[Node, ...]
    storage: Path
    user: str
    datasets: Path | None = None
    mounts: tuple[Path, ...] = ()
    limits: Limits = Limits()
    grace_seconds: float = 30.0
    hung_rounds: int = 3
    network: str = ""
    rendezvous_port: int = 29500

    def __post_init__(self) -> None:
        if not USER.fullmatch(self.user):
            raise InputError("user", f"{self.user!r} may be root", "give UID:GID, not of root")
        if self.network in DOCKERS_OWN:
            problem = f"{self.network!r} is not a network of gangs' own"
            raise InputError("network", problem, "give the name of one made for them")
        for node in self.nodes:
            for gpu in node.gpus:
                if gpu.device and not DEVICE.fullmatch(gpu.device):
                    raise InputError(
                        f"node {node.name}",
                        f"{gpu.device!r} is not the id of one GPU",
                        "give one that nvidia-smi -L lists",
                    )
        devices = [(node.endpoint, gpu.device) for node in self.nodes for gpu in node.gpus]
        for endpoint, device in devices:
            if device and devices.count((endpoint, device)) > 1:
                problem = f"GPU {device} of {endpoint} is there twice"
                raise InputError("nodes", problem, "give each GPU to one node")
        for path in (self.storage, *self._read_only):
            plain = str(path).isprintable() and ":" not in str(path)
            if not path.is_absolute() or ".." in path.parts or not plain:
                remedy = "give one without '..', colons and control characters"
                raise InputError(str(path), "is not a plain absolute path", remedy)
        for path in self._read_only:
            for hidden in self._hidden:
                if hidden.is_relative_to(path) or hidden.resolve().is_relative_to(path.resolve()):
                    remedy = "give a folder that it is not in"
                    raise InputError(str(path), f"would show {hidden} to every job", remedy)

    @property
    def _read_only(self) -> Iterator[Path]:
        yield from self.mounts
        if self.datasets is not None:
            yield self.datasets

    @property
    def _hidden(self) -> Iterator[Path]:
        """What no container may see: the folders of other jobs, and Docker's sockets."""
        yield self.storage
        yield Path("/var/run/docker.sock")
        for node in self.nodes:
            if node.endpoint.startswith("unix://"):
                yield Path(node.endpoint.removeprefix("unix://"))

    @property
    def gpus_per_node(self) -> int:
        """GPUs of each node."""
        return len(self.nodes[0].gpus)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return len(self.nodes) * self.gpus_per_node

    def by_node(self, gpus: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """GPUs of the cluster by the place of their node; GPUs as the node numbers them."""
        found: dict[int, tuple[int, ...]] = {}
        for gpu in gpus:
            node, local = divmod(gpu, self.gpus_per_node)
            found[node] = (*found.get(node, ()), local)
        return found

    def hand_over(self, folder: Path) -> None:
        """Give a folder to the user that containers run as, who may be another than this one.

        Raises:
            OSError: It cannot be given.
        """
        if os.geteuid() == 0:
            os.chown(folder, *map(int, self.user.split(":")))

    def folder(self, run: str, job_id: int) -> Path:
        """What a job keeps from launch to launch.

        Raises:
            InputError: The run's id is none that can be part of a path.
        """
        if not RUN.fullmatch(run):
            remedy = "use letters, digits, '.', '_' and '-'"
            raise InputError(f"run {run!r}", "cannot be part of a path", remedy)
        return self.storage / run / f"job-{job_id}"
