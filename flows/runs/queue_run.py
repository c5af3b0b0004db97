"""Start and resume runs of users' own Slurm jobs."""

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import count, takewhile
from pathlib import Path

from containers.clock import RunClock
from containers.leasing.engine import Refused
from containers.runtime import ResumePoint
from containers.slurm.brain import SlurmBrain
from containers.slurm.claim import claim_partition
from containers.slurm.commands import Commands
from containers.slurm.hand_over import read_config, read_kill_wait
from containers.slurm.inventory import SlurmNode, list_nodes, sort_nodes
from containers.slurm.parsing import SlurmAway
from flows.runs.code_version import list_packages
from flows.runs.resuming import check_plugins
from flows.runs.simulation import make_terms, prepare
from flows.runs.snapshot import RunProgress, SnapshotSink, read_progress, read_snapshot
from predictor.errors import InputError
from tasks.record import Package, Start
from tasks.run import Run
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer

NODE = "Slurm node "
"""Prefix of the names of packages that number the partition's nodes; the version is a name."""


def read_partition(partition: str, commands: Commands) -> tuple[SlurmNode, ...]:
    """Return the nodes of a partition that have GPUs, as a cluster numbers them.

    Raises:
        InputError: Slurm does not answer, or a node has GPUs of several types.
    """
    try:
        return sort_nodes(list_nodes(commands, partition))
    except (SlurmAway, Refused) as error:
        remedy = f"see shockwave slurm check --partition {partition}"
        raise InputError("partition", str(error), remedy) from None


def read_kill_seconds(commands: Commands) -> int:
    """Return a Slurm's time from SIGTERM to SIGKILL, in seconds.

    Raises:
        InputError: Slurm does not answer.
    """
    try:
        return read_kill_wait(read_config(commands.call("scontrol", "show", "config")))
    except (SlurmAway, Refused) as error:
        remedy = "start Slurm's controller, or see shockwave slurm check"
        raise InputError("partition", str(error), remedy) from None


def _claim(commands: Commands, partition: str, owner: str, node: str) -> None:
    """Claim a partition; see `claim_partition`.

    Raises:
        InputError: Another service has it, or Slurm does not answer.
    """
    try:
        claim_partition(commands, partition, owner, node)
    except (SlurmAway, Refused) as error:
        remedy = f"see shockwave slurm check --partition {partition}"
        raise InputError("partition", f"cannot be claimed: {error}", remedy) from None


def name_owner(reader: Reader, run: str) -> str:
    """Return the owner of a run's claim: a name that no run of another warehouse has."""
    return f"{run}-{reader.created_at(run).timestamp() * 1000:.0f}"


def list_numbered(packages: Iterable[Package]) -> list[str]:
    """Return the names of a run's nodes in their order; empty for a run of another kind."""
    found = {part.name: part.version for part in packages}
    names = (found.get(f"{NODE}{place}", "") for place in count())
    return list(takewhile(bool, names))


@contextmanager
def open_queue_run(
    name: str, start: Start, commands: Commands, partition: str, warehouse: Path, snapshots: Path
) -> Iterator[tuple[Run, SlurmBrain]]:
    """Open a run of a partition's jobs, new or after its last recorded round.

    A new run has no `name` and begins with `start`.

    Raises:
        ShockwaveError: The records are damaged, or Slurm does not answer.
    """
    reader = Reader(warehouse)
    if name:
        start = reader.original_start(name)
        check_plugins(name, start, reader)
    nodes = [node.name for node in read_partition(partition, commands)]
    numbered = tuple(Package(f"{NODE}{place}", node) for place, node in enumerate(nodes))
    if not name:
        _claim(commands, partition, "", "")  # it is refused before its records begin
    packages = () if name else (*list_packages(start.header.settings), *numbered)
    with Writer(warehouse, start, run=name or None, packages=packages) as writer:
        prepared, resume_point, began = prepare(start), ResumePoint(), time.time()
        position = RunProgress(prepared.state)
        if name:
            past = read_snapshot(snapshots, name)
            position, recorded = read_progress(reader, start, name, past)
            position = position.after_all(start.header, recorded)
            prepared, resume_point = prepared.at(position)
            began = min(reader.created_at(name).timestamp(), began - resume_point.clock_seconds)
            nodes = list_numbered(reader.packages(name))
            if not nodes:
                problem = "this warehouse has a service that runs its jobs elsewhere"
                raise InputError("partition", problem, "give another warehouse")
        wait = read_kill_seconds(commands)
        _claim(commands, partition, name_owner(reader, writer.run), nodes[0])
        clock, terms = RunClock(time.time() - began), make_terms(start.header, writer.run)
        runtime = SlurmBrain(commands, partition, nodes, clock, terms, resume_point, wait)
        with closing(runtime):
            run = prepared.on(runtime, writer, writer.run)
            run.sink = SnapshotSink(writer, run, snapshots, position)
            yield run, runtime
