"""Execution of a campaign: status of its cells, retries, and artifacts in Prefect's UI.

The warehouse, not Prefect, records which cells are finished. A restarted campaign therefore runs
only missing cells, even if the Prefect server and its database are gone.
"""

import hashlib
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture, as_completed

from flows.campaigns import Runner
from flows.campaigns.cells import CampaignCell, CellStarts, expand_cells, finish_cell, make_cell_key
from flows.campaigns.plan import CampaignPlan
from flows.campaigns.runners import is_lost_worker, keep_quiet, make_task_runner, stop_processes
from flows.campaigns.summary import summarize
from flows.prefect_server.progress_artifact import ProgressArtifact
from flows.runs.code_version import hash_code
from flows.runs.simulation import Watch
from predictor.errors import Interrupted, ShockwaveError
from tasks.record import Start
from tasks.run import Run
from warehouse.analytics.catalog import build
from warehouse.store.campaigns import (
    CellStore,
    FinishedCell,
    write_cells,
    write_plan,
)
from warehouse.store.files import CellRow, CellStatus

TRIES = 3
"""Attempts per cell if its worker dies. An engineering choice."""

STOP_SECONDS = 30.0
"""Timeout for a run to stop at the end of its current round. An engineering bound."""

CellWatch = Callable[[int, int, float], None]
"""Takes the numbers of ended and of all cells, and the share of jobs in ended cells; called at the
start, at most once a second, and at the end."""

REPORT_SECONDS = 1.0
"""Minimum interval between progress reports, whose cost grows with the number of cells. An
engineering choice."""

SHOWN = ("cell", "status", "run", "seconds", "reason")
"""Fields of the cells that Prefect's UI shows."""

_round_watchers: list[Watch] = []
_cell_watchers: list[CellWatch] = []
_stop = Event()


@contextmanager
def watch_campaigns(
    *, rounds: Watch | None = None, cells: CellWatch | None = None
) -> Iterator[None]:
    """Report the progress of this process's campaigns to callbacks within the context.

    Args:
        rounds: Called for each round of the cells that run in this process.
        cells: See `CellWatch`.
    """
    before = list(_round_watchers), list(_cell_watchers)
    _round_watchers.extend(filter(None, [rounds]))
    _cell_watchers.extend(filter(None, [cells]))
    try:
        yield
    finally:
        _round_watchers[:], _cell_watchers[:] = before


def _watch(start: Start) -> Callable[[Run], None]:
    if _stop.is_set():
        raise Interrupted("cell", "not started", "run the campaign again")
    callbacks = [watch(start) for watch in _round_watchers]

    def progress(run: Run) -> None:
        for callback in callbacks:
            callback(run)
        if _stop.is_set():
            raise KeyboardInterrupt  # then the run's error names the command that resumes it

    return progress


@task(
    name="simulate",
    task_run_name="{cell.name}",
    tags=["shockwave", "cell"],
    cache_policy=NO_CACHE,  # the warehouse records which cells are finished
)
def run_cell(cell: CampaignCell, key: str, warehouse: Path, fresh: bool) -> FinishedCell:
    """Finish a cell on a worker."""
    if multiprocessing.parent_process() is not None:
        keep_quiet()  # otherwise Prefect logs a line for each cell
    return finish_cell(cell, key, warehouse, fresh=fresh, watch=_watch)


def campaign_id(plan: CampaignPlan) -> str:
    """Return a campaign's id: its name and the first digits of its hash."""
    return f"{plan.name}-{hashlib.sha256(plan.model_dump_json().encode()).hexdigest()[:6]}"


class CampaignExecution:
    """A running campaign: its cells and their status; a fresh one runs finished cells again.

    Raises:
        ShockwaveError: The plan or the warehouse is invalid.
    """

    def __init__(self, plan: CampaignPlan, warehouse: Path, fresh: bool) -> None:
        self.id = campaign_id(plan)
        self.rows: dict[str, CellRow] = {}
        self._warehouse, self._fresh = warehouse, fresh
        self._cells = {cell.name: cell for cell in expand_cells(plan)}
        self._jobs: dict[str, int] = {}
        self._reported_at = -math.inf
        build(warehouse)
        write_plan(warehouse, self.id, "plan.json", plan.model_dump_json(indent=2))
        starts, store = CellStarts(warehouse), CellStore(warehouse)
        starts.history(plan.history)
        for cell in self._cells.values():
            self.rows[cell.name] = self._row(cell, starts, store)
        self._progress = ProgressArtifact(f"progress-{self._slug}")

    def _row(self, cell: CampaignCell, starts: CellStarts, store: CellStore) -> CellRow:
        """Return the status of a cell at the campaign's start."""
        row = CellRow(
            campaign=self.id,
            cell=cell.name,
            run="",
            policy=cell.policy,
            workload=cell.workload,
            cluster=cell.cluster,
            options=cell.options,
            seed=cell.seed,
            status=CellStatus.PENDING,
            hash="",
            seconds=0.0,
            key="",
            reason="",
        )
        try:
            start = starts.start(cell)
        except ShockwaveError as error:
            return replace(row, status=CellStatus.FAILED, reason=str(error))
        self._jobs[cell.name] = len(start.workload.specs)
        row = replace(row, key=make_cell_key(start, hash_code(start.header.settings)))
        result = None if self._fresh else store.find_finished(row.key)
        return row if result is None else _finished(row, result)

    @property
    def _slug(self) -> str:
        return self.id.replace(".", "-")  # artifact keys cannot contain dots

    @property
    def _waiting(self) -> list[CampaignCell]:
        """Unfinished cells, those with the most jobs first."""
        waiting = [name for name, row in self.rows.items() if row.status is CellStatus.PENDING]
        return [self._cells[name] for name in sorted(waiting, key=lambda name: -self._jobs[name])]

    @property
    def _share(self) -> float:
        jobs = sum(self._jobs.values())
        waiting = sum(self._jobs[cell.name] for cell in self._waiting)
        return 1.0 - waiting / jobs if jobs else 1.0

    @property
    def _ended_cells(self) -> int:
        return len(self.rows) - len(self._waiting)

    @property
    def _percent(self) -> float:
        return 100.0 * self._ended_cells / len(self.rows)

    @property
    def _progress_text(self) -> str:
        return f"{self._ended_cells} of {len(self.rows)} cells of {self.id}"

    def report(self) -> None:
        """Write the status of the cells, update the artifact, and call the watchers."""
        rows = list(self.rows.values())
        write_cells(self._warehouse, self.id, rows)
        self._progress.update(self._percent, self._progress_text)
        for watch in _cell_watchers:
            watch(self._ended_cells, len(rows), self._share)
        self._reported_at = time.monotonic()

    def run_all(self, runner: Runner, workers: int, address: str | None) -> None:
        """Run the pending cells; retry a cell whose worker died.

        Raises:
            Interrupted: The user stopped it.
        """
        try:
            for last in (*[False] * (TRIES - 1), True):
                if self._waiting:
                    self._run_waiting(runner, workers, address, last)
        finally:
            self.report()

    def _run_waiting(self, runner: Runner, workers: int, address: str | None, last: bool) -> None:
        _stop.clear()
        with make_task_runner(runner, min(workers, len(self._waiting)), address) as pool:
            try:
                futures = {self._submit(pool, cell): cell.name for cell in self._waiting}
                for future in as_completed(list(futures)):
                    self._ended(futures[future], future, last)
            except KeyboardInterrupt:
                _stop.set()
                stop_processes(runner)
                raise self._interrupted(runner, list(futures)) from None

    def _interrupted(
        self, runner: Runner, futures: Sequence[PrefectFuture[FinishedCell]]
    ) -> Interrupted:
        """Return the error that says what to resume: the campaign or, if fresh, the run."""
        if self._fresh and runner is Runner.THREADS:
            for future in futures:
                error = future.result(timeout=STOP_SECONDS, raise_on_failure=False)
                if isinstance(error, Interrupted) and error.place.startswith("run "):
                    return error
        return Interrupted(
            f"campaign {self.id!r}",
            f"interrupted with {self._progress_text} done",
            "run it again: finished cells are kept",
        )

    def _submit(self, pool: Any, cell: CampaignCell) -> PrefectFuture[FinishedCell]:
        future: PrefectFuture[FinishedCell] = pool.submit(
            run_cell,
            parameters={
                "cell": cell,
                "key": self.rows[cell.name].key,
                "warehouse": self._warehouse,
                "fresh": self._fresh,
            },
        )
        return future

    def _ended(self, name: str, future: PrefectFuture[FinishedCell], last: bool) -> None:
        """Record a cell's end, unless its worker died and the cell is retried."""
        try:
            self.rows[name] = _finished(self.rows[name], future.result())
        except Exception as error:
            if is_lost_worker(error) and not last:
                return
            reason = f"its worker died {TRIES} times" if is_lost_worker(error) else str(error)
            self.rows[name] = replace(
                self.rows[name], status=CellStatus.FAILED, reason=reason or type(error).__name__
            )
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self.report()

    def publish(self) -> None:
        """Show the summary and the cells in Prefect's UI."""
        groups = summarize(self._warehouse, self.rows.values())
        if groups:
            create_table_artifact(
                table=[group.shown() for group in groups],
                key=f"summary-{self._slug}",
                description=f"Campaign {self.id}: means over seeds ± 95 % confidence",
            )
        cells = [{name: getattr(row, name) for name in SHOWN} for row in self.rows.values()]
        create_table_artifact(
            table=cells, key=f"cells-{self._slug}", description=self._progress_text
        )


def _finished(row: CellRow, cell: FinishedCell) -> CellRow:
    return replace(
        row,
        status=CellStatus.FINISHED,
        run=cell.run,
        hash=cell.hash,
        seconds=cell.seconds,
    )
