"""A campaign as one Prefect flow run, with a task run for each cell."""

import os
from pathlib import Path
from typing import Annotated

from prefect import flow
from pydantic import Field

from flows.campaigns import Runner
from flows.campaigns.execution import CampaignExecution
from flows.campaigns.plan import CampaignPlan
from flows.campaigns.runners import check_runner
from flows.prefect_server.blocks import WarehouseField, find_warehouse
from flows.prefect_server.crashes import claim
from flows.prefect_server.failures import log_errors_once
from flows.prefect_server.own_server import run_own_server
from flows.prefect_server.prefect_driver import embedded_prefect
from predictor.errors import ShockwaveError
from warehouse.analytics.marts import keep_fast
from warehouse.store.files import CellStatus


class CellsFailed(ShockwaveError):
    """A campaign ended, but some of its cells failed."""

    exit_code = 1


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
    execution.report()
    execution.run_all(runner, workers or os.cpu_count() or 1, address)
    keep_fast(warehouse)
    execution.publish()
    failed = [row for row in execution.rows.values() if row.status is CellStatus.FAILED]
    if failed:
        reasons = ", ".join(f"{row.cell} ({row.reason})" for row in failed)
        raise CellsFailed(
            f"campaign {execution.id!r}",
            f"{len(failed)} of {len(execution.rows)} cells failed: {reasons}",
            "correct them and run it again; finished cells are kept",
        )
    return execution.id


def run_campaign(
    plan: CampaignPlan,
    runner: Runner,
    workers: int,
    address: str | None,
    warehouse: Path,
    fresh: bool = False,
) -> str:
    """Run a campaign from a program; see `campaign`.

    If no Prefect server is configured, it starts one.
    """
    with embedded_prefect(), run_own_server():
        return campaign(plan, runner, workers, address, warehouse, fresh)
