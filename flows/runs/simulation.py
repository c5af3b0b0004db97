"""Runs on the virtual cluster: start and resume."""

import math
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from shlex import quote

from containers.runtime import EventKind, Lease
from flows.runs.garbage import rare_collections
from flows.runs.prepared import prepare, virtual_place
from predictor.errors import InputError, Interrupted, WarehouseError
from tasks.chain import check_chain
from tasks.record import Package, RoundRecord, RunHeader, RuntimeKind
from tasks.round import Round, Run, collect, run_round
from tasks.state import advance
from warehouse.analytics.catalog import build
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer

Driver = Callable[[Run], Round]
"""Calls the steps of one round."""

Progress = Callable[[Run], None]
"""Told after every round."""


def simulate(
    header: RunHeader,
    warehouse: Path,
    *,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Run a workload on the virtual cluster, to its end if nothing else is said.

    Args:
        header: What to run.
        warehouse: Where its records go.
        driver: How rounds are called.
        progress: Told after every round.
        rounds: How many rounds to run before it is left to be resumed.

    Returns:
        The run's id.

    Raises:
        Interrupted: The user stopped it.
        ShockwaveError: The warehouse cannot be written, or the profile lacks an entry.
    """
    prepared = prepare(header)
    build(warehouse)
    with (
        Writer(warehouse, header, packages=packages()) as writer,
        prepared.under_way(virtual_place(header), writer, writer.run) as run,
    ):
        return finish(run, warehouse, writer, driver, progress, rounds)


def resume(
    name: str,
    warehouse: Path,
    *,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Go on from the last recorded round of an unfinished run.

    The virtual cluster is brought to where it was by carrying out the recorded
    decisions again; the state is the fold over the records.

    Args:
        name: The run.
        warehouse: Where it is.
        driver: How rounds are called.
        progress: Told after every round.
        rounds: How many rounds to run before it is left again; to its end by default.

    Raises:
        Interrupted: The user stopped it.
        ShockwaveError: There is no such run, or its records are damaged.
    """
    reader = Reader(warehouse)
    header = reader.header(name)
    if header.settings.forked:
        raise InputError(f"run {name!r}", "is a fork", "fork it anew with shockwave whatif")
    if header.settings.runtime is RuntimeKind.DOCKER:
        raise InputError(f"run {name!r}", "runs in containers", "give its cluster file")
    build(warehouse)
    with (
        Writer(warehouse, header, run=name) as writer,
        prepare(header).under_way(virtual_place(header), writer, name) as run,
    ):
        recorded = reader.records(name)
        check_chain(name, header, recorded)
        for record, _ in recorded:
            carry_out(run, record)
        return finish(run, warehouse, writer, driver, progress, rounds)


def finish(
    run: Run,
    warehouse: Path,
    writer: Writer,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Run a run from where it is to its end, and close it; returns its id.

    Args:
        run: The run.
        warehouse: Where it is.
        writer: Takes its records.
        driver: How rounds are called.
        progress: Told after every round.
        rounds: How many rounds to run before it is left open; to its end by default.

    Raises:
        Interrupted: The user stopped it.
        ShockwaveError: The warehouse cannot be written, or the profile lacks an entry.
    """
    last = math.inf if rounds is None else run.state.round + rounds
    try:
        with rare_collections():
            while not run.finished and run.state.round < last:
                driver(run)
                progress(run)
        if run.finished:
            writer.compact()
    except KeyboardInterrupt:
        raise Interrupted(
            f"run {run.name!r}",
            f"interrupted in round {run.state.round}",
            f"go on with: shockwave resume {run.name} --warehouse {quote(str(warehouse))}",
        ) from None
    return run.name


def carry_out(run: Run, record: RoundRecord) -> None:
    """Do again what a record says was done, without deciding it again.

    Raises:
        WarehouseError: The virtual cluster does not repeat it.
    """
    this = Round()
    collect(run, this)
    if this.observation != record.observation:
        raise WarehouseError(
            f"run {run.name!r}, round {record.round}",
            "the virtual cluster does not repeat what was recorded",
            "resume it with the version that started it",
        )
    preempted = [event for event in record.events if event.kind is EventKind.PREEMPTED]
    launched = [event for event in record.events if event.kind is not EventKind.PREEMPTED]
    run.runtime.preempt({event.job_id: event.reason for event in preempted})
    run.runtime.launch(record.round, [Lease(event.job_id, event.gpus) for event in launched])
    run.state = advance(run.header, run.state, record)


def packages() -> tuple[Package, ...]:
    """The packages that runs are made with, and their versions."""
    names = ("shockwave", "duckdb", "gurobipy", "highspy", "numpy", "pyarrow", "torch")
    return (
        Package("python", platform.python_version()),
        *(Package(name, version(name)) for name in names),
    )
