"""Checks of a cluster of Docker hosts, for a new run and for `shockwave cluster check`."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from containers.docker.daemon import Daemon, NodeGone, Refused
from containers.docker.fleet import TAKEN_REMEDY
from containers.docker.health import SKEW_SECONDS, parse_system_time
from containers.docker.nodes import NVIDIA, Node, Nodes, cdi_name
from containers.docker.rendering import DATASETS, Rendered, render
from containers.runtime import Lease
from predictor.errors import InputError

PROBE = """
touch /job/seen || exit
test -z "$PROBE_DATA" || test -n "$(ls -A "$PROBE_DATA")" || exit 66
test -z "$PROBE_GPUS" || nvidia-smi -L
"""
"""Script of a probe container: writes to the job's folder, lists data sets and GPUs."""
NO_DATA = 66
"""Exit code of `PROBE` if it finds no data sets (EX_NOINPUT)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check.

    Attributes:
        node: Name of the node; `storage` for the shared storage.
        remedy: Remedy if the check failed, or advice if it passed; may be empty.
    """

    node: str
    check: str
    sound: bool
    found: str
    remedy: str = ""

    @property
    def row(self) -> dict[str, str | bool]:
        """The finding as a printed row."""
        return {
            "node": self.node,
            "check": self.check,
            "sound": self.sound,
            "found": self.found,
            "remedy": self.remedy,
        }


def check_before_run(nodes: Nodes) -> None:
    """Check what a run needs to start.

    Raises:
        InputError: The storage is not writable; a daemon does not answer, lacks its image, has an
            image with volumes or runs containers of another run; or two nodes share a GPU.
    """
    storage = _storage(nodes)
    if not storage.sound:
        raise InputError(str(nodes.storage), storage.found, storage.remedy)
    daemons: dict[str, list[Node]] = {}
    for node in nodes.nodes:
        try:
            daemon = Daemon(node)
            own = _own_gpus(node, daemons.setdefault(daemon.info()["ID"], []))
            daemon.image(node.image)
            others = daemon.runs()
        except NodeGone as error:
            remedy = "see shockwave cluster check"
            raise InputError(f"node {node.name}", f"does not answer: {error}", remedy) from None
        except Refused as error:
            raise InputError(f"node {node.name}", str(error), "see docs/images.md") from None
        if not own.sound:
            raise InputError(f"node {node.name}", own.found, own.remedy)
        if others:
            raise InputError(
                f"node {node.name}",
                f"runs jobs of run {min(others)}",
                TAKEN_REMEDY,
            )


def check_cluster(nodes: Nodes) -> list[Finding]:
    """Return the findings for the storage, then for each node."""
    daemons: dict[str, list[Node]] = {}
    return [
        _storage(nodes),
        *(finding for place in range(len(nodes.nodes)) for finding in _node(nodes, place, daemons)),
    ]


def list_images(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the image ids of the nodes that answer, by name of the node.

    Raises:
        InputError: A node lacks its image, or the image has volumes.
    """
    found: dict[str, str] = {}
    for node in nodes:
        try:
            with closing(Daemon(node)) as daemon:
                found[node.name] = daemon.image(node.image)
        except NodeGone:
            continue
        except Refused as error:
            raise InputError(f"node {node.name}", str(error), "see docs/images.md") from None
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
    try:
        with closing(Daemon(node)) as daemon:
            info, image = daemon.info(), daemon.image(node.image)
    except (NodeGone, Refused) as error:
        remedy = "see shockwave cluster check"
        raise InputError(f"node {node.name}", str(error), remedy) from None
    return {
        "docker": info["ServerVersion"],
        "system": f"{info['OperatingSystem']}, {info['KernelVersion']}, {info['Architecture']}",
        "cpus": info["NCPU"],
        "memory_gib": round(info["MemTotal"] / 2**30),
        "image": f"{node.image} {image}",
    }


def _storage(nodes: Nodes) -> Finding:
    """Check that the scheduler can make folders that containers can write to."""
    path = nodes.storage / f".probe-{uuid4().hex}"
    user, _ = map(int, nodes.user.split(":"))
    try:
        nodes.storage.mkdir(parents=True, exist_ok=True)
        path.mkdir()
        path.rmdir()
    except OSError as error:
        return Finding(
            "storage", "writable", False, f"{error.strerror}: {nodes.storage}", "let it be written"
        )
    if os.geteuid() not in (0, user):
        return Finding(
            "storage",
            "writable",
            False,
            f"containers run as user {user}, and the scheduler as {os.geteuid()}",
            "leave user out of the cluster file, or run the scheduler as that user",
        )
    return Finding("storage", "writable", True, f"{nodes.storage}, as user {nodes.user}")


def _node(nodes: Nodes, place: int, daemons: dict[str, list[Node]]) -> Iterator[Finding]:
    node = nodes.nodes[place]
    try:
        daemon = Daemon(node)
        info = daemon.info()
    except NodeGone as error:
        yield Finding(node.name, "endpoint", False, f"{node.endpoint}: {error}", _reach(node))
        return
    except Refused as error:
        yield Finding(node.name, "endpoint", False, str(error), "let this user use the daemon")
        return
    found = f"Docker {info['ServerVersion']} at {node.endpoint}"
    yield Finding(node.name, "endpoint", True, found)
    checks: tuple[Callable[[], Finding], ...] = (
        lambda: _own_gpus(node, daemons.setdefault(info["ID"], [])),
        lambda: _clock(node, info),
        lambda: _limits(node, info),
        lambda: _hardware(node, daemons[info["ID"]], info),
        lambda: _versions(node, daemon),
        lambda: _image(node, daemon),
        lambda: _container(nodes, place, daemon),
        *((lambda: _network(nodes, place, daemon),) if nodes.network else ()),
    )
    for check in checks:
        try:
            yield check()
        except NodeGone as error:
            yield Finding(node.name, "endpoint", False, str(error), _reach(node))
            return


def _reach(node: Node) -> str:
    if node.endpoint.startswith("unix://"):
        return "start dockerd there, and let this user write to its socket (group docker)"
    if node.endpoint.startswith("ssh://"):
        return "let ssh reach that host without a password, and its user use docker"
    return "let dockerd listen there with TLS, and give certificates that it accepts"


def _own_gpus(node: Node, others: list[Node]) -> Finding:
    """Check that no other node of the daemon has a GPU of this node; adds the node to `others`."""
    before = tuple(others)
    others.append(node)
    for other in before:
        if shared := _shared(node, other):
            found = f"is the daemon of node {other.name}, and both have GPU {min(shared)}"
            remedy = "give each GPU once, and on one daemon all by number or all by GPU-…"
            return Finding(node.name, "daemon", False, found, remedy)
    if before:
        names = ", ".join(other.name for other in before)
        return Finding(node.name, "daemon", True, f"is the daemon of {names}, with other GPUs")
    return Finding(node.name, "daemon", True, "its own")


def _shared(node: Node, other: Node) -> set[str]:
    """Return the node's GPUs that the other node has, or may have."""
    return {
        device
        for device in node.devices
        if any(_may_be_one(device, there) for there in other.devices)
    }


def _may_be_one(first: str, second: str) -> bool:
    """Return whether two devices may be the same GPU; an index and a UUID always may."""
    (kind, _, name), (kind_there, _, there) = (cdi_name(x).partition("=") for x in (first, second))
    return kind == kind_there and (name == there or name.isdecimal() != there.isdecimal())


def _clock(node: Node, info: dict[str, Any]) -> Finding:
    skew = parse_system_time(info["SystemTime"]) - time.time()
    sound = abs(skew) <= SKEW_SECONDS
    remedy = "" if sound else "synchronise clocks (NTP)"
    return Finding(node.name, "clock", sound, f"{abs(skew):.0f} s off", remedy)


def _limits(node: Node, info: dict[str, Any]) -> Finding:
    wanted = {"MemoryLimit": "memory", "PidsLimit": "pids", "CpuCfsQuota": "cpus"}
    missing = [name for key, name in wanted.items() if not info.get(key)]
    if missing:
        found = f"cannot limit {', '.join(missing)}"
        return Finding(node.name, "limits", False, found, "enable these cgroup controllers")
    return Finding(node.name, "limits", True, "memory, pids and cpus can be limited")


def _hardware(node: Node, all_here: list[Node], info: dict[str, Any]) -> Finding:
    """Check that Docker can use the node's GPUs or, if emulated, that its processors suffice."""
    if node.by_cdi:
        folders = info.get("CDISpecDirs") or []
        found = f"{len(node.gpus)} GPUs, CDI {'in ' + ', '.join(folders) if folders else 'is off'}"
        remedy = "" if folders else "use Docker 25 or later, with features.cdi in its daemon.json"
        return Finding(node.name, "gpus", bool(folders), found, remedy)
    if node.devices:
        there = "nvidia" in info.get("Runtimes", {})
        found = f"{len(node.gpus)} GPUs, NVIDIA runtime {'there' if there else 'missing'}"
        remedy = "" if there else "install nvidia-container-toolkit and restart dockerd"
        return Finding(node.name, "gpus", there, found, remedy)
    slots = [gpu for owner in all_here for gpu in owner.gpus]
    named = [int(text) for gpu in node.gpus for text in re.findall(r"\d+", gpu.cpuset)]
    last = max(named, default=0)
    if last >= info["NCPU"]:
        found = f"a cpuset names processor {last}, and there are {info['NCPU']}, counted from 0"
        return Finding(node.name, "gpus", False, found, "give slots processors that are there")
    cpus = sum(gpu.cpus for gpu in slots)
    found = f"{len(slots)} emulated GPUs take {cpus:g} of {info['NCPU']} processors"
    sound = cpus <= info["NCPU"]
    remedy = "" if sound else "give slots fewer cpus: they slow each other down"
    return Finding(node.name, "gpus", sound, found, remedy)


def _versions(node: Node, daemon: Daemon) -> Finding:
    components = daemon.components()
    found = [f"{name} {components.get(name) or 'unknown'}" for name in ("Engine", "runc")]
    return Finding(node.name, "versions", True, ", ".join(found), "")


def _of_nvidia(node: Node) -> list[str]:
    """Return a node's NVIDIA GPUs, which `nvidia-smi` lists."""
    return [device for device in node.devices if cdi_name(device).startswith(f"{NVIDIA}=")]


def _image(node: Node, daemon: Daemon) -> Finding:
    try:
        return Finding(node.name, "image", True, f"{node.image} is {daemon.image(node.image)}")
    except Refused as error:
        return Finding(node.name, "image", False, str(error), "see docs/images.md")


def _network(nodes: Nodes, place: int, daemon: Daemon) -> Finding:
    """Check that a container can join the gangs' network; swarm workers list it only afterwards."""
    tried = _container(nodes, place, daemon, nodes.network)
    if tried.sound:
        found = f"a container gets onto {nodes.network}"
        return Finding(tried.node, "network", True, found)
    create = f"docker network create --driver overlay --attachable --internal {nodes.network}"
    remedy = create if nodes.network in tried.found else tried.remedy
    return replace(tried, check="network", remedy=remedy)


def _container(nodes: Nodes, place: int, daemon: Daemon, network: str = "none") -> Finding:
    """Check that a job's container starts, and that the scheduler sees its files."""
    node, run = nodes.nodes[place], f"check-{uuid4().hex[:12]}"
    (rendered,) = render(nodes, run, 0, Lease(0, tuple(nodes.inventory.gpus_of(place))))
    folder = nodes.folder(run, 0)
    gpus = _of_nvidia(node)
    try:
        folder.mkdir(parents=True)
        nodes.hand_over(folder)
        code, said = daemon.probe(_probing(rendered, gpus, nodes.datasets, network))
        seen = (folder / "seen").exists()
    except (Refused, OSError) as error:
        return Finding(node.name, "container", False, str(error), "see docs/docker.md")
    finally:
        _forget(folder)
    if code == NO_DATA:
        found = f"a container finds nothing in {nodes.datasets}"
        remedy = f"put the data sets there on that host, for user {nodes.user} to read"
        return Finding(node.name, "container", False, found, remedy)
    if code:
        found = f"a container exits with code {code}: {said[-200:]}"
        return Finding(node.name, "container", False, found, "see docs/docker.md")
    if not seen:
        found = f"what a container writes is not in {nodes.storage} here"
        remedy = "mount the same storage on this machine and on the node, at the same path"
        return Finding(node.name, "container", False, found, remedy)
    if gpus and said.count("GPU ") != len(gpus):
        found = f"a container with {len(gpus)} GPUs sees {said.count('GPU ')}"
        return Finding(node.name, "container", False, found, "compare gpus with nvidia-smi -L")
    return Finding(node.name, "container", True, f"starts as user {nodes.user}, and writes")


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
