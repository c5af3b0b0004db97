"""Checks of a cluster of Docker hosts, for a new run and for `shockwave cluster check`."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from containers.docker.daemon import Daemon
from containers.docker.fleet import TAKEN_REMEDY
from containers.docker.grants import JobNetwork, Volume
from containers.docker.health import SKEW_SECONDS, parse_system_time
from containers.docker.nodes import NVIDIA, Node, Nodes, cdi_name
from containers.docker.rendering import DATASETS, Rendered, mount_volumes, render
from containers.leasing.checking import Finding, find
from containers.leasing.engine import Lacking, NodeGone, Refused
from containers.runtime import Lease
from predictor.errors import InputError

PROBE = """
touch /job/seen || exit
test -z "$PROBE_DATA" || test -n "$(ls -A "$PROBE_DATA")" || exit 66
test -z "$PROBE_GPUS" || nvidia-smi -L
"""
"""Script of a probe container: writes to the job's folder, lists data sets and GPUs."""
MOST_PULLS = 16
"""Most images pulled at a time. An engineering bound."""
NO_DATA = 66
"""Exit code of `PROBE` if it finds no data sets (EX_NOINPUT)."""


def check_before_run(nodes: Nodes) -> None:
    """Check what a run needs to start.

    Raises:
        InputError: The storage is not writable; a daemon does not answer, lacks its image, has an
            image with volumes or runs containers of another run; or two nodes share a GPU.
    """
    _check_storage(nodes)
    daemons: dict[str, list[Node]] = {}
    for node in nodes.nodes:
        with _explained(node):
            daemon = Daemon(node)
            _check_own_gpus(node, daemons.setdefault(daemon.info()["ID"], []))
            daemon.image(node.image)
            if others := daemon.runs():
                raise _unsound(node, f"runs jobs of run {min(others)}", TAKEN_REMEDY)


def check_cluster(nodes: Nodes) -> list[Finding]:
    """Return the findings for the storage, then for each node."""
    findings = [find("storage", "writable", lambda: _check_storage(nodes))]
    daemons: dict[str, list[Node]] = {}
    for place in range(len(nodes.nodes)):
        findings += _check_node(nodes, place, daemons)
    return findings


def pull_images(nodes: Nodes, images: Sequence[str]) -> list[Finding]:
    """Pull images on all nodes, by default each node's own; return a finding for each."""

    def pull(node: Node, image: str) -> Finding:
        try:
            with closing(Daemon(node)) as daemon:
                daemon.pull(image)
                return Finding(node.name, image, True, daemon.image(image))
        except (NodeGone, Refused) as error:
            remedy = "docker login on this machine, if its registry asks who you are"
            return Finding(node.name, image, False, str(error), remedy)

    wanted = [(node, image) for node in nodes.nodes for image in images or [node.image]]
    with ThreadPoolExecutor(MOST_PULLS) as pool:
        return list(pool.map(pull, *zip(*wanted, strict=True)))


def _unsound(node: Node, problem: str, remedy: str) -> InputError:
    return InputError(f"node {node.name}", problem, remedy)


def _refused(node: Node, error: Exception, page: str) -> InputError:
    remedy = f"see {page}"
    if isinstance(error, Lacking):
        remedy = f"pull it with shockwave cluster pull, or build it ({page})"
    return _unsound(node, str(error), remedy)


@contextmanager
def _explained(node: Node) -> Iterator[None]:
    """Convert errors of a node's daemon to an `InputError`."""
    try:
        yield
    except NodeGone as error:
        remedy = "see shockwave cluster check"
        raise _unsound(node, f"does not answer: {error}", remedy) from None
    except Refused as error:
        raise _refused(node, error, "docs/images.md") from None


def list_images(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the image ids of the nodes that answer, by name of the node.

    Raises:
        InputError: A node lacks its image, or the image has volumes.
    """
    found: dict[str, str] = {}
    for node in nodes:
        with _explained(node), suppress(NodeGone), closing(Daemon(node)) as daemon:
            found[node.name] = daemon.image(node.image)
    return found


def list_runs(nodes: Iterable[Node]) -> set[str]:
    """Return runs with containers, running or not, on the nodes that answer."""
    found: set[str] = set()
    for node in nodes:
        with suppress(NodeGone, Refused), closing(Daemon(node)) as daemon:
            found |= daemon.runs(stopped=True)
    return found


def describe_machine(node: Node) -> dict[str, str | int]:
    """Describe a node's machine, for the profiles measured on it.

    Raises:
        InputError: The node does not answer, or lacks its image.
    """
    with _explained(node), closing(Daemon(node)) as daemon:
        info, image = daemon.info(), daemon.image(node.image)
    return {
        "docker": info["ServerVersion"],
        "system": f"{info['OperatingSystem']}, {info['KernelVersion']}, {info['Architecture']}",
        "cpus": info["NCPU"],
        "memory_gib": round(info["MemTotal"] / 2**30),
        "image": f"{node.image} {image}",
    }


def _check_storage(nodes: Nodes) -> str:
    """Check that the scheduler can make folders that containers can write to."""
    path, place = nodes.storage / f".probe-{uuid4().hex}", str(nodes.storage)
    user, _ = map(int, nodes.user.split(":"))
    try:
        nodes.storage.mkdir(parents=True, exist_ok=True)
        path.mkdir()
        path.rmdir()
    except OSError as error:
        problem = f"{error.strerror}: {nodes.storage}"
        raise InputError(place, problem, "make it writable") from None
    if os.geteuid() not in (0, user):
        problem = f"containers run as user {user}, and the scheduler as {os.geteuid()}"
        remedy = "leave user out of the cluster file, or run the scheduler as that user"
        raise InputError(place, problem, remedy)
    return f"{nodes.storage}, as user {nodes.user}"


def _check_node(nodes: Nodes, place: int, daemons: dict[str, list[Node]]) -> Iterator[Finding]:
    node = nodes.nodes[place]
    try:
        daemon = Daemon(node)
        info = daemon.info()
        found = f"Docker {info['ServerVersion']} at {node.endpoint}"
        yield Finding(node.name, "endpoint", True, found)
        here = daemons.setdefault(info["ID"], [])
        checks: dict[str, Callable[[], str]] = {
            "daemon": lambda: _check_own_gpus(node, here),
            "clock": lambda: _check_clock(node, info),
            "limits": lambda: _check_limits(node, info),
            "gpus": lambda: _check_hardware(node, here, info),
            "versions": lambda: _list_versions(daemon),
            "image": lambda: _check_image(node, daemon),
            "container": lambda: _check_container(nodes, place, daemon),
        }
        if nodes.network:
            checks["network"] = lambda: _check_network(nodes, place, daemon)
        for grant in nodes.networks:
            checks[f"network {grant.name}"] = partial(_check_grant, nodes, place, daemon, grant)
        for volume in nodes.volumes:
            checks[f"volume {volume.name}"] = partial(_check_grant, nodes, place, daemon, volume)
        for check, call in checks.items():
            yield find(node.name, check, call)
    except NodeGone as error:
        yield Finding(node.name, "endpoint", False, f"{node.endpoint}: {error}", _reach(node))
    except Refused as error:
        yield Finding(node.name, "endpoint", False, str(error), "let this user use the daemon")


def _reach(node: Node) -> str:
    if node.endpoint.startswith("unix://"):
        return "start dockerd there, and let this user write to its socket (group docker)"
    if node.endpoint.startswith("ssh://"):
        return "let ssh reach that host without a password, and its user use docker"
    return "let dockerd listen there with TLS, and give certificates that it accepts"


def _check_own_gpus(node: Node, others: list[Node]) -> str:
    """Check that no other node of the daemon has a GPU of this node; adds the node to `others`."""
    before = tuple(others)
    others.append(node)
    for other in before:
        shared = [gpu for gpu in node.devices if any(_may_be_one(gpu, b) for b in other.devices)]
        if shared:
            problem = f"is the daemon of node {other.name}, and both have GPU {min(shared)}"
            remedy = "give each GPU once, and on one daemon all by number or all by GPU-…"
            raise _unsound(node, problem, remedy)
    names = ", ".join(other.name for other in before)
    return f"is the daemon of {names}, with other GPUs" if before else "its own"


def _may_be_one(first: str, second: str) -> bool:
    """Return whether two devices may be the same GPU; an index and a UUID always may."""
    (kind, _, name), (kind_there, _, there) = (cdi_name(x).partition("=") for x in (first, second))
    return kind == kind_there and (name == there or name.isdecimal() != there.isdecimal())


def _check_clock(node: Node, info: dict[str, Any]) -> str:
    skew = parse_system_time(info["SystemTime"]) - time.time()
    found = f"{abs(skew):.0f} s off"
    if abs(skew) > SKEW_SECONDS:
        raise _unsound(node, found, "synchronise clocks (NTP)")
    return found


def _check_limits(node: Node, info: dict[str, Any]) -> str:
    wanted = {"MemoryLimit": "memory", "PidsLimit": "pids", "CpuCfsQuota": "cpus"}
    if missing := [name for key, name in wanted.items() if not info.get(key)]:
        problem = f"cannot limit {', '.join(missing)}"
        raise _unsound(node, problem, "enable these cgroup controllers")
    return "memory, pids and cpus can be limited"


def _check_hardware(node: Node, all_here: list[Node], info: dict[str, Any]) -> str:
    """Check that Docker can use the node's GPUs or, if emulated, that its processors suffice."""
    if node.by_cdi:
        folders = info.get("CDISpecDirs") or []
        found = f"{len(node.gpus)} GPUs, CDI {'in ' + ', '.join(folders) if folders else 'is off'}"
        if not folders:
            remedy = "use Docker 25 or later, with features.cdi in its daemon.json"
            raise _unsound(node, found, remedy)
        return found
    if node.devices:
        there = "nvidia" in info.get("Runtimes", {})
        found = f"{len(node.gpus)} GPUs, NVIDIA runtime {'found' if there else 'missing'}"
        if not there:
            remedy = "install nvidia-container-toolkit and restart dockerd"
            raise _unsound(node, found, remedy)
        return found
    named = [int(text) for gpu in node.gpus for text in re.findall(r"\d+", gpu.cpuset)]
    last = max(named, default=0)
    if last >= info["NCPU"]:
        problem = f"a cpuset names processor {last}, and there are {info['NCPU']}, counted from 0"
        raise _unsound(node, problem, "give slots processors that exist")
    slots = [gpu for owner in all_here for gpu in owner.gpus]
    cpus = sum(gpu.cpus for gpu in slots)
    found = f"{len(slots)} emulated GPUs take {cpus:g} of {info['NCPU']} processors"
    if cpus > info["NCPU"]:
        raise _unsound(node, found, "give slots fewer cpus: they slow each other down")
    return found


def _list_versions(daemon: Daemon) -> str:
    components = daemon.components()
    return ", ".join(f"{name} {components.get(name) or 'unknown'}" for name in ("Engine", "runc"))


def _check_image(node: Node, daemon: Daemon) -> str:
    try:
        return f"{node.image} is {daemon.image(node.image)}"
    except Refused as error:
        raise _refused(node, error, "docs/images.md") from None


def _check_network(nodes: Nodes, place: int, daemon: Daemon) -> str:
    """Check that a container can join the gangs' network; swarm workers list it only afterwards."""
    try:
        _check_container(nodes, place, daemon, nodes.network)
    except InputError as error:
        create = f"docker network create --driver overlay --attachable --internal {nodes.network}"
        remedy = create if nodes.network in error.problem else error.remedy
        raise InputError(error.place, error.problem, remedy) from None
    return f"a container joins {nodes.network}"


def _check_grant(nodes: Nodes, place: int, daemon: Daemon, grant: JobNetwork | Volume) -> str:
    """Check that a container can join a network that jobs may name, or see a volume."""
    if isinstance(grant, Volume):
        _check_container(nodes, place, daemon, volumes=(grant,))
        return f"a container sees {grant.path}"
    try:
        _check_container(nodes, place, daemon, grant.docker)
    except InputError as error:
        absent = f"network {grant.docker} not found" in error.problem
        remedy = f"docker network create {grant.docker}" if absent else error.remedy
        raise InputError(error.place, error.problem, remedy) from None
    return f"a container joins {grant.docker}"


def _check_container(
    nodes: Nodes,
    place: int,
    daemon: Daemon,
    network: str = "none",
    volumes: tuple[Volume, ...] = (),
) -> str:
    """Check that a job's container starts, and that the scheduler sees its files."""
    node, run = nodes.nodes[place], f"check-{uuid4().hex[:12]}"
    (rendered,) = render(nodes, run, 0, Lease(0, tuple(nodes.inventory.gpus_of(place))))
    folder = nodes.folder(run, 0)
    # nvidia-smi lists only NVIDIA's GPUs.
    gpus = [device for device in node.devices if cdi_name(device).startswith(f"{NVIDIA}=")]
    try:
        folder.mkdir(parents=True)
        nodes.hand_over(folder)
        probing = _probing(rendered, gpus, nodes.datasets, network)
        probing.options["mounts"] += mount_volumes(volumes)
        code, said = daemon.probe(probing)
        seen = (folder / "seen").exists()
    except (Refused, OSError) as error:
        raise _refused(node, error, "docs/docker.md") from None
    finally:
        _forget(folder)
    if code == NO_DATA:
        remedy = f"put the data sets there on that host, for user {nodes.user} to read"
        raise _unsound(node, f"a container finds nothing in {nodes.datasets}", remedy)
    if code:
        problem = f"a container exits with code {code}: {said[-200:]}"
        raise _unsound(node, problem, "see docs/docker.md")
    if not seen:
        remedy = "mount the same storage on this machine and on the node, at the same path"
        raise _unsound(node, f"files that a container writes are not in {nodes.storage}", remedy)
    if gpus and said.count("GPU ") != len(gpus):
        problem = f"a container with {len(gpus)} GPUs sees {said.count('GPU ')}"
        raise _unsound(node, problem, "compare gpus with nvidia-smi -L")
    return f"starts as user {nodes.user}, and writes"


def _probing(rendered: Rendered, gpus: list[str], datasets: Path | None, network: str) -> Rendered:
    changed = {
        "entrypoint": ["/bin/sh", "-c", PROBE],
        "command": [],
        "environment": {
            **rendered.options["environment"],
            "PROBE_GPUS": ",".join(gpus),
            "PROBE_DATA": DATASETS if datasets else "",
        },
        "network_mode": network,
    }
    return replace(rendered, options={**rendered.options, **changed})


def _forget(folder: Path) -> None:
    for path in (folder / "seen", folder, folder.parent):
        with suppress(OSError):
            path.unlink() if path.is_file() else path.rmdir()
