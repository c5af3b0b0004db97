"""The steps of a round as Prefect tasks; the only use of Prefect below flows."""

from functools import wraps
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.client.schemas.objects import TaskRun
from prefect.tasks import Task

from predictor.errors import WarehouseBusy
from tasks.round import ROUND, Step, StepResult, call_step, record
from tasks.run import Run

RETRY_SECONDS = (1.0, 5.0)
"""Delays before the first and second retry after a transient error. An engineering choice."""


class RunHandle:
    """A run as an argument of tasks, shown as the run's name and round.

    Like `StepResult`, it is opaque to Prefect. It exists in this process only.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    def __str__(self) -> str:
        return f"{self.run.name} round {self.run.state.round}"


def should_retry(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Return whether a failed task is retried: transient storage errors are, damage is not."""
    return isinstance(state.result(raise_on_failure=False), WarehouseBusy)


def _make_task(step: Step) -> Task[..., StepResult[Any]]:
    @task(
        name=step.__name__,
        description=step.__doc__,
        task_run_name=f"{step.__name__} {{run}}",
        # Tags would cost a request for each task run, which asks for their concurrency limits.
        cache_policy=NO_CACHE,
        persist_result=False,
        # Only `record` is atomic (its file counts once it is renamed), so only it is retried.
        retries=len(RETRY_SECONDS) if step is record else 0,
        retry_delay_seconds=list(RETRY_SECONDS),
        retry_condition_fn=should_retry,
    )
    @wraps(step)  # Prefect takes the names of the inputs from the step's signature
    def call(run: RunHandle, *inputs: StepResult[Any]) -> StepResult[Any]:
        return call_step(step, run.run, *inputs)

    return call


TASKS = {step: _make_task(step) for step in ROUND}
"""The steps of a round as tasks."""


def call_task(step: Step, run: Run, *inputs: StepResult[Any]) -> StepResult[Any]:
    """See `StepCaller`; calls the step as a task of the current flow run.

    Prefect finds the task runs that returned `inputs` by the identity of these objects.
    """
    return TASKS[step](RunHandle(run), *inputs)
