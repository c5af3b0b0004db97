"""The Docker daemons of a cluster, queried in parallel."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Thread

from containers.docker.daemon import CONNECTIONS, Daemon, Shell
from containers.docker.health import Room, find_problem
from containers.docker.logs import append_log, log_file
from containers.docker.nodes import Nodes
from containers.docker.rendering import Rendered, network_name
from containers.docker.usage import Meter
from containers.leasing.engine import (
    KILLED,
    TERMINATED,
    UNSAVED,
    Exit,
    Found,
    Item,
    NodeGone,
    Refused,
    Result,
    Usage,
)
from containers.leasing.lock import lock_storage
from predictor.errors import WarehouseBusy
from predictor.parts import Mapper

MOST_PARTS = 16
"""Most parts of a step; hosts beyond that share a part. An engineering bound on task runs."""

TAKEN_REMEDY = "wait for it; if its scheduler is gone, resume it or remove its containers"
"""Remedy if a node runs containers of another run."""


class Pull(Thread):
    """The pull of an image on a node; its end does not keep a process from ending.

    Attributes:
        problem: Why it failed, in words; empty before its end, and if it succeeded.
    """

    def __init__(self, daemon: Daemon, image: str) -> None:
        super().__init__(name=f"pull {image}", daemon=True)
        self._to, self._image, self.problem = daemon, image, ""
        self.start()

    def run(self) -> None:
        """Pull the image."""
        try:
            self._to.pull(self._image)
        except (NodeGone, Refused) as error:
            self.problem = str(error)


class Fleet:
    """The daemons of a cluster's nodes, for one run.

    Attributes:
        gone: Causes, by node that did not answer the last query.
        nodes: Nodes of the cluster.
    """

    def __init__(self, nodes: Nodes, run: str) -> None:
        self.gone: dict[int, str] = {}
        self.nodes, self.run = nodes, run
        self._daemons: dict[int, Daemon] = {}
        self._meters: dict[int, Meter] = {}
        self._leaving: set[int] = set()
        self._left: set[int] = set()
        self._pulls: dict[tuple[int, str], Pull] = {}
        self._room = Room(nodes.storage, nodes.least_free)
        self._pool = ThreadPoolExecutor(CONNECTIONS)

    def close(self) -> None:
        """Close the connections to the daemons; containers keep running."""
        self._pool.shutdown()
        for meter in self._meters.values():
            meter.close()
        for daemon in self._daemons.values():
            daemon.close()

    def map(
        self,
        name: str,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        node_of: Callable[[Item], int],
        each: Mapper | None = None,
    ) -> list[Result]:
        """Apply a function to items in parallel; return the results in order.

        `each`, if given, gets the items of each host as a part.
        """
        nodes = sorted({node_of(item) for item in items})
        if each is None or len(nodes) < 2:
            return list(self._pool.map(function, items))
        labels = self._label_parts(nodes)
        parts: defaultdict[str, list[int]] = defaultdict(list)
        for place, item in enumerate(items):
            parts[labels[node_of(item)]].append(place)

        def apply(places: Sequence[int]) -> list[Result]:
            return list(self._pool.map(function, [items[place] for place in places]))

        results: dict[int, Result] = {}
        for places, found in zip(parts.values(), each(name, apply, parts), strict=True):
            results.update(zip(places, found, strict=True))
        return [results[place] for place in range(len(items))]

    def _label_parts(self, nodes: Sequence[int]) -> dict[int, str]:
        """Return the label of each node's part: its name, or the names of a range of nodes."""
        size = math.ceil(len(nodes) / MOST_PARTS)
        labels: dict[int, str] = {}
        for start in range(0, len(nodes), size):
            group = nodes[start : start + size]
            first, last = (self.nodes.nodes[node].name for node in (group[0], group[-1]))
            labels |= dict.fromkeys(group, first if first == last else f"{first} to {last}")
        return labels

    def grow(self, nodes: Nodes) -> None:
        """Add nodes after the present ones."""
        self.nodes = nodes

    def leave(self, nodes: Collection[int]) -> None:
        """Stop querying nodes once they report no containers of the run."""
        self._leaving |= {*nodes} - self._left

    def look(self, *, again: bool = False) -> list[Found]:
        """Return the run's containers on all nodes that answer.

        `again` also queries unreachable nodes, each up to its timeout.
        """
        known = (node for node in range(len(self.nodes.nodes)) if node not in self._left)
        nodes = [node for node in known if again or node not in self.gone]
        found = [entry for there in self._pool.map(self._on, nodes) for entry in there]
        empty = self._leaving & {*nodes} - self.gone.keys() - {entry.node for entry in found}
        self._left |= empty
        self._leaving -= empty
        return found

    def _on(self, node: int) -> list[Found]:
        try:
            found = self._daemon(node).found(self.run)
        except (NodeGone, Refused) as error:
            self.gone[node] = str(error)
            if node in self._daemons:  # its connections may be dead
                self._daemons.pop(node).close()
                if meter := self._meters.pop(node, None):
                    meter.close()
            return []
        self.gone.pop(node, None)
        return [replace(entry, node=node) for entry in found]

    def problems(self) -> dict[int, str]:
        """Return the problems of nodes, unreachable ones included, in words."""
        asked = [
            node
            for node in range(len(self.nodes.nodes))
            if node not in self.gone and node not in self._left | self._leaving
        ]
        found = dict(zip(asked, self._pool.map(self._problem, asked), strict=True))
        if room := self._room.problem():
            found = {node: problem or room for node, problem in found.items()}
        silent = {
            node: f"it does not answer: {cause}"
            for node, cause in self.gone.items()
            if node not in self._leaving
        }
        return silent | {node: problem for node, problem in found.items() if problem}

    def _problem(self, node: int) -> str:
        try:
            return find_problem(self.nodes.nodes[node], self._daemon(node))
        except (NodeGone, Refused):
            return ""

    def create(self, rendered: Rendered) -> None:
        """Create and start a container.

        Raises:
            NodeGone: The node does not answer.
            Refused: The node refuses the container.
        """
        if rendered.node in self.gone:
            raise NodeGone(self.gone[rendered.node])
        self._daemon(rendered.node).start(rendered)

    def limit(self, placed: Found, quota: Mapping[str, int]) -> bool:
        """Change the CPU quota of a container; return whether its node answered."""
        try:
            if quota:
                self._daemon(placed.node).divide(placed, quota)
        except NodeGone:
            return False
        except Refused:  # it just ended, or an earlier release made it: leave it unchanged
            pass
        return True

    def image(self, node: int, name: str) -> str:
        """Return the id of an image on a node.

        Raises:
            NodeGone: The node does not answer.
            Lacking: It lacks the image.
            Refused: The image has volumes.
        """
        if node in self.gone:
            raise NodeGone(self.gone[node])
        return self._daemon(node).image(name)

    def find_in_registry(self, node: int, name: str) -> None:
        """Let a node look for an image in its registry.

        Raises:
            NodeGone: The node does not answer.
            Refused: It cannot pull it.
        """
        self._daemon(node).find_in_registry(name)

    def pull(self, node: int, name: str) -> str:
        """Begin to pull an image on a node, unless that is under way; return its state in words.

        A pull outlives rounds. One that failed is told once, and the next call begins anew.
        """
        place = f"image {name} on node {self.nodes.nodes[node].name}"
        pull = self._pulls.get((node, name))
        if pull is None:
            self._pulls[node, name] = Pull(self._daemon(node), name)
            return f"the pull of {place} has begun"
        if pull.is_alive():
            return f"the pull of {place} is under way"
        self._pulls.pop((node, name), None)  # another job may have asked meanwhile
        return f"{place} could not be pulled: {pull.problem or 'it is gone again'}"

    def end(
        self,
        placed: Iterable[Found],
        grace_seconds: float,
        each: Mapper | None = None,
    ) -> tuple[dict[int, str], list[Found]]:
        """Stop containers, with SIGKILL after the grace period, and remove them.

        Returns remarks on kills and failures by job id, and the containers that may still run.
        """
        remarks: dict[int, str] = {}
        left: list[Found] = []

        def end(entry: Found) -> None:
            try:
                daemon = self._daemon(entry.node)
                code = daemon.stop(entry, grace_seconds) if entry.running else 0
                if code == KILLED:
                    remarks[entry.job_id] = (
                        f"killed, as SIGTERM did not end it in {grace_seconds:g} s"
                    )
                elif code == TERMINATED:
                    remarks[entry.job_id] = UNSAVED
                self._keep_log(daemon, entry)
                daemon.remove(entry)
            except (NodeGone, Refused) as error:
                remarks[entry.job_id] = f"its container could not be ended: {error}"
                left.append(entry)

        ended = list(placed)
        self.map("stop", end, ended, lambda entry: entry.node, each)
        for node, job_id in {(entry.node, entry.job_id) for entry in ended if self._spans(entry)}:
            with suppress(NodeGone, Refused):
                self._daemon(node).remove_network(network_name(self.run, job_id))
        return remarks, left

    def _keep_log(self, daemon: Daemon, entry: Found) -> None:
        """Keep an ended container's log; a failure to write it does not fail the job's end."""
        if entry.begun:
            with suppress(OSError):
                path = log_file(self.nodes.folder(self.run, entry.job_id))
                append_log(path, entry.name, daemon.log(entry))

    def log(self, entry: Found) -> bytes:
        """Return what a container has printed so far; empty if its node does not answer."""
        with suppress(NodeGone, Refused):
            return self._daemon(entry.node).log(entry)
        return b""

    def open_shell(self, job_id: int, command: Sequence[str]) -> Shell:
        """Start a program with a terminal in the first container of a job.

        It closes the fleet's connections at its end.

        Raises:
            NodeGone: The node does not answer.
            Refused: No container of the job runs, or it lacks the program.
        """
        found = [entry for entry in self.look() if entry.job_id == job_id and entry.running]
        if not found:
            raise Refused("none of its containers runs")
        first = min(found, key=lambda entry: entry.rank)
        return self._daemon(first.node).open_shell(first, command, self.close)

    def _spans(self, entry: Found) -> bool:
        return len(self.nodes.by_node(entry.gpus)) > 1

    def usage(self, entry: Found) -> Usage | None:
        """Return a container's latest resource usage; None before the first measurement."""
        if entry.node not in self._meters:
            self._meters[entry.node] = Meter(self._daemon(entry.node).figures)
        return self._meters[entry.node].usage(entry.id)

    def other_runs(self) -> dict[str, str]:
        """Return other runs with containers on the nodes that answer, each with a node's name.

        Leaving nodes are not queried, since other clusters may already use them.
        """
        found: dict[str, str] = {}
        for place, node in enumerate(self.nodes.nodes):
            if place in self._leaving | self._left:
                continue
            with suppress(NodeGone, Refused):
                found |= dict.fromkeys(self._daemon(place).runs() - {self.run}, node.name)
        return found

    def exit(self, entry: Found) -> Exit | None:
        """Return the exit of a container; None if its node does not answer."""
        try:
            return self._daemon(entry.node).exit(entry)
        except (NodeGone, Refused):
            return None

    def _daemon(self, node: int) -> Daemon:
        if node not in self._daemons:
            self._daemons[node] = Daemon(self.nodes.nodes[node])
        return self._daemons[node]


@contextmanager
def lock_cluster(nodes: Nodes, run: str, removed: Collection[int] = ()) -> Iterator[None]:
    """Lock a cluster for a run's scheduler process; `run` is empty for a new run.

    Other clusters may use the `removed` nodes.

    Raises:
        InputError: The cluster's storage cannot be written.
        WarehouseBusy: Another scheduler has the lock, or the nodes run containers of another run.
    """
    with lock_storage(nodes.storage):
        fleet = Fleet(nodes, run)
        fleet.leave(removed)
        others = fleet.other_runs()
        fleet.close()
        for other, node in others.items():
            raise WarehouseBusy(f"node {node}", f"runs jobs of run {other}", TAKEN_REMEDY)
        yield
