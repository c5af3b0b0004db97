"""Replay as a flow: shows differences in a table, and fails if there are any."""

from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.states import Completed, Failed

from flows.deployments.forms import MOST_SHOWN, ReplayForm
from flows.explain.replay import replay as replay_run
from flows.prefect_server.blocks import WarehouseField, find_warehouse
from flows.prefect_server.crashes import claim
from flows.prefect_server.failures import make_failed_state
from predictor.errors import ShockwaveError
from tasks.prefect_tasks import RETRIED
from tasks.replay import Comparison
from warehouse.wording import counted

LONGEST_SHOWN = 500
"""Most characters of a value in the table. A choice of layout."""


@task(
    name="compare rounds",
    task_run_name="compare rounds of {run}",
    tags=["shockwave", "replay"],
    cache_policy=NO_CACHE,
    persist_result=False,
    **RETRIED,
)
def compare_rounds(run: str, number: int | None, warehouse: Path) -> Comparison:
    """Predict and solve recorded rounds again."""
    return replay_run(run, warehouse, only=number)


@flow(
    name="replay",
    description="Predict and solve recorded rounds again; fails if anything comes out otherwise.",
    flow_run_name="replay {form.run}",
    on_running=[claim],
)
def replay(form: ReplayForm, warehouse: WarehouseField = None) -> State[Any]:
    """Replay a run and show what differs.

    Args:
        form: The run, and a round or all rounds.
        warehouse: Folder that keeps all runs; by default that of a block.

    Returns:
        Completed if all rounds are identical, else failed.
    """
    warehouse = find_warehouse(warehouse)
    try:
        comparison = compare_rounds(form.run, form.round, warehouse)
    except ShockwaveError as error:
        return make_failed_state(form.named(error))
    summary = _summary(form.run, comparison)
    create_table_artifact(
        table=_rows(comparison), key=f"replay-{form.run}", description=f"Differences. {summary}"
    )
    create_markdown_artifact(f"# Replay\n\n{summary}\n", key=f"replay-{form.run}-in-words")
    return Failed(message=summary) if comparison.differences else Completed(message=summary)


def _summary(run: str, comparison: Comparison) -> str:
    different = len({difference.round for difference in comparison.differences})
    if different:
        return f"{run}: {different} of {comparison.rounds} rounds differ"
    return f"{run}: {counted(comparison.rounds, 'round')} replayed, all identical byte for byte"


def _rows(comparison: Comparison) -> list[dict[str, Any]]:
    rows = [
        {
            "round": difference.round,
            "field": difference.field,
            "recorded": str(difference.recorded)[:LONGEST_SHOWN],
            "replayed": str(difference.replayed)[:LONGEST_SHOWN],
        }
        for difference in comparison.differences[:MOST_SHOWN]
    ]
    return rows or [{"rounds": comparison.rounds, "result": "identical"}]
