"""Render a lease as containers, with pure functions that return plain data.

A container gets only the GPUs of its lease, no privileges, a network only if its gang spans nodes
or its job names one, and write access only to its job's folder and the volumes that its job names.
On a host with the Multi-Process Service it also gets the host's IPC namespace, whose /dev/shm it
can fill without a limit, and write access to the service's pipes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from pathlib import Path
from typing import Any

from containers.docker.grants import HOST, JobNetwork, Volume, find_grant
from containers.docker.nodes import Node, Nodes
from containers.leasing.code import code_folder
from containers.runtime import Lease
from predictor.image import find_code
from predictor.job import JobSpec
from predictor.options import INDEX

RUN, JOB, ROUND, NODE, RANK, GPUS = (
    f"shockwave.{name}" for name in ("run", "job", "round", "node", "rank", "gpus")
)
"""Labels of a container; GPUs in the cluster's numbering, separated by commas."""

JOB_FOLDER = "/job"
"""Path of the job's folder in a container."""
DATASETS = "/data"
"""Path of the data sets in a container."""
SECRETS = "/run/secrets"
"""Folder of a job's secrets in its containers."""
VOLUMES = "/volumes"
"""Folder of a job's volumes in its containers."""
CODE_FOLDER = "/code"
"""Folder of a job's code in its containers, in which its command begins."""
INFINIBAND = "/dev/infiniband"
"""Folder of a host's InfiniBand devices."""
PERIOD, LEAST_QUOTA = 100_000, 1_000
"""Docker's scheduling period and the kernel's least quota per period, in microseconds."""
LONGEST_NAME = 63
"""Longest label of a host name (RFC 1035); containers resolve each other's names."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A container to create.

    Attributes:
        name: Name, a function of the lease.
        network: Private network of its gang, created on demand; empty without one.
        options: Keyword arguments of the SDK's `containers.create`.
    """

    node: int
    name: str
    network: str
    options: dict[str, Any]


def container_name(run: str, job_id: int, number: int, rank: int) -> str:
    """Return the name of a lease's container on a node; the lease begins in round `number`."""
    return _short(f"shockwave-{run}-job-{job_id}-round-{number}-node-{rank}")


def network_name(run: str, job_id: int) -> str:
    """Return the name of the private network of a job that spans nodes of one daemon."""
    return _short(f"shockwave-{run}-job-{job_id}")


def _short(name: str) -> str:
    """Shorten a name to a valid host name; resolving a longer name hangs."""
    if len(name) <= LONGEST_NAME:
        return name
    mark = blake2s(name.encode(), digest_size=8).hexdigest()
    return f"{name[: LONGEST_NAME - len(mark) - 1]}-{mark}"


def render(
    nodes: Nodes,
    run: str,
    number: int,
    lease: Lease,
    spec: JobSpec | None = None,
    image: str = "",
    *,
    shared: bool = False,
) -> tuple[Rendered, ...]:
    """Return the containers of a lease, one per node, in the order of the nodes.

    The lease begins in round `number`. `image` is the id of the job's own image, by default the
    node's; `shared` tells whether another job has the same GPUs.
    """
    places = nodes.by_node(lease.gpus)
    endpoints = {nodes.nodes[place].endpoint for place in places}
    joined = job_network(nodes, spec)
    own = joined is None and len(places) > 1 and len(endpoints) == 1
    network = network_name(run, lease.job_id) if own else ""
    names = [container_name(run, lease.job_id, number, rank) for rank in range(len(places))]
    rendered = []
    for rank, (place, local) in enumerate(places.items()):
        node = nodes.nodes[place]
        environment = (
            _proxy(joined)
            | _own_environment(spec)
            | {
                "SHOCKWAVE_JOB_FOLDER": JOB_FOLDER,
                "SHOCKWAVE_LEASE": names[0],
                "LOCAL_WORKERS": str(len(local)),
            }
        )
        if nodes.datasets is not None:
            environment["SHOCKWAVE_DATA_FOLDER"] = DATASETS
        if node.by_cdi or not node.devices:
            # Some daemons default to NVIDIA's runtime, where images ask for all GPUs.
            environment["NVIDIA_VISIBLE_DEVICES"] = "void"
        if len(places) > 1:
            first, port = names[0], nodes.rendezvous_port
            if joined and joined.docker == HOST:
                # Gangs share the host's ports, and each has GPUs of its own.
                first, port = nodes.nodes[next(iter(places))].address, port + min(lease.gpus)
            environment |= {
                "MASTER_ADDR": first,
                "MASTER_PORT": str(port),
                "NNODES": str(len(places)),
                "NODE_RANK": str(rank),
            }
        environment |= _mps(node)
        options = {
            "image": image or node.image_of(lease.job_id),
            "command": _command(spec),
            "labels": {
                RUN: run,
                JOB: str(lease.job_id),
                ROUND: str(number),
                NODE: node.name,
                RANK: str(rank),
                GPUS: ",".join(map(str, lease.gpus)),
            },
            "environment": environment,
            "mounts": _mounts(nodes, node, run, lease.job_id, spec),
            # If empty, Docker uses its default network, which reaches the host.
            "network_mode": (
                joined.docker if joined else (len(places) > 1 and (network or nodes.network))
            )
            or "none",
            **_hardware(node, local),
            **limit_processors(nodes, node, local, shared=shared),
            **_confined(nodes, node, len(local)),
            **(_infiniband() if joined and joined.rdma else {}),
        }
        if spec and find_code(spec.environment):
            options["working_dir"] = CODE_FOLDER
        if image:
            options["stop_signal"] = "SIGTERM"  # whatever the image says
        if node.mps:
            options["ipc_mode"] = "host"  # the service and its clients share memory
        else:
            options["shm_size"] = len(local) * nodes.limits_on(node).shared_bytes
        rendered.append(Rendered(place, names[rank], network, options))
    return tuple(rendered)


def _command(spec: JobSpec | None) -> list[str]:
    """Return a container's arguments, without a shell; if empty, the image's apply."""
    if spec is None or not (spec.command or spec.timed):
        return [JOB_FOLDER]
    return list(spec.command)


def _own_environment(spec: JobSpec | None) -> dict[str, str]:
    """Return a job's own variables; in its own image, HOME is writable."""
    if spec is None:
        return {}
    home = {"HOME": "/tmp"} if spec.image else {}
    task = spec.options.task
    index = {INDEX: str(task.index)} if task.tasks else {}
    return home | dict(text.split("=", 1) for text in spec.environment) | index


def job_network(nodes: Nodes, spec: JobSpec | None) -> JobNetwork | None:
    """Return the network that a job names; None without one.

    Raises:
        InputError: The cluster has no such network for the job's tenant.
    """
    if spec is None or not spec.options.network:
        return None
    place = f"job {spec.job_id}, network"
    return find_grant(place, nodes.networks, spec.options.network, spec.tenant, "network")


def job_volumes(nodes: Nodes, spec: JobSpec) -> list[Volume]:
    """Return the volumes that a job names.

    Raises:
        InputError: The cluster has no such volume for the job's tenant.
    """
    place, named = f"job {spec.job_id}, volumes", spec.options.volumes
    return [find_grant(place, nodes.volumes, name, spec.tenant, "volume") for name in named]


def _proxy(network: JobNetwork | None) -> dict[str, str]:
    """Return the variables by which programs find a proxy; they have two spellings."""
    if network is None or not network.proxy:
        return {}
    found = {"http_proxy": network.proxy, "https_proxy": network.proxy, "no_proxy": "localhost"}
    return found | {name.upper(): value for name, value in found.items()}


def _infiniband() -> dict[str, Any]:
    """Give a container the host's InfiniBand devices, and let it lock memory for them."""
    return {
        "devices": [f"{INFINIBAND}:{INFINIBAND}:rw"],
        "cap_add": ["IPC_LOCK"],
        "ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}],
    }


def _mps(node: Node) -> dict[str, str]:
    if node.mps is None:
        return {}
    return {
        "CUDA_MPS_PIPE_DIRECTORY": str(node.mps.folder),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{node.mps.threads:g}",
    }


def _mounts(
    nodes: Nodes, node: Node, run: str, job_id: int, spec: JobSpec | None
) -> list[dict[str, str | bool]]:
    """Return bind mounts of the node's files; unlike volumes, they must exist."""
    shown = [(nodes.folder(run, job_id), JOB_FOLDER, False)]
    if nodes.datasets is not None:
        shown.append((nodes.datasets, DATASETS, True))
    shown += [(path, str(path), True) for path in nodes.mounts]
    if node.mps:
        shown.append((node.mps.folder, str(node.mps.folder), False))
    if spec:
        shown += [(path, f"{SECRETS}/{name}", True) for path, name in secret_files(nodes, spec)]
        shown += [(path, CODE_FOLDER, True) for path in code_folders(nodes, spec)]
    mounts = [_bind(path, target, read_only=read_only) for path, target, read_only in shown]
    return mounts + (mount_volumes(job_volumes(nodes, spec)) if spec else [])


def mount_volumes(volumes: Iterable[Volume]) -> list[dict[str, str | bool]]:
    """Return the bind mounts of volumes."""
    return [
        _bind(volume.path, f"{VOLUMES}/{volume.name}", read_only=not volume.writable)
        for volume in volumes
    ]


def _bind(path: Path, target: str, *, read_only: bool) -> dict[str, str | bool]:
    return {"Type": "bind", "Source": str(path), "Target": target, "ReadOnly": read_only}


def secret_files(nodes: Nodes, spec: JobSpec) -> list[tuple[Path, str]]:
    """Return the files of a job's secrets on its nodes, each with the secret's name."""
    if nodes.secrets is None:
        return []
    return [(nodes.secrets / spec.tenant / name, name) for name in spec.options.secrets]


def code_folders(nodes: Nodes, spec: JobSpec) -> list[Path]:
    """Return the folder of a job's code, if it has code of its own."""
    digest = find_code(spec.environment)
    return [code_folder(nodes.storage, spec.tenant, digest)] if digest else []


def limit_processors(
    nodes: Nodes, node: Node, local: Sequence[int], *, shared: bool
) -> dict[str, int]:
    """Return a container's CPU quota, also valid for the SDK's `update_container`.

    Two jobs that share their GPUs get half of the processor time each. `local` are the GPUs in
    the node's numbering.
    """
    gpus = [node.gpus[index] for index in local]
    cpus = sum(nodes.limits_on(node).cpus if gpu.device else gpu.cpus for gpu in gpus)
    if not cpus:
        return {}
    return {
        "cpu_period": PERIOD,
        "cpu_quota": max(round(cpus * PERIOD / (2 if shared else 1)), LEAST_QUOTA),
    }


def _hardware(node: Node, local: tuple[int, ...]) -> dict[str, Any]:
    """Pin the lease's GPUs by id or name, or the processors that emulate them."""
    gpus = [node.gpus[index] for index in local]
    devices = [gpu.device for gpu in gpus if gpu.device]
    sets = [gpu.cpuset for gpu in gpus]
    hardware: dict[str, Any] = {}
    if devices:
        kind = {"driver": "cdi"} if node.by_cdi else {"capabilities": [["gpu"]]}
        hardware["device_requests"] = [{"device_ids": devices, **kind}]
    if all(sets):
        hardware["cpuset_cpus"] = ",".join(sets)
    return hardware


def _confined(nodes: Nodes, node: Node, gpus: int) -> dict[str, Any]:
    """Confine a container: user, capabilities, file system and limits."""
    limits = nodes.limits_on(node)
    return {
        "user": nodes.user,
        "use_config_proxy": False,  # hides the scheduler's proxies and their passwords
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "read_only": True,
        "tmpfs": {"/tmp": f"rw,nosuid,nodev,size={gpus * limits.scratch_bytes},mode=1777"},
        "mem_limit": gpus * limits.memory_bytes,
        "memswap_limit": gpus * limits.memory_bytes,
        "pids_limit": gpus * limits.pids,
        "init": True,  # forwards SIGTERM and reaps orphans
        "log_config": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "2"}},
    }
