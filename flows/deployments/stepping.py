"""Simulation flows: `simulate` creates a run, `step` continues an unfinished run."""

from pathlib import Path

from prefect import flow
from prefect.client.schemas import State
from prefect.states import Completed

from flows.deployments.artifacts import show_headlines
from flows.deployments.forms import RoundForm, SimulationForm
from flows.prefect_server.blocks import WarehouseField, find_warehouse
from flows.prefect_server.crashes import claim
from flows.prefect_server.failures import make_failed_state
from flows.prefect_server.prefect_driver import open_task_driver, run_task
from flows.prefect_server.progress_artifact import show_finished_jobs
from flows.runs.resuming import resume
from flows.runs.simulation import simulate as run_simulation
from flows.runs.start import make_start, open_workload
from predictor.errors import ShockwaveError
from warehouse.analytics.questions import Analytics
from warehouse.wording import counted


@flow(
    name="step",
    description="Step an unfinished run: each round is collect, predict, solve, dispatch, record.",
    flow_run_name="{form.run} +{form.rounds}",
    on_running=[claim],
)
def step(form: RoundForm, warehouse: WarehouseField = None) -> State[str]:
    """Run the next rounds of an unfinished run, each as five task runs.

    Args:
        form: The run and the number of rounds.
        warehouse: Folder that keeps all runs; by default that of a block.

    Returns:
        Completed with the run's id; failed with the reason, if a round failed.
    """
    warehouse = find_warehouse(warehouse)
    try:
        with open_task_driver() as driver:
            resume(form.run, warehouse, driver=driver, rounds=form.rounds)
        show_headlines(warehouse, [form.run], key=f"run-{form.run}", title=f"Run {form.run}")
        return Completed(message=_status(warehouse, form.run), data=form.run)
    except ShockwaveError as error:
        return make_failed_state(form.named(error))


@flow(
    name="simulate",
    description="Run a workload on the virtual cluster, to its end or for some rounds.",
    flow_run_name="{form.policy}, {form.about} on {form.machines}",
    on_running=[claim],
)
def simulate(form: SimulationForm, warehouse: WarehouseField = None) -> State[str]:
    """Simulate a workload, to its end or for some rounds, each as a task run.

    Args:
        form: The workload, the policy and the number of rounds.
        warehouse: Folder that keeps all runs; by default that of a block.

    Returns:
        Completed with the run's id; failed with the reason.
    """
    warehouse = find_warehouse(warehouse)
    try:
        start = make_start(open_workload(form.source(warehouse), form.settings), form.settings)
        run = run_simulation(
            start,
            warehouse,
            driver=run_task,
            progress=show_finished_jobs(len(start.workload.specs)),
            rounds=form.rounds,
        )
        show_headlines(warehouse, [run], key=f"run-{run}", title=f"Run {run}")
        return Completed(message=_status(warehouse, run), data=run)
    except ShockwaveError as error:
        return make_failed_state(form.named(error))


def _status(warehouse: Path, run: str) -> str:
    """Return a sentence on the progress of a run."""
    ((rounds, complete),) = Analytics(warehouse).query(
        "SELECT max(round) + 1, bool_or(complete) FROM rounds JOIN runs USING (run)", [run]
    )[1]
    ended = "ended" if complete else "not ended"
    return f"run {run!r} has {ended} after {counted(rounds, 'round')}"
