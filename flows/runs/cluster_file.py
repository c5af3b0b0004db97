"""A cluster of Docker hosts, or of a Slurm, as a TOML file; errors name the file and the field."""

import os
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from containers.docker.grants import JobNetwork, Volume
from containers.docker.nodes import NVIDIA, ContainerLimits, Gpu, Mps, Node, Nodes, is_device
from containers.leasing.engine import Refused
from containers.slurm.cluster import SlurmCluster, SlurmSite, find_cluster
from containers.slurm.parsing import SlurmAway
from flows.runs.pools import Machines
from flows.runs.toml_file import LOWER_CASE, read_toml, validate_fields
from predictor.errors import InputError
from predictor.options import FILE_NAME
from solver.cells.cells import Cells
from solver.cells.declared import TenantCells, TypeLevel, layout_of
from tasks.record import RuntimeKind
from warehouse.workloads.tables import LOSSES, MEASURED

AnyCluster = Nodes | SlurmCluster
"""A cluster of Docker hosts, or of a Slurm."""

SLURM = "slurm"
"""Table of a cluster file that makes it one of a Slurm."""

OPTION = r"^--[a-z][a-z-]*(=[^\x00-\x1f]*)?$"
"""Form of an option of `sbatch`."""
OURS = (
    *("job-name", "comment", "dependency", "requeue", "no-requeue", "array", "nodes", "nodelist"),
    *("ntasks", "ntasks-per-node", "gres", "gpus", "gpus-per-node", "gpus-per-task", "signal"),
    *("chdir", "output", "error", "open-mode", "export", "exclusive", "hold", "wait", "wrap"),
    *("test-only", "help", "usage", "version"),
)
"""Options of `sbatch` that leases set, or that keep it from submitting a lease as it is."""

Name = Annotated[str, Field(pattern=LOWER_CASE, max_length=60)]
Cpus = Annotated[float, Field(gt=0, le=4096, allow_inf_nan=False)]
GrantName = Annotated[str, Field(pattern=rf"^{FILE_NAME.pattern}$")]
HOST = re.compile(r"(\w[\w.-]*@)?(\w[\w.-]*|\[[0-9A-Fa-f:.]+\])(:\d+)?", re.ASCII)
"""User, host and port, without characters that a shell or `ssh` could interpret."""
CPUSET = r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"
IMAGE = r"^[a-z0-9][a-z0-9._/:@-]*$"
PATTERN = r"^[a-z0-9*?][A-Za-z0-9._/:@*?-]*$"
"""Form of the patterns of images that jobs may name."""
BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
"""Units of sizes, as Docker writes them."""
ENDPOINTS = {"unix": "unix:///SOCKET", "ssh": "ssh://USER@HOST", "tcp": "tcp://HOST:PORT"}
LEAST_BYTES, MOST_BYTES = 4 * 2**20, 2**50
"""Bounds on sizes, since Docker interprets 0 as no limit. Engineering bounds."""
CERTIFICATES = ("ca.pem", "cert.pem", "key.pem")
TLS_REMEDY = "give tls, the folder with ca.pem, cert.pem and key.pem"


def check_path(path: str) -> str:
    """Return a path of all nodes; refuse one that is not absolute, or not plain.

    Raises:
        ValueError: It is refused; the message says why.
    """
    if not (Path(path).is_absolute() and path.isprintable()):
        raise ValueError(f"{path!r} is not an absolute path; give the path that all nodes use")
    if ":" in path or ".." in Path(path).parts:
        raise ValueError(f"{path!r} contains a colon or '..'; give a plain path")
    return path


def _reachable(endpoint: str) -> bool:
    """Return whether an endpoint has exactly the parts needed to reach it."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:  # a port that is not a number, or an unbalanced bracket
        return False
    plain = endpoint.startswith(f"{parts.scheme}://") and endpoint.isprintable()
    plain = plain and not (" " in endpoint or parts.query or parts.fragment)
    if parts.scheme == "unix":
        return plain and not parts.netloc and parts.path.strip("/") != ""
    bare = plain and bool(HOST.fullmatch(parts.netloc)) and parts.path in ("", "/")
    if parts.scheme == "tcp":
        return bare and bool(port) and parts.username is None
    return bare and parts.scheme == "ssh" and port != 0


class _Part(BaseModel):
    """Base of all parts: immutable; refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SlotPart(_Part):
    """A share of a host's processors that emulates a GPU."""

    cpus: Cpus
    cpuset: Annotated[str, Field(pattern=CPUSET)] = ""


class LimitsPart(_Part):
    """Limits of a container, per GPU, and of its job's folder."""

    memory: Annotated[str, Field(pattern=r"^[0-9]+[kmgt]?$")] = "8g"
    scratch: Annotated[str, Field(pattern=r"^[0-9]+[kmgt]?$")] = "1g"
    shm: Annotated[str, Field(pattern=r"^[0-9]+[kmgt]?$")] = "1g"
    pids: Annotated[int, Field(ge=16, le=2**22)] = 512
    cpus: Annotated[float, Field(ge=0, le=4096, allow_inf_nan=False)] = 0.0
    folder: Annotated[str, Field(pattern=r"^[0-9]+[kmgt]?$")] = "64g"

    @field_validator("memory", "scratch", "shm", "folder")
    @classmethod
    def _bounded(cls, size: str) -> str:
        if not LEAST_BYTES <= _bytes(size) <= MOST_BYTES:
            raise ValueError(f"{size!r} is out of bounds; give a size from 4m to 1024t")
        return size

    @property
    def limits(self) -> ContainerLimits:
        """The limits as the Docker runtime's type."""
        return ContainerLimits(
            memory_bytes=_bytes(self.memory),
            pids=self.pids,
            scratch_bytes=_bytes(self.scratch),
            shared_bytes=_bytes(self.shm),
            cpus=self.cpus,
            folder_bytes=_bytes(self.folder),
        )


class MpsPart(_Part):
    """NVIDIA's Multi-Process Service on a host with GPUs."""

    folder: Annotated[str, Field(pattern=r"^/")]
    threads: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] = 100.0


class NodePart(_Part):
    """A host, with its GPUs by id or CDI name, or with slots that emulate them."""

    name: Name
    endpoint: str
    gpu_type: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=60)]
    image: Annotated[str, Field(pattern=IMAGE)]
    gpus: list[int | str] = Field(default_factory=list)
    slots: list[SlotPart] = Field(default_factory=list)
    tls: str = ""
    price: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    limits: LimitsPart | None = None
    mps: MpsPart | None = None
    address: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9.:-]*)?$", max_length=253)] = ""

    @field_validator("name")
    @classmethod
    def _no_number(cls, name: str) -> str:
        if name.isdigit():
            raise ValueError(f"{name!r} would be mistaken for a node's number; add a letter")
        return name

    @field_validator("limits")
    @classmethod
    def _of_containers(cls, limits: LimitsPart | None) -> LimitsPart | None:
        if limits is not None and "folder" in limits.model_fields_set:
            raise ValueError("folder cannot differ by node: all share the storage; set it above")
        return limits

    @field_validator("endpoint")
    @classmethod
    def _known(cls, endpoint: str) -> str:
        if not _reachable(endpoint):
            forms = ", ".join(ENDPOINTS.values())
            raise ValueError(f"{endpoint!r} is not an endpoint; give an endpoint like {forms}")
        return endpoint

    @field_validator("gpu_type")
    @classmethod
    def _no_key(cls, gpu_type: str) -> str:
        if gpu_type in (MEASURED, LOSSES):
            raise ValueError(f"{gpu_type!r} is not a GPU type of throughput tables; name the GPU")
        return gpu_type

    @field_validator("tls")
    @classmethod
    def _complete(cls, tls: str) -> str:
        for name in CERTIFICATES if tls else ():
            if not (Path(tls) / name).is_file():
                raise ValueError(f"file {name} is missing in {tls!r}; {TLS_REMEDY}")
        return tls

    @model_validator(mode="after")
    def _check(self) -> "NodePart":
        if bool(self.gpus) == bool(self.slots):
            raise ValueError("needs either GPUs or slots; give exactly one of the two")
        if len({*map(str, self.gpus)}) < len(self.gpus):
            raise ValueError("a GPU is listed twice; remove the duplicate")
        if not all(is_device(str(gpu)) for gpu in self.gpus):
            raise ValueError(
                "a GPU is not a device id; give ids as nvidia-smi -L lists them, "
                f"or names of the Container Device Interface like {NVIDIA}=0"
            )
        if self.mps and self.slots:
            raise ValueError("has slots, but mps needs GPUs; leave mps out")
        if self.endpoint.startswith("tcp://") and not self.tls:
            raise ValueError(
                f"anyone who reaches a tcp:// endpoint is root on that host; {TLS_REMEDY}"
            )
        return self

    @property
    def node(self) -> Node:
        """The host as the Docker runtime's type."""
        gpus = [Gpu(device=str(gpu)) for gpu in self.gpus]
        gpus += [Gpu(cpuset=slot.cpuset, cpus=slot.cpus) for slot in self.slots]
        return Node(
            name=self.name,
            endpoint=self.endpoint,
            gpu_type=self.gpu_type,
            image=self.image,
            gpus=tuple(gpus),
            tls=Path(self.tls) if self.tls else None,
            price=self.price,
            limits=self.limits.limits if self.limits else None,
            mps=Mps(Path(self.mps.folder), self.mps.threads) if self.mps else None,
            address=self.address or urlsplit(self.endpoint).hostname or "127.0.0.1",
        )


class GrantPart(_Part):
    """What jobs get only if they name it, and which tenants' jobs may."""

    tenants: list[Annotated[str, Field(min_length=1, max_length=100)]] = ["*"]


class NetworkPart(GrantPart):
    """A network that jobs may name."""

    docker: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$", max_length=100)]
    proxy: Annotated[str, Field(pattern=r"^(https?://[^\s@]+)?$")] = ""
    rdma: bool = False

    @field_validator("docker")
    @classmethod
    def _is_network(cls, docker: str) -> str:
        if docker in ("none", "default"):
            raise ValueError(f"{docker!r} is no network; name one, such as bridge or host")
        return docker


class VolumePart(GrantPart):
    """A folder that jobs may name."""

    path: str
    writable: bool = False

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: str) -> str:
        return check_path(path)


class TenantPart(_Part):
    """The cells promised to a tenant: their numbers by GPU type and level."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    cells: dict[str, dict[str, Annotated[int, Field(ge=1, le=10**6)]]]


class ClusterFile(_Part):
    """The fields of a cluster file; docs/docker.md has an example."""

    storage: str
    nodes: list[NodePart] = Field(min_length=1, max_length=10_000)
    user: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,9}:[1-9][0-9]{0,9}$")] = ""
    datasets: str = ""
    mounts: list[str] = Field(default_factory=list)
    secrets: str = ""
    limits: LimitsPart = LimitsPart()
    grace_seconds: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 30.0
    hung_rounds: Annotated[int, Field(ge=1, le=1000)] = 3
    least_free: Annotated[str, Field(pattern=r"^[0-9]{1,9}[kmgt]?$")] = "256m"
    network: Annotated[str, Field(pattern=r"^([a-zA-Z0-9][a-zA-Z0-9_.-]*)?$")] = ""
    rendezvous_port: Annotated[int, Field(ge=1024, le=65535)] = 29500
    images: list[Annotated[str, Field(pattern=PATTERN, max_length=255)]] = Field(
        default_factory=list, max_length=1000
    )
    networks: dict[GrantName, NetworkPart] = Field(default_factory=dict, max_length=100)
    volumes: dict[GrantName, VolumePart] = Field(default_factory=dict, max_length=1000)
    pull: bool = False
    levels: dict[str, dict[str, Annotated[int, Field(ge=1, le=10**6)]]] = Field(
        default_factory=dict
    )
    tenants: list[TenantPart] = Field(default_factory=list, max_length=10_000)

    @field_validator("storage", "datasets", "mounts", "secrets")
    @classmethod
    def _absolute(cls, paths: str | list[str]) -> str | list[str]:
        for path in [paths] if isinstance(paths, str) else paths:
            if path:
                check_path(path)
        return paths

    @model_validator(mode="after")
    def _check(self) -> "ClusterFile":
        names = [node.name for node in self.nodes]
        if len({*names}) < len(names):
            raise ValueError("two nodes have the same name; give each a name of its own")
        if not self.user and os.geteuid() == 0:
            raise ValueError("user is missing, and containers never run as root; add a UID:GID")
        return self

    @property
    def cluster(self) -> Nodes:
        """The cluster as the Docker runtime's type."""
        return Nodes(
            nodes=tuple(part.node for part in self.nodes),
            storage=Path(self.storage),
            user=self.user or f"{os.geteuid()}:{os.getegid()}",
            datasets=Path(self.datasets) if self.datasets else None,
            mounts=tuple(map(Path, self.mounts)),
            limits=self.limits.limits,
            grace_seconds=self.grace_seconds,
            hung_rounds=self.hung_rounds,
            least_free=_bytes(self.least_free),
            network=self.network,
            rendezvous_port=self.rendezvous_port,
            images=tuple(self.images),
            secrets=Path(self.secrets) if self.secrets else None,
            networks=tuple(
                JobNetwork(name, tuple(part.tenants), part.docker, part.proxy, part.rdma)
                for name, part in self.networks.items()
            ),
            volumes=tuple(
                Volume(name, tuple(part.tenants), Path(part.path), part.writable)
                for name, part in self.volumes.items()
            ),
            pull=self.pull,
            levels=tuple(
                TypeLevel(kind, name, parts)
                for kind, levels in self.levels.items()
                for name, parts in levels.items()
            ),
            cells=tuple(
                TenantCells(tenant.name, kind, level, number)
                for tenant in self.tenants
                for kind, cells in tenant.cells.items()
                for level, number in cells.items()
            ),
        )


class SlurmPart(_Part):
    """A Slurm, and what leases ask it for."""

    partition: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$", max_length=200)] = ""
    options: list[Annotated[str, Field(pattern=OPTION, max_length=1000)]] = Field(
        default_factory=list, max_length=100
    )
    trainer: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    commands: str = ""
    cpus_per_gpu: Annotated[int, Field(ge=0, le=4096)] = 0
    memory_per_gpu: Annotated[str, Field(pattern=r"^[0-9]+[kmgt]?$")] = "0"
    start_seconds: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 60.0

    @field_validator("commands")
    @classmethod
    def _absolute(cls, path: str) -> str:
        return check_path(path) if path else path

    @field_validator("options")
    @classmethod
    def _not_ours(cls, options: list[str]) -> list[str]:
        for option in options:
            name = option.removeprefix("--").partition("=")[0]
            if any(ours.startswith(name) for ours in OURS):  # sbatch takes abbreviations
                raise ValueError(f"{option!r} would change what leases ask for; leave it out")
        return options


class SlurmFile(_Part):
    """The fields of a Slurm's cluster file; docs/slurm.md has an example."""

    storage: str
    slurm: SlurmPart
    datasets: str = ""
    folder: Annotated[str, Field(pattern=r"^[0-9]+[kmgt]?$")] = "64g"
    grace_seconds: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 30.0
    hung_rounds: Annotated[int, Field(ge=1, le=1000)] = 3
    rendezvous_port: Annotated[int, Field(ge=1024, le=65535)] = 29500

    @field_validator("storage", "datasets")
    @classmethod
    def _absolute(cls, path: str) -> str:
        if "%" in path:  # which Slurm replaces in the names of outputs
            raise ValueError(f"{path!r} has a '%'; give a path without")
        return check_path(path) if path else path

    @property
    def site(self) -> SlurmSite:
        """The Slurm as the runtime's type."""
        return SlurmSite(
            storage=Path(self.storage),
            partition=self.slurm.partition,
            options=tuple(self.slurm.options),
            commands=Path(self.slurm.commands) if self.slurm.commands else None,
            trainer=tuple(self.slurm.trainer),
            datasets=Path(self.datasets) if self.datasets else None,
            cpus_per_gpu=self.slurm.cpus_per_gpu,
            memory_per_gpu=_bytes(self.slurm.memory_per_gpu),
            grace_seconds=self.grace_seconds,
            start_seconds=self.slurm.start_seconds,
            hung_rounds=self.hung_rounds,
            folder_bytes=_bytes(self.folder),
            rendezvous_port=self.rendezvous_port,
        )


def _bytes(text: str) -> int:
    return int(text.rstrip("kmgt")) * BYTES[text.lstrip("0123456789")]


def read_cluster_file(path: Path) -> Nodes:
    """Read a cluster of Docker hosts.

    Raises:
        InputError: The file is missing or no TOML, or a field is invalid, or it is a Slurm's; the
            error names the file and the field.
    """
    found = read_site(path)
    if isinstance(found, SlurmSite):
        raise InputError(f"{path}: {SLURM}", "is no Docker host", "give a file of Docker hosts")
    return found


def read_cluster(path: Path) -> AnyCluster:
    """Read a cluster of Docker hosts, or one of a Slurm, which is asked for its nodes.

    Raises:
        InputError: See `read_site`; or Slurm has no nodes with GPUs, or does not answer.
    """
    found = read_site(path)
    if isinstance(found, Nodes):
        return found
    try:
        return find_cluster(found)
    except SlurmAway as error:
        raise InputError(f"{path}: {SLURM}", str(error), "run it where sinfo works") from None
    except Refused as error:
        raise InputError(f"{path}: {SLURM}", str(error), "compare it with sinfo") from None
    except InputError as error:
        raise InputError(f"{path}: {error.place}", error.problem, error.remedy) from None


def describe_machines(cluster: AnyCluster) -> tuple[Machines, RuntimeKind]:
    """Return what settings say of a cluster, and its runtime."""
    if isinstance(cluster, SlurmCluster):
        return Machines(cluster.inventory.pools), RuntimeKind.SLURM
    machines = Machines(cluster.inventory.pools, cluster.levels, cluster.cells)
    return machines, RuntimeKind.DOCKER


def read_site(path: Path) -> Nodes | SlurmSite:
    """Read a cluster file, without asking a Slurm for its nodes.

    Raises:
        InputError: The file is missing or no TOML, or a field is invalid; the error names the
            file and the field.
    """
    fields = read_toml(path, "a cluster's TOML file")
    if SLURM in fields:
        return validate_fields(path, SlurmFile, fields, "a Slurm's cluster").site
    file = validate_fields(path, ClusterFile, fields, "a cluster")
    try:
        nodes = file.cluster
        if nodes.cells:
            # Refuses promises that cannot be kept together.
            Cells(layout_of(nodes.inventory, nodes.levels, nodes.cells))
        return nodes
    except InputError as error:
        raise InputError(f"{path}: {error.place}", error.problem, error.remedy) from None
