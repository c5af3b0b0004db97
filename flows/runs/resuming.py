"""Resume runs after their last recorded round, by replaying their rounds."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from containers.runtime import EventKind, Lease
from flows.runs.code_version import describe_changed_plugins
from flows.runs.simulation import Driver, Progress, delay_of, finish, prepare
from flows.runs.snapshot import RunProgress
from flows.runs.start import check_recorded
from predictor.errors import InputError, WarehouseError
from tasks.record import ON_MACHINES, RoundRecord, Start
from tasks.round import collect, run_round
from tasks.run import Run
from warehouse.analytics.catalog import build
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer


def resume(
    name: str,
    warehouse: Path,
    *,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Resume an unfinished run after its last recorded round.

    The records determine the state. The recorded decisions are replayed to restore the virtual
    cluster, unless its jobs keep running on their own (`RuntimeFactory.live`).

    Raises:
        Interrupted: The user stopped it.
        ShockwaveError: The run does not exist, or its records are damaged.
    """
    reader = Reader(warehouse)
    start = reader.start(name)
    header = start.header
    if header.settings.forked:
        raise InputError(f"run {name!r}", "is a fork", "fork it anew with shockwave run whatif")
    if header.service:
        raise InputError(
            f"run {name!r}", "is the run of a service", "continue it with: shockwave up"
        )
    if header.settings.runtime in ON_MACHINES:
        raise InputError(f"run {name!r}", "runs on a cluster's machines", "give its cluster file")
    check_plugins(name, start, reader)
    check_recorded(name, header.settings)
    build(warehouse)
    with (
        Writer(warehouse, start, run=name, delay_seconds=delay_of(driver)) as writer,
        _going_on(start, reader, writer) as run,
    ):
        return finish(run, warehouse, writer, driver, progress, rounds)


@contextmanager
def _going_on(start: Start, reader: Reader, writer: Writer) -> Iterator[Run]:
    """Open a run on its runtime, after its last recorded round."""
    prepared, recorded = prepare(start), reader.records(writer.run)
    if prepared.place.live:
        at = RunProgress(prepared.state).after_all(start.header, recorded)
        prepared, resume_point = prepared.at(at)
        with prepared.open_run(writer, writer.run, resume_point) as run:
            yield run
        return
    with prepared.open_run(writer, writer.run) as run:
        for record, digest in recorded:
            repeat_round(run, record, digest)
        yield run


def check_plugins(name: str, start: Start, reader: Reader) -> None:
    """Refuse to resume a run whose plugins have changed since its beginning.

    Raises:
        InputError: A plugin has changed.
    """
    for change in describe_changed_plugins(start.header.settings, reader.packages(name)):
        raise InputError(
            f"run {name!r}",
            change,
            "install the versions that it began with, or fork it: shockwave run whatif",
        )


def repeat_round(run: Run, record: RoundRecord, digest: str) -> None:
    """Replay a recorded round, without solving it.

    Raises:
        WarehouseError: The virtual cluster does not reproduce the recorded observation.
    """
    if collect(run).observation != record.observation:
        raise WarehouseError(
            f"run {run.name!r}, round {record.round}",
            "the virtual cluster does not reproduce the recorded observation",
            "resume it with the version that started it",
        )
    preempted = [event for event in record.events if event.kind is EventKind.PREEMPTED]
    launched = [event for event in record.events if event.kind is not EventKind.PREEMPTED]
    run.runtime.preempt({event.job_id: event.reason for event in preempted})
    run.runtime.launch(record.round, [Lease(event.job_id, event.gpus) for event in launched])
    run.follow(record, digest)
