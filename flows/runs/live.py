"""Runs on real machines: start and resume."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from containers.docker.clock import WallClock
from containers.docker.docker_runtime import DockerPlace
from containers.docker.fleet import only_scheduler
from containers.docker.nodes import Nodes
from containers.runtime import Standing
from flows.runs.prepared import Prepared, prepare
from flows.runs.simulation import Driver, Progress, finish, packages
from predictor.errors import InputError, Interrupted
from tasks.record import RunHeader, RuntimeKind, Start
from tasks.round import Run, run_round
from tasks.state import RunState, advance
from warehouse.analytics.catalog import build
from warehouse.store.durable import write_text
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer

NODES = "nodes.json"
"""In a run's folder in the storage: the nodes that it began on."""


def run_live(
    start: Start,
    nodes: Nodes,
    warehouse: Path,
    *,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Run jobs in containers, to the end of the last one if nothing else is said.

    Args:
        start: What to run; its settings have as many GPUs as the nodes.
        nodes: The machines.
        warehouse: Where its records go.
        driver: How rounds are called.
        progress: Told after every round.
        rounds: How many rounds to run before it is left to be resumed.

    Returns:
        The run's id.

    Raises:
        Interrupted: The user stopped it; containers run on.
        ShockwaveError: The warehouse cannot be written, or the profile lacks an entry.
    """
    check_nodes(start.header, nodes)
    prepared = prepare(start)

    def taken(name: str) -> bool:  # by a run of another warehouse, whose jobs' folders are there
        return (nodes.storage / name).exists()

    build(warehouse)
    with (
        Writer(warehouse, start, packages=packages(), taken=taken) as writer,
        _running(prepared, nodes, writer, time.time(), Standing(), begun=False) as run,
    ):
        return finish(run, warehouse, writer, driver, progress, rounds)


def resume_live(
    name: str,
    nodes: Nodes,
    warehouse: Path,
    *,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Go on with an unfinished run; containers that run on are adopted.

    The state is the fold over the records. What was done after the last of them, and not
    recorded, is undone: containers that no recorded lease stands behind are ended, each with
    a checkpoint.

    Args:
        name: The run.
        nodes: The machines.
        warehouse: Where it is.
        driver: How rounds are called.
        progress: Told after every round.
        rounds: How many rounds to run before it is left again; to its end by default.

    Raises:
        Interrupted: The user stopped it; containers run on.
        ShockwaveError: There is no such run, its records are damaged, or it began on another
            cluster.
    """
    reader = Reader(warehouse)
    start = reader.start(name)
    header = start.header
    check_nodes(header, nodes)
    build(warehouse)
    with Writer(warehouse, start, run=name) as writer:
        recorded = reader.records(name)
        prepared = prepare(start)
        state, clock_seconds, started = prepared.state, 0.0, set[int]()
        for record, digest in recorded:
            state = advance(header, state, record, digest)
            clock_seconds = record.clock_seconds
            started |= {lease.job_id for lease in record.leases}
        began = min(reader.created_at(name).timestamp(), time.time() - clock_seconds)
        standing = _standing(state, clock_seconds, started)
        prepared = replace(prepared, state=state)
        with _running(prepared, nodes, writer, began, standing, begun=bool(recorded)) as run:
            return finish(run, warehouse, writer, driver, progress, rounds)


def check_nodes(header: RunHeader, nodes: Nodes) -> None:
    """Refuse a cluster that is not that of a run.

    Raises:
        InputError: It has other GPUs, or the run is on a virtual cluster.
    """
    settings = header.settings
    if settings.runtime is not RuntimeKind.DOCKER:
        raise InputError("cluster", "the run is on a virtual cluster", "leave it out")
    pool = settings.inventory.only
    if (pool.gpus, pool.gpus_per_node) != (nodes.gpus, nodes.gpus_per_node):
        raise InputError(
            "cluster",
            f"has {nodes.gpus} GPUs, {nodes.gpus_per_node} a node, and the run has "
            f"{pool.gpus}, {pool.gpus_per_node} a node",
            "give the cluster that the run began on",
        )


def _hold_to(nodes: Nodes, run: str, *, begun: bool) -> None:
    """Note in its storage which nodes a run begins on, and refuse others when it goes on.

    Endpoints may change: they are only the way to a node.
    """
    remedy = "give the cluster that the run began on"
    mine = [
        {"name": node.name, "gpu_type": node.gpu_type, "gpus": [asdict(gpu) for gpu in node.gpus]}
        for node in nodes.nodes
    ]
    noted = nodes.storage / run / NODES
    if begun and not noted.exists():
        raise InputError(str(nodes.storage), f"holds nothing of run {run}", remedy)
    try:
        if not noted.exists():
            noted.parent.mkdir(exist_ok=True)
            write_text(noted, json.dumps(mine))
        found = json.loads(noted.read_text())
    except (OSError, ValueError) as error:
        raise InputError(
            str(noted), f"cannot be used: {error}", "let it be read and written"
        ) from None
    if found != mine:
        raise InputError("cluster", f"its nodes are not those that {noted} tells", remedy)


def _standing(state: RunState, clock_seconds: float, started: set[int]) -> Standing:
    beliefs = state.beliefs.items()
    return Standing(
        clock_seconds=clock_seconds,
        jobs=tuple(belief.spec for belief in state.beliefs.values()),
        leases=state.leases,
        epochs={job: int(sum(one.epochs for one in belief.observed)) for job, belief in beliefs},
        run_seconds={job: belief.run_seconds for job, belief in beliefs},
        started=frozenset(started),
    )


@contextmanager
def _running(
    prepared: Prepared,
    nodes: Nodes,
    writer: Writer,
    began: float,
    standing: Standing,
    *,
    begun: bool,
) -> Iterator[Run]:
    """A run on its nodes, for as long as it is driven."""
    place = DockerPlace(nodes, WallClock(began))
    with only_scheduler(nodes, writer.run):
        _hold_to(nodes, writer.run, begun=begun)
        try:
            with prepared.under_way(place, writer, writer.run, standing) as run:
                yield run
        except Interrupted as error:
            remedy = f"its containers run on; {error.remedy} --cluster FILE"
            raise Interrupted(error.place, error.problem, remedy) from None
