"""Maintenance as a flow: tidies Prefect's flow runs and the warehouse, and shows what it did."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prefect import flow, get_client, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterEndTime, FlowRunFilterTags
from prefect.exceptions import ObjectNotFound
from prefect.states import Completed

from flows.deployments.forms import MaintenanceForm
from flows.prefect_server.blocks import WarehouseField, find_warehouse
from flows.prefect_server.crashes import PAGE, claim, crash_dead_runs
from flows.prefect_server.failures import make_failed_state
from flows.prefect_server.prefect_driver import TAG
from predictor.errors import ShockwaveError
from tasks.prefect_tasks import RETRIED
from warehouse.analytics.compaction import compact_ended
from warehouse.analytics.marts import materialise
from warehouse.store.checks import check_warehouse
from warehouse.wording import counted

_tidy = task(
    tags=["shockwave", "maintenance"],
    cache_policy=NO_CACHE,
    persist_result=False,
    **RETRIED,
)


@_tidy
def delete_flow_runs(days: float) -> str:
    """Crash flow runs of dead processes; delete those that ended over `days` ago."""
    before = datetime.now(UTC) - timedelta(days=days)
    old = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[TAG]), end_time=FlowRunFilterEndTime(before_=before)
    )
    deleted = 0
    with get_client(sync_client=True) as client:
        crashed = crash_dead_runs(client)
        while found := client.read_flow_runs(flow_run_filter=old, limit=PAGE):
            for flow_run in found:
                with suppress(ObjectNotFound):  # Prefect's own service deleted it
                    client.delete_flow_run(flow_run.id)
            deleted += len(found)
    return f"{counted(deleted, 'flow run')} deleted, {crashed} set to Crashed"


@_tidy
def compact_runs(warehouse: Path) -> str:
    """Compact runs that ended without it."""
    return f"{counted(len(compact_ended(warehouse)), 'run')} compacted"


@_tidy
def copy_figures(warehouse: Path) -> str:
    """Copy the figures of ended runs, as `shockwave views` does."""
    return f"figures of {counted(materialise(warehouse), 'ended run')} copied"


@flow(
    name="maintenance",
    description="Delete old flow runs, compact ended runs and copy their figures.",
    flow_run_name="maintenance",
    on_running=[claim],
)
def maintenance(form: MaintenanceForm, warehouse: WarehouseField = None) -> State[Any]:
    """Tidy Prefect and the warehouse.

    Args:
        form: Days for which flow runs are kept.
        warehouse: Folder that keeps all runs; by default that of a block.

    Returns:
        Completed with what was done; failed with the reason.
    """
    warehouse = find_warehouse(warehouse)
    try:
        check_warehouse(warehouse)
        done = [delete_flow_runs(form.days), compact_runs(warehouse), copy_figures(warehouse)]
    except ShockwaveError as error:
        return make_failed_state(form.named(error))
    create_table_artifact(table=[{"done": each} for each in done], key="maintenance")
    return Completed(message="; ".join(done))
