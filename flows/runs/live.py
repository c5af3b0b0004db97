"""Start and resume runs on real machines."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from containers.clock import RunClock
from containers.docker.checking import list_images, list_runs
from containers.docker.nodes import Node, Nodes
from containers.docker.own_images import check_needs
from containers.leasing.runtime import LeasedRuntime
from containers.runtime import ResumePoint
from containers.slurm import rendering as slurm_rendering
from containers.slurm.cluster import SlurmCluster
from flows.runs.cluster_file import AnyCluster, describe_machines
from flows.runs.code_version import list_packages
from flows.runs.hosts import NODES, node_to_row, read_service_nodes
from flows.runs.machines import lock_machines, open_machines
from flows.runs.resuming import check_plugins
from flows.runs.simulation import Driver, Prepared, Progress, finish, make_terms, prepare
from flows.runs.snapshot import RunProgress, SnapshotSink, read_progress, read_snapshot
from predictor.errors import InputError, Interrupted
from predictor.job import JobSpec
from tasks.commands import NodeImage
from tasks.record import ON_MACHINES, Package, RunHeader, Start
from tasks.round import run_round
from tasks.run import Run
from warehouse.analytics.catalog import build
from warehouse.store.durable import write_text
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer

IMAGE_OF = "image of "
"""Prefix of the names of packages that are nodes' images; the version is the image's id."""


class LiveRun(NamedTuple):
    """A run on its nodes, with the writer of its records and the runtime of its containers."""

    run: Run
    writer: Writer
    runtime: LeasedRuntime


def check_jobs(cluster: AnyCluster, jobs: Iterable[JobSpec]) -> None:
    """Refuse jobs that a cluster never could start.

    Raises:
        InputError: A job is refused.
    """
    if isinstance(cluster, SlurmCluster):
        slurm_rendering.check_needs(cluster.site.trainer, jobs)
    else:
        check_needs(cluster, jobs)


def run_live(
    start: Start,
    nodes: AnyCluster,
    warehouse: Path,
    *,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Run a workload in containers; return the run's id.

    By default it runs to the end of its last job. After `rounds` rounds it can be resumed. The
    start's settings have as many GPUs as the nodes.

    Raises:
        Interrupted: The user stopped it; containers keep running.
        ShockwaveError: The warehouse cannot be written, or the profile lacks an entry.
    """
    with begin_live(start, nodes, warehouse) as live:
        return finish(live.run, warehouse, live.writer, driver, progress, rounds)


@contextmanager
def begin_live(
    start: Start, nodes: AnyCluster, warehouse: Path, snapshots: Path | None = None
) -> Iterator[LiveRun]:
    """Open a new run on its nodes, within the context.

    `snapshots` is the file of its snapshot; None to keep none.

    Raises:
        ShockwaveError: See `run_live`.
    """
    check_nodes(start.header, nodes)
    check_jobs(nodes, start.workload.specs)
    prepared = prepare(start)

    image_ids, there = dict[str, str](), set[str]()
    if isinstance(nodes, Nodes):
        image_ids, there = list_images(nodes.nodes), list_runs(nodes.nodes)
        nodes = _pinned(nodes, image_ids)
    storage = nodes.storage

    def taken(name: str) -> bool:  # by a run of another warehouse
        return name in there or (storage / name).exists()

    build(warehouse)
    with (
        lock_machines(nodes, ""),
        Writer(
            warehouse,
            start,
            packages=(*list_packages(start.header.settings), *_named(image_ids)),
            taken=taken,
        ) as writer,
        _running(prepared, nodes, writer, time.time(), ResumePoint(), begun=False) as live,
    ):
        if snapshots:
            live.run.sink = SnapshotSink(writer, live.run, snapshots, RunProgress(prepared.state))
        yield live


def resume_live(
    name: str,
    nodes: AnyCluster,
    warehouse: Path,
    *,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Resume an unfinished run; adopt its running containers.

    The records determine the state. Later actions are undone: containers without a recorded lease
    are stopped, each with a checkpoint.

    Raises:
        Interrupted: The user stopped it; containers keep running.
        ShockwaveError: The run does not exist, its records are damaged, or it began on another
            cluster or with other images.
    """
    with continue_live(name, nodes, warehouse) as live:
        return finish(live.run, warehouse, live.writer, driver, progress, rounds)


@contextmanager
def continue_live(
    name: str, nodes: AnyCluster, warehouse: Path, snapshots: Path | None = None
) -> Iterator[LiveRun]:
    """Open a run after its last recorded round, within the context.

    `snapshots` is the file of its snapshot, which avoids reading all rounds; None to keep none.

    Raises:
        ShockwaveError: See `resume_live`.
    """
    reader = Reader(warehouse)
    start = reader.original_start(name)
    header = start.header
    if not header.service:
        check_nodes(header, nodes)
    check_plugins(name, start, reader)
    build(warehouse)
    with Writer(warehouse, start, run=name) as writer:
        past = read_snapshot(snapshots, name) if snapshots else None
        position, recorded = read_progress(reader, start, name, past)
        position = position.after_all(header, recorded)
        images_then, removed = _read_images(reader.packages(name)), frozenset[int]()
        if isinstance(nodes, SlurmCluster):
            removed = position.state.orders.removed
        elif header.service:  # its images change by command only, whatever the file says
            orders = position.state.orders
            nodes, added = read_service_nodes(nodes, name, header.settings.inventory, orders)
            nodes = _with_changes(_pinned(nodes, images_then | added), orders.images)
            removed = orders.removed
        else:
            nodes = _pinned(nodes, _same_images(nodes.nodes, images_then))
        prepared, resume_point = prepare(start).at(position)
        began = min(reader.created_at(name).timestamp(), time.time() - resume_point.clock_seconds)
        there = bool(position.state.round)
        with (
            lock_machines(nodes, name, removed),
            _running(prepared, nodes, writer, began, resume_point, begun=there) as live,
        ):
            if snapshots:
                live.run.sink = SnapshotSink(writer, live.run, snapshots, position)
            yield live


def check_nodes(header: RunHeader, nodes: AnyCluster) -> None:
    """Refuse a cluster that differs from the run's.

    Raises:
        InputError: The cluster has other GPUs or another engine, or the run is on a virtual one.
    """
    settings = header.settings
    if settings.runtime not in ON_MACHINES:
        raise InputError("cluster", "the run is on a virtual cluster", "leave the option out")
    kind = describe_machines(nodes)[1]
    if settings.runtime != kind:
        problem = f"is of {kind}, and the run of {settings.runtime}"
        raise InputError("cluster", problem, "give the cluster that the run began on")
    mine, its = (
        ", ".join(f"{pool.gpus} GPUs, {pool.gpus_per_node} a node" for pool in inventory.pools)
        for inventory in (nodes.inventory, settings.inventory)
    )
    if mine != its:
        raise InputError(
            "cluster",
            f"has {mine}, and the run has {its}",
            "give the cluster that the run began on",
        )


def _named(image_ids: Mapping[str, str]) -> Iterator[Package]:
    """Yield images by node, in the form of a run's record."""
    for node, image in image_ids.items():
        yield Package(f"{IMAGE_OF}{node}", image)


def _pinned(nodes: Nodes, image_ids: Mapping[str, str]) -> Nodes:
    """Replace image tags by ids, since tags may move to other images."""
    pinned = (replace(node, image=image_ids.get(node.name, node.image)) for node in nodes.nodes)
    return replace(nodes, nodes=tuple(pinned))


def _with_changes(nodes: Nodes, changes: Iterable[NodeImage]) -> Nodes:
    """Add the images that commands gave to nodes since."""
    images: list[tuple[tuple[int, str], ...]] = [() for _ in nodes.nodes]
    for change in changes:
        images[change.node] += ((change.after, change.image),)
    known = zip(nodes.nodes, images, strict=True)
    return replace(nodes, nodes=tuple(replace(node, images=found) for node, found in known))


def _read_images(recorded: Iterable[Package]) -> dict[str, str]:
    """Return the image ids that a run began with, by node."""
    return {
        part.name.removeprefix(IMAGE_OF): part.version
        for part in recorded
        if part.name.startswith(IMAGE_OF)
    }


def _same_images(nodes: Sequence[Node], before: Mapping[str, str]) -> dict[str, str]:
    """Return the image ids by node; refuse a node with another image than `before`."""
    image_ids = list_images(nodes)
    for node in nodes:
        image = image_ids.get(node.name)
        if image and before.get(node.name, image) != image:
            raise InputError(
                f"node {node.name}",
                f"its image {node.image} is {image}, not the one that the run began with",
                f'name that one in the cluster file: image = "{before[node.name]}"',
            )
    return {**image_ids, **before}


def _hold_to(nodes: AnyCluster, run: str, *, begun: bool) -> None:
    """Store the nodes of a new run; refuse other nodes when it is resumed.

    Endpoints may change, since they do not identify a node.
    """
    remedy = "give the cluster that the run began on"
    mine = [node_to_row(node) for node in nodes.nodes]
    path = nodes.storage / run / NODES
    if begun and not path.exists():
        raise InputError(str(nodes.storage), f"has no files of run {run}", remedy)
    try:
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_text(path, json.dumps(mine))
        recorded = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(
            str(path), f"cannot be used: {error}", "make it readable and writable"
        ) from None
    if recorded != mine:
        raise InputError("cluster", f"its nodes differ from those recorded in {path}", remedy)


@contextmanager
def _running(
    prepared: Prepared,
    nodes: AnyCluster,
    writer: Writer,
    began: float,
    resume_point: ResumePoint,
    *,
    begun: bool,
) -> Iterator[LiveRun]:
    """Open a run and its runtime on its nodes, within the context."""
    clock, at = RunClock(time.time() - began), make_terms(prepared.start.header, writer.run)
    slurm = isinstance(nodes, SlurmCluster)
    # `read_service_nodes` has checked the nodes of a service.
    if slurm or not (begun and prepared.start.header.service):
        _hold_to(nodes, writer.run, begun=begun)
    try:
        with closing(open_machines(nodes, clock, at, resume_point)) as runtime:
            yield LiveRun(prepared.on(runtime, writer, writer.run), writer, runtime)
    except Interrupted as error:
        what = "Slurm jobs" if slurm else "containers"
        remedy = f"its {what} keep running; {error.remedy} --cluster FILE"
        raise Interrupted(error.place, error.problem, remedy) from None
