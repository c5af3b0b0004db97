"""The Docker hosts of a service, which can grow while it runs.

Nodes are numbered in the order of their addition, not in that of the cluster file. A file in the
run's folder stores the order.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from containers.docker.daemon import Daemon
from containers.docker.docker_runtime import DockerRuntime
from containers.docker.fleet import TAKEN_REMEDY
from containers.docker.nodes import Gpu, Node, Nodes
from containers.leasing.engine import NodeGone, Refused
from containers.slurm.cluster import SlurmSite
from containers.slurm.inventory import SlurmNode
from flows.runs.cluster_file import read_cluster_file
from predictor.errors import InputError
from solver.inventory import Inventory
from tasks.commands import NewNode, Orders
from tasks.run import Run
from warehouse.store.durable import write_text

NODES = "nodes.json"
"""File in a run's folder in the storage: the run's first nodes, and those added since."""

NOWHERE = "unix:///nowhere"
"""Endpoint of a removed node that is no longer in the cluster file."""


def node_to_row(node: Node | SlurmNode) -> dict[str, Any]:
    """Return a node as stored in the run's folder."""
    if isinstance(node, SlurmNode):
        return {"name": node.name, "gpu_type": node.gpu_type, "gpus": node.gpus}
    gpus = [asdict(gpu) for gpu in node.gpus]
    return {"name": node.name, "gpu_type": node.gpu_type, "gpus": gpus}


def read_service_nodes(
    nodes: Nodes, run: str, inventory: Inventory, orders: Orders
) -> tuple[Nodes, dict[str, str]]:
    """Return a service's nodes in its numbering, and the images of added nodes by name.

    Args:
        nodes: The nodes of the cluster file; nodes not yet added are left out.
        run: The service's run.
        inventory: Its cluster at the beginning.
        orders: The orders since.

    Raises:
        InputError: A node is missing, or has other GPUs than before.
    """
    path = nodes.storage / run / NODES
    remedy = "give the cluster file of the service"
    try:
        known: list[dict[str, Any]] = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(str(nodes.storage), f"has no files of run {run}", remedy) from None
    except (OSError, ValueError) as error:
        remedy = "make it readable and writable"
        raise InputError(str(path), f"cannot be used: {error}", remedy) from None
    # The last addition may not have been accepted.
    known = known[: inventory.nodes + len(orders.added)]
    there = {node.name: node for node in nodes.nodes}
    for place, entry in enumerate(known):
        node = there.get(entry["name"])
        same = node and node_to_row(node) == {
            name: entry[name] for name in entry if name != "image"
        }
        if place not in orders.removed and not same:
            problem = f"node {entry['name']} is missing, or has other GPUs than in {path}"
            raise InputError("cluster", problem, "restore it in the cluster file")
    renamed = tuple(
        _removed(entry, there) if place in orders.removed else there[entry["name"]]
        for place, entry in enumerate(known)
    )
    images = {entry["name"]: str(entry["image"]) for entry in known if "image" in entry}
    return replace(nodes, nodes=renamed), images


def check_new(name: str, nodes: Collection[str]) -> None:
    """Refuse a new node whose name was used before.

    Raises:
        InputError: `nodes` contains the name.
    """
    if name in nodes:
        problem = f"node {name} is or was part of the cluster"
        raise InputError("name", problem, "give it another name in the cluster file")


def read_node_names(
    nodes: Nodes | SlurmSite, run: str, inventory: Inventory, orders: Orders
) -> list[str]:
    """Return the names of a service's nodes, removed ones too; empty if they cannot be read."""
    try:
        known = json.loads((nodes.storage / run / NODES).read_text())
    except (OSError, ValueError):
        return []
    return [entry["name"] for entry in known[: inventory.nodes + len(orders.added)]]


def _removed(entry: Mapping[str, Any], there: Mapping[str, Node]) -> Node:
    """Make a placeholder for a removed node, without GPU ids, which other nodes may have by now."""
    name, gpus = entry["name"], tuple(Gpu() for _ in entry["gpus"])
    if name in there:
        return replace(there[name], gpus=gpus)
    return Node(name, NOWHERE, entry["gpu_type"], "", gpus)


class Hosts:
    """The hosts of a running service, from its cluster file."""

    def __init__(self, path: Path, run: Run, runtime: DockerRuntime) -> None:
        self._path, self._run, self._runtime = path, run, runtime

    def add(self, new: NewNode) -> None:
        """Check that a new node answers and has its image, then store and use it.

        Raises:
            InputError: It is not in the cluster file as it was accepted, was a node before, does
                not answer, or runs jobs of another run or of a removed node.
        """
        before, removed = self._runtime.nodes, self._run.state.orders.removed
        check_new(new.name, [node.name for node in before.nodes])
        there = {node.name: node for node in read_cluster_file(self._path).nodes}
        node = there.get(new.name)
        if node is None or node.pool != new.pool:
            problem = f"node {new.name} is not in the cluster file as it was when accepted"
            raise InputError("name", problem, "add it again")
        staying = {old.name for place, old in enumerate(before.nodes) if place not in removed}
        node = replace(node, image=_image(node, self._run.name, staying))
        earlier = (
            _removed(node_to_row(old), {old.name: old}) if place in removed else old
            for place, old in enumerate(before.nodes)
        )
        nodes = replace(before, nodes=(*earlier, node))
        self._save_name(nodes, node)
        self._runtime.grow(nodes)

    def change_image(self, place: int, number: int) -> str:
        """Give a node its present image of the cluster file, for jobs with ids above `number`.

        Returns the image's id.

        Raises:
            InputError: The node is not in the cluster file, does not answer or lacks the image.
        """
        before = self._runtime.nodes
        old = before.nodes[place]
        image = read_image(read_cluster_file(self._path), old.name)
        new = replace(old, images=(*old.images, (number, image)))
        nodes = (*before.nodes[:place], new, *before.nodes[place + 1 :])
        self._runtime.grow(replace(before, nodes=nodes))
        return image

    def _save_name(self, nodes: Nodes, node: Node) -> None:
        path = nodes.storage / self._run.name / NODES
        known: Sequence[dict[str, Any]] = json.loads(path.read_text())[: len(nodes.nodes) - 1]
        write_text(path, json.dumps([*known, node_to_row(node) | {"image": node.image}]))


def read_image(nodes: Nodes, name: str) -> str:
    """Return the id of the image that a cluster file names for a node.

    Raises:
        InputError: The node is not in the file, does not answer or lacks the image.
    """
    node = next((node for node in nodes.nodes if node.name == name), None)
    if node is None:
        raise InputError("node", f"{name} is not in the cluster file", "restore it there")
    try:
        with closing(Daemon(node)) as daemon:
            return daemon.image(node.image)
    except (NodeGone, Refused) as error:
        raise InputError(f"node {name}", str(error), "see shockwave cluster check") from None


def _image(node: Node, run: str, staying: Collection[str]) -> str:
    """Return the id of a node's image; refuse a node with jobs of another run or a removed node."""
    try:
        with closing(Daemon(node)) as daemon:
            image, others = daemon.image(node.image), daemon.runs() - {run}
            left = daemon.nodes_of(run) - {*staying}
    except (NodeGone, Refused) as error:
        remedy = "see shockwave cluster check"
        raise InputError(f"node {node.name}", str(error), remedy) from None
    if others:
        raise InputError(f"node {node.name}", f"runs jobs of run {min(others)}", TAKEN_REMEDY)
    if left:
        problem = f"still runs jobs of node {min(left)}, which was removed"
        raise InputError(f"node {node.name}", problem, "remove its containers, and add it again")
    return image
