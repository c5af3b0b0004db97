"""Retries of tasks: transient errors of the storage, neither damage nor bad input."""

from collections.abc import Callable
from pathlib import Path

import pytest
from prefect.states import Failed

from flows.explain.replay import replay
from predictor.errors import ShockwaveError, WarehouseBusy, WarehouseError
from tasks.prefect_tasks import TASKS, should_retry
from tasks.round import record
from tests.runs import ended, write
from warehouse.store.durable import writing
from warehouse.store.folder import place_of
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer


def _a_missing_round(warehouse: Path, run: str) -> None:
    (place_of(warehouse, run) / "round=000001.parquet").unlink()
    replay(run, warehouse)


def _a_damaged_file(warehouse: Path, run: str) -> None:
    (place_of(warehouse, run) / "header.parquet").write_bytes(b"no Parquet")
    replay(run, warehouse)


def _no_such_run(warehouse: Path, run: str) -> None:
    replay(f"{run}0", warehouse)


def _refused_by_the_system(warehouse: Path, run: str) -> None:
    with writing(warehouse):
        (place_of(warehouse, run) / "header.parquet" / "below").touch()


def _held_by_another(warehouse: Path, run: str) -> None:
    start = Reader(warehouse).start(run)
    with Writer(warehouse, start, run=run):
        Writer(warehouse, start, run=run)


@pytest.mark.parametrize(
    ("fault", "again"),
    [
        (_a_missing_round, False),
        (_a_damaged_file, False),
        (_no_such_run, False),
        (_refused_by_the_system, True),
        (_held_by_another, True),
    ],
)
def test_only_what_may_pass_is_tried_again(
    tmp_path: Path, fault: Callable[[Path, str], None], again: bool
) -> None:
    made = ended("fifo")
    run = write(tmp_path, made.start, made.rounds[:3], compact=False)
    with pytest.raises(ShockwaveError) as caught:
        fault(tmp_path, run)
    assert should_retry(TASKS[record], None, Failed(data=caught.value)) is again  # type: ignore[arg-type]
    assert isinstance(caught.value, WarehouseBusy) is again
    assert issubclass(WarehouseBusy, WarehouseError)
