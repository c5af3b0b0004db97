"""Execution of a campaign: status of its cells, and retries.

The warehouse records which cells are finished, so a restarted campaign runs only missing cells.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Protocol

from flows.campaigns import Runner
from flows.campaigns.cells import CampaignCell, CellStarts, expand_cells, finish_cell, make_cell_key
from flows.campaigns.plan import CampaignPlan
from flows.campaigns.runners import is_lost_worker, open_executor, stop_processes
from flows.runs.code_version import hash_code
from flows.runs.simulation import Watch
from predictor.errors import Interrupted, ShockwaveError
from tasks.record import Start
from tasks.run import Run
from warehouse.analytics.catalog import build
from warehouse.analytics.marts import keep_fast
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


def run_cell(cell: CampaignCell, key: str, warehouse: Path, fresh: bool) -> FinishedCell:
    """Finish a cell on a worker."""
    return finish_cell(cell, key, warehouse, fresh=fresh, watch=_watch)


class CellFuture(Protocol):
    """A submitted cell."""

    def result(self, timeout: float | None = None) -> FinishedCell:
        """Wait for the cell's end; raise its error, or `TimeoutError` after that many seconds."""
        ...


class Workers(Protocol):
    """What runs cells, several at a time."""

    def submit(self, cell: CampaignCell, key: str, warehouse: Path, fresh: bool) -> CellFuture:
        """Submit a cell; see `run_cell`."""
        ...

    def as_completed(self, futures: Iterable[CellFuture]) -> Iterable[CellFuture]:
        """Return the cells as they end."""
        ...


OpenWorkers = Callable[[int], AbstractContextManager[Workers]]
"""Starts that many workers, and stops them at the end of the context."""


class LocalWorkers:
    """Threads or processes of this machine."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, cell: CampaignCell, key: str, warehouse: Path, fresh: bool) -> CellFuture:
        """Submit a cell; see `run_cell`."""
        try:
            return self._executor.submit(run_cell, cell, key, warehouse, fresh)
        except BrokenExecutor as error:  # a worker died meanwhile, so this cell is tried again
            lost: Future[FinishedCell] = Future()
            lost.set_exception(error)
            return lost

    def as_completed(self, futures: Iterable[CellFuture]) -> Iterable[CellFuture]:
        """Return the cells as they end."""
        return as_completed(futures)  # type: ignore[arg-type]  # all are of the executor


class CellsFailed(ShockwaveError):
    """A campaign ended, but some of its cells failed."""

    exit_code = 1


def campaign_id(plan: CampaignPlan) -> str:
    """Return a campaign's id: its name and the first digits of its hash."""
    return f"{plan.name}-{hashlib.sha256(plan.model_dump_json().encode()).hexdigest()[:6]}"


class CampaignExecution:
    """A running campaign: its cells and their status; with `fresh`, finished cells run again.

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

    def report(self) -> None:
        """Write the status of the cells, and call the watchers."""
        rows = list(self.rows.values())
        write_cells(self._warehouse, self.id, rows)
        for watch in _cell_watchers:
            watch(self._ended_cells, len(rows), self._share)
        self._reported_at = time.monotonic()

    def run_all(self, runner: Runner, workers: int, open_workers: OpenWorkers) -> None:
        """Run the pending cells; retry a cell whose worker died.

        Args:
            runner: Kind of the workers.
            workers: Most cells at the same time; 0 for the number of cores.
            open_workers: Starts the workers.

        Raises:
            Interrupted: The user stopped it.
        """
        self.report()
        try:
            for last in (*[False] * (TRIES - 1), True):
                if self._waiting:
                    self._run_waiting(runner, workers, open_workers, last)
        finally:
            self.report()
        keep_fast(self._warehouse)

    def check(self) -> None:
        """Refuse a campaign with failed cells.

        Raises:
            CellsFailed: Some cells failed.
        """
        failed = [row for row in self.rows.values() if row.status is CellStatus.FAILED]
        if failed:
            reasons = ", ".join(f"{row.cell} ({row.reason})" for row in failed)
            raise CellsFailed(
                f"campaign {self.id!r}",
                f"{len(failed)} of {len(self.rows)} cells failed: {reasons}",
                "correct them and run it again; finished cells are kept",
            )

    def _run_waiting(
        self, runner: Runner, workers: int, open_workers: OpenWorkers, last: bool
    ) -> None:
        _stop.clear()
        waiting = self._waiting
        with open_workers(min(workers or os.cpu_count() or 1, len(waiting))) as pool:
            futures: dict[CellFuture, str] = {}
            try:
                for cell in waiting:
                    key = self.rows[cell.name].key
                    futures[pool.submit(cell, key, self._warehouse, self._fresh)] = cell.name
                for future in pool.as_completed(list(futures)):
                    self._ended(futures[future], future, last)
            except KeyboardInterrupt:
                _stop.set()
                stop_processes(runner)
                raise self._interrupted(runner, futures) from None

    def _interrupted(self, runner: Runner, futures: Iterable[CellFuture]) -> Interrupted:
        """Return the error that says what to resume: the campaign or, if fresh, the run."""
        if self._fresh and runner is Runner.THREADS:
            for future in futures:
                try:
                    future.result(timeout=STOP_SECONDS)
                except Interrupted as error:
                    if error.place.startswith("run "):
                        return error
                except Exception:  # another cell's failure is in the table of cells
                    continue
        return Interrupted(
            f"campaign {self.id!r}",
            f"interrupted with {self._ended_cells} of {len(self.rows)} cells of {self.id} done",
            "run it again: finished cells are kept",
        )

    def _ended(self, name: str, future: CellFuture, last: bool) -> None:
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


def run_campaign(
    plan: CampaignPlan, runner: Runner, workers: int, warehouse: Path, fresh: bool = False
) -> str:
    """Run the unfinished cells of a campaign in threads or processes; return its id.

    Args:
        plan: The campaign.
        runner: Threads or processes.
        workers: Most cells at the same time; 0 for the number of cores.
        warehouse: Destination of the runs.
        fresh: Whether to run finished cells again.

    Raises:
        CellsFailed: Some cells failed; all others ran to completion.
        Interrupted: The user stopped it.
        ShockwaveError: The plan or the warehouse is invalid.
    """

    @contextmanager
    def open_workers(number: int) -> Iterator[Workers]:
        with open_executor(runner, number) as executor:
            yield LocalWorkers(executor)

    execution = CampaignExecution(plan, warehouse.resolve(), fresh)
    execution.run_all(runner, workers, open_workers)
    execution.check()
    return execution.id


def _finished(row: CellRow, cell: FinishedCell) -> CellRow:
    return replace(
        row,
        status=CellStatus.FINISHED,
        run=cell.run,
        hash=cell.hash,
        seconds=cell.seconds,
    )
