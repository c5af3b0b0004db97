"""A campaign as one Prefect flow run, with a task run for each cell."""

import multiprocessing
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.futures import as_completed
from prefect.task_runners import TaskRunner
from pydantic import Field

from flows.campaigns import Runner
from flows.campaigns.cells import CampaignCell
from flows.campaigns.execution import (
    CampaignExecution,
    CellFuture,
    Workers,
    run_cell,
    watch_campaigns,
)
from flows.campaigns.plan import CampaignPlan
from flows.campaigns.runners import check_runner
from flows.campaigns.summary import summarize
from flows.campaigns.task_runners import keep_quiet, make_task_runner
from flows.prefect_server.blocks import WarehouseField, find_warehouse
from flows.prefect_server.crashes import claim
from flows.prefect_server.failures import log_errors_once
from flows.prefect_server.own_server import run_own_server
from flows.prefect_server.prefect_driver import embedded_prefect
from flows.prefect_server.progress_artifact import ProgressArtifact
from warehouse.store.campaigns import FinishedCell
from warehouse.store.files import CellStatus

SHOWN = ("cell", "status", "run", "seconds", "reason")
"""Fields of the cells that Prefect's UI shows."""


@task(
    name="simulate",
    task_run_name="{cell.name}",
    tags=["shockwave", "cell"],
    cache_policy=NO_CACHE,  # the warehouse records which cells are finished
)
def run_cell_task(cell: CampaignCell, key: str, warehouse: Path, fresh: bool) -> FinishedCell:
    """Finish a cell on a worker."""
    if multiprocessing.parent_process() is not None:
        keep_quiet()  # otherwise Prefect logs a line for each cell
    return run_cell(cell, key, warehouse, fresh)


class TaskWorkers:
    """Workers of one of Prefect's task runners, with a task run for each cell."""

    def __init__(self, runner: TaskRunner[Any]) -> None:
        self._runner = runner

    def submit(self, cell: CampaignCell, key: str, warehouse: Path, fresh: bool) -> CellFuture:
        """Submit a cell; see `run_cell_task`."""
        values = {"cell": cell, "key": key, "warehouse": warehouse, "fresh": fresh}
        future: CellFuture = self._runner.submit(run_cell_task, parameters=values)
        return future

    def as_completed(self, futures: Iterable[CellFuture]) -> Iterable[CellFuture]:
        """Return the cells as they end."""
        return as_completed(list(futures))  # type: ignore[arg-type]  # all are of the runner


@flow(
    name="campaign",
    description="Policies × workloads × clusters × seeds × options on the virtual cluster.",
    flow_run_name="campaign {plan.name}",
    on_running=[claim],
)
def campaign(
    plan: Annotated[CampaignPlan, Field(title="Plan", description="What is run.")],
    runner: Annotated[
        Runner, Field(title="Runner", description="What runs the cells.")
    ] = Runner.PROCESSES,
    workers: Annotated[
        int,
        Field(title="Workers", description="Cells at the same time; 0: one a core.", ge=0, le=1024),
    ] = 0,
    address: Annotated[
        str | None,
        Field(
            title="Address",
            description="Of an existing Dask scheduler or Ray head node; else one is started here.",
        ),
    ] = None,
    warehouse: WarehouseField = None,
    fresh: Annotated[
        bool, Field(title="Fresh", description="Run finished cells again as well.")
    ] = False,
) -> str:
    """Run the unfinished cells of a campaign and summarise its figures; return its id.

    Args:
        plan: The campaign.
        runner: The task runner that executes the cells.
        workers: Number of cells to run in parallel; 0 for the number of cores.
        address: Address of an existing Dask scheduler or Ray head node.
        warehouse: Destination of the runs, by default that of a block; all workers must reach it
            by this path.
        fresh: Whether to run finished cells again.

    Raises:
        CellsFailed: Some cells failed; all others ran to completion.
        Interrupted: The user stopped it.
        ShockwaveError: The plan or the warehouse is invalid.
    """
    log_errors_once()
    warehouse = find_warehouse(warehouse)
    check_runner(runner, address)
    execution = CampaignExecution(plan, warehouse.resolve(), fresh)
    slug = execution.id.replace(".", "-")  # artifact keys cannot contain dots
    progress = ProgressArtifact(f"progress-{slug}")

    def show(ended: int, cells: int, share: float) -> None:
        progress.update(100.0 * ended / cells, f"{ended} of {cells} cells of {execution.id}")

    @contextmanager
    def open_workers(number: int) -> Iterator[Workers]:
        with make_task_runner(runner, number, address) as opened:
            yield TaskWorkers(opened)

    with watch_campaigns(cells=show):
        execution.run_all(runner, workers, open_workers)
    _publish(execution, warehouse, slug)
    execution.check()
    return execution.id


def _publish(execution: CampaignExecution, warehouse: Path, slug: str) -> None:
    """Show the summary and the cells in Prefect's UI."""
    rows = execution.rows.values()
    groups = summarize(warehouse, rows)
    if groups:
        create_table_artifact(
            table=[group.shown() for group in groups],
            key=f"summary-{slug}",
            description=f"Campaign {execution.id}: means over seeds ± 95 % confidence",
        )
    cells = [{name: getattr(row, name) for name in SHOWN} for row in rows]
    ended = sum(row.status is not CellStatus.PENDING for row in rows)
    about = f"{ended} of {len(rows)} cells of {execution.id}"
    create_table_artifact(table=cells, key=f"cells-{slug}", description=about)


def run_campaign_in_prefect(
    plan: CampaignPlan,
    runner: Runner,
    workers: int,
    address: str | None,
    warehouse: Path,
    fresh: bool = False,
) -> str:
    """Run a campaign from a program as a flow run; see `campaign`.

    If no Prefect server is configured, it starts one.
    """
    with embedded_prefect(), run_own_server():
        return campaign(plan, runner, workers, address, warehouse, fresh)
