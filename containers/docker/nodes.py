"""The nodes of a cluster of Docker hosts, and the limits of their containers."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

from containers.docker.grants import JobNetwork, Volume
from containers.leasing.folder import job_folder
from predictor.errors import InputError
from solver.cells.declared import TenantCells, TypeLevel
from solver.inventory import Inventory, Pool

USER = re.compile(r"[1-9][0-9]*:[1-9][0-9]*")
ID = re.compile(r"[0-9]+|GPU-[0-9A-Fa-f-]+|MIG-[\w/-]+")
"""Id of a single NVIDIA GPU, as in `nvidia-smi -L`; `all` is refused."""
CDI_NAME = re.compile(
    r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_-]*=(?!all$)[A-Za-z0-9][A-Za-z0-9_.:-]*"
)
"""Name of a device in the Container Device Interface, `VENDOR/CLASS=NAME`; `all` is refused."""
NVIDIA = "nvidia.com/gpu"
"""Vendor and class of NVIDIA GPUs in the Container Device Interface."""

DOCKERS_OWN = ("host", "bridge", "default", "none")
"""Docker's predefined networks, which connect containers to the host."""


def is_device(text: str) -> bool:
    """Return whether a text names a single GPU, by the driver's id or a CDI name."""
    return bool(ID.fullmatch(text) or CDI_NAME.fullmatch(text))


def cdi_name(device: str) -> str:
    """Return the CDI name of a GPU; driver ids belong to NVIDIA."""
    return device if "=" in device else f"{NVIDIA}={device}"


def nvidia_id(device: str) -> str:
    """Return NVIDIA's driver id of a GPU; empty if the name does not contain it."""
    name = device.removeprefix(f"{NVIDIA}=")
    return name if ID.fullmatch(name) else ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of a node, real or emulated by a share of the node's processors.

    Attributes:
        device: Driver id or Container Device Interface (CDI) name; empty if emulated.
        cpuset: Processors of an emulated GPU, in Docker's notation (`0-3,6`); any if empty.
        cpus: Processor time of an emulated GPU, in processors; unlimited if 0.
    """

    device: str = ""
    cpuset: str = ""
    cpus: float = 0.0


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """Limits of a container, per GPU, and of its job's folder.

    Attributes:
        memory_bytes: Memory, swap included; beyond it a container is killed.
        scratch_bytes: Size of `/tmp`, a tmpfs that counts as memory.
        cpus: Processor time per real GPU, in processors; unlimited if 0.
        folder_bytes: Space of the job's folder in the storage, for any number of GPUs. The default
            is an engineering choice; no sweep is recorded.
        shared_bytes: Size of `/dev/shm`, through which NCCL's workers and PyTorch's data loaders
            exchange data; it counts as memory, too.
    """

    memory_bytes: int = 8 * 2**30
    pids: int = 512
    scratch_bytes: int = 2**30
    cpus: float = 0.0
    folder_bytes: int = 64 * 2**30
    shared_bytes: int = 2**30


@dataclass(frozen=True, slots=True)
class Mps:
    """NVIDIA's Multi-Process Service on a host, with which processes share a GPU.

    Attributes:
        folder: Folder of its daemon's pipes (`CUDA_MPS_PIPE_DIRECTORY`).
        threads: Largest share of a GPU's threads for a container, in percent
            (`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`). A job's program can change it: only the
            daemon's own limit is enforced.
    """

    folder: Path
    threads: float = 100.0


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with a Docker daemon.

    Attributes:
        endpoint: Address of its daemon: `unix://`, `ssh://` or `tcp://`.
        tls: Folder with `ca.pem`, `cert.pem` and `key.pem` of a `tcp://` endpoint.
        price: Price of a GPU-hour, in any currency; 0 if none is given.
        address: Its address on the network of hosts, for gangs that use it.
        images: Ids of images that replaced `image` in turn, each with the number above which the
            ids of its jobs are.
        limits: Limits of its containers; None for the cluster's. The limit of a job's folder,
            which all nodes share, is always the cluster's.
    """

    name: str
    endpoint: str
    gpu_type: str
    image: str
    gpus: tuple[Gpu, ...]
    tls: Path | None = None
    price: float = 0.0
    limits: ContainerLimits | None = None
    mps: Mps | None = None
    address: str = ""
    images: tuple[tuple[int, str], ...] = ()

    def image_of(self, job_id: int) -> str:
        """Return the image of a job that names none."""
        later = [image for after, image in self.images if job_id > after]
        return later[-1] if later else self.image

    @property
    def pool(self) -> Pool:
        """The node as its own pool."""
        return Pool(self.gpu_type, len(self.gpus), len(self.gpus), self.price)

    @property
    def devices(self) -> tuple[str, ...]:
        """Its real GPUs, by id or name."""
        return tuple(gpu.device for gpu in self.gpus if gpu.device)

    @property
    def by_cdi(self) -> bool:
        """Whether its GPUs have CDI names."""
        return any("=" in device for device in self.devices)


@dataclass(frozen=True)
class Nodes:
    """A cluster of nodes; consecutive nodes of the same kind form a pool.

    Attributes:
        storage: Shared folder, at the same path for the scheduler and all nodes; has a folder for
            each run and job.
        user: `UID:GID` of containers; never root.
        datasets: Read-only folder of data sets on each node.
        mounts: Other read-only folders on each node, at the same path in containers.
        grace_seconds: Time from SIGTERM to SIGKILL, for writing a checkpoint.
        least_free: Least free space of the storage in bytes; below it, no node is in service.
        hung_rounds: Consecutive rounds without a completed step or epoch after which a job counts
            as hung.
        network: An attachable Docker network, for gangs that span daemons.
        rendezvous_port: Port on which the first container of such a gang listens.
        images: Patterns (`fnmatch`) of the images that jobs may name.
        secrets: Folder on each node with a folder of secret files for each tenant.
        networks: Networks that jobs may name.
        volumes: Volumes that jobs may name.
        pull: Whether a node that lacks a job's image pulls it from the image's registry.
        levels: Levels of cells by GPU type; by default whole nodes.

    Raises:
        InputError: Containers would run as root, or see a GPU of another lease, folders of other
            jobs or a Docker socket.
    """

    nodes: tuple[Node, ...]
    storage: Path
    user: str
    datasets: Path | None = None
    mounts: tuple[Path, ...] = ()
    limits: ContainerLimits = ContainerLimits()
    grace_seconds: float = 30.0
    least_free: int = 2**28
    hung_rounds: int = 3
    network: str = ""
    rendezvous_port: int = 29500
    images: tuple[str, ...] = ()
    secrets: Path | None = None
    networks: tuple[JobNetwork, ...] = ()
    volumes: tuple[Volume, ...] = ()
    pull: bool = False
    levels: tuple[TypeLevel, ...] = ()
    cells: tuple[TenantCells, ...] = ()

    def __post_init__(self) -> None:
        if not USER.fullmatch(self.user):
            raise InputError("user", f"{self.user!r} may be root", "give UID:GID, not of root")
        if self.network in DOCKERS_OWN:
            problem = f"{self.network!r} is not a network of gangs' own"
            raise InputError("network", problem, "give the name of one made for them")
        for node in self.nodes:
            for gpu in node.gpus:
                if gpu.device and not is_device(gpu.device):
                    raise InputError(
                        f"node {node.name}",
                        f"{gpu.device!r} is not the id of one GPU",
                        f"give one that nvidia-smi -L lists, or a CDI name like {NVIDIA}=0",
                    )
            if len({"=" in gpu.device for gpu in node.gpus}) > 1:
                raise InputError(
                    f"node {node.name}",
                    "gpus mixes ids and CDI names",
                    f"use one form for all, such as {NVIDIA}=0 for 0",
                )
        devices = [
            (node.endpoint, cdi_name(device)) for node in self.nodes for device in node.devices
        ]
        for endpoint, device in devices:
            if devices.count((endpoint, device)) > 1:
                problem = f"GPU {nvidia_id(device) or device} of {endpoint} is there twice"
                raise InputError("nodes", problem, "give each GPU to one node")
        shown = (*self._shown, *(node.mps.folder for node in self.nodes if node.mps))
        for path in (self.storage, *filter(None, [self.secrets]), *shown):
            plain = str(path).isprintable() and ":" not in str(path)
            if not path.is_absolute() or ".." in path.parts or not plain:
                remedy = "give one without '..', colons and control characters"
                raise InputError(str(path), "is not a plain absolute path", remedy)
        for path in shown:
            for hidden in self._hidden:
                if hidden.is_relative_to(path) or hidden.resolve().is_relative_to(path.resolve()):
                    remedy = "give a folder that it is not in"
                    raise InputError(str(path), f"would show {hidden} to every job", remedy)

    @property
    def _shown(self) -> Iterator[Path]:
        yield from self.mounts
        yield from (volume.path for volume in self.volumes)
        if self.datasets is not None:
            yield self.datasets

    @property
    def _hidden(self) -> Iterator[Path]:
        """Paths that no container may see: folders of other jobs, secrets, Docker's sockets."""
        yield self.storage
        yield from filter(None, [self.secrets])
        yield Path("/var/run/docker.sock")
        for node in self.nodes:
            if node.endpoint.startswith("unix://"):
                yield Path(node.endpoint.removeprefix("unix://"))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return tuple(node.name for node in self.nodes)

    @property
    def folder_bytes(self) -> int:
        """Space of a job's folder in the storage."""
        return self.limits.folder_bytes

    @property
    def gpus(self) -> int:
        """Number of GPUs of all nodes."""
        return self.inventory.gpus

    @cached_property
    def inventory(self) -> Inventory:
        """The nodes and GPUs, as leases number them."""
        alike = ((pool, len(list(nodes))) for pool, nodes in groupby(self.nodes, lambda n: n.pool))
        return Inventory(tuple(replace(pool, gpus=pool.gpus * count) for pool, count in alike))

    def limits_on(self, node: Node) -> ContainerLimits:
        """Return the limits of containers on a node."""
        return node.limits or self.limits

    def by_node(self, gpus: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Convert the cluster's GPU numbers to those of nodes, by index of the node."""
        return self.inventory.by_node(gpus)

    def hand_over(self, folder: Path) -> None:
        """Give a folder to the user of containers.

        Raises:
            OSError: The owner cannot be changed.
        """
        if os.geteuid() == 0:
            os.chown(folder, *map(int, self.user.split(":")))

    def folder(self, run: str, job_id: int) -> Path:
        """Return the folder of a job, kept between its leases.

        Raises:
            InputError: The run's id is not valid.
        """
        return job_folder(self.storage, run, job_id)
