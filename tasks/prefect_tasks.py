"""The steps of a round as Prefect tasks; the only use of Prefect below flows."""

import logging
from collections.abc import Callable, Mapping
from functools import cache, partial, wraps
from inspect import signature
from typing import Any

from prefect import task, unmapped
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.client.schemas.objects import TaskRun
from prefect.tasks import Task

from predictor.errors import WarehouseBusy
from predictor.parts import Mapper, Part, Result, map_in_order
from tasks.round import ROUND, Step, StepResult, call_step, record
from tasks.round_log import describe_step
from tasks.run import Run

RETRY_SECONDS = (1.0, 5.0)
"""Delays before the first and second retry after a transient error. An engineering choice."""


LOG = logging.getLogger("prefect.task_runs.shockwave")
"""The log of task runs, which Prefect sends to its server in batches. It has a level of its own,
because programs that embed Prefect leave out Prefect's own lines."""
LOG.setLevel(logging.INFO)


class RunHandle:
    """A run as an argument of tasks, shown as the run's name and round.

    Like `StepResult`, it is opaque to Prefect. It exists in this process only.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    def __str__(self) -> str:
        return f"{self.run.name} round {self.run.state.round}"


class PartCall:
    """A call of a function with a part of a step's work, as an argument of a task."""

    def __init__(self, label: str, call: Callable[[], Any]) -> None:
        self.label, self.call = label, call

    def __str__(self) -> str:
        return self.label


def should_retry(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Return whether a failed task is retried: transient storage errors are, damage is not."""
    return isinstance(state.result(raise_on_failure=False), WarehouseBusy)


RETRIED: dict[str, Any] = {
    "retries": len(RETRY_SECONDS),
    "retry_delay_seconds": list(RETRY_SECONDS),
    "retry_condition_fn": should_retry,
}
"""Options of tasks that may be repeated."""


def _make_task(step: Step) -> Task[..., StepResult[Any]]:
    # Prefect takes the names of the inputs from the step's signature.
    parameters = dict(signature(step).parameters)
    is_divided = parameters.pop("each", None) is not None

    @wraps(step)
    def call(run: RunHandle, *inputs: StepResult[Any]) -> StepResult[Any]:
        options = {"each": _make_mapper(inputs)} if is_divided else {}
        number = run.run.state.round
        result = call_step(step, run.run, *inputs, **options)
        for line in describe_step(run.run, result.value):
            LOG.log(line.level, "%s round %d: %s", run.run.name, number, line.message)
        return result

    call.__signature__ = signature(step).replace(parameters=[*parameters.values()])  # type: ignore[attr-defined]
    return task(
        name=step.__name__,
        description=step.__doc__,
        task_run_name=f"{step.__name__} {{run}}",
        # Tags would cost a request for each task run, which asks for their concurrency limits.
        cache_policy=NO_CACHE,
        persist_result=False,
        # Only `record` is atomic (its file counts once it is renamed), so only it is retried.
        **(RETRIED if step is record else {}),
    )(call)


TASKS = {step: _make_task(step) for step in ROUND}
"""The steps of a round as tasks."""


def call_task(step: Step, run: Run, *inputs: StepResult[Any]) -> StepResult[Any]:
    """See `StepCaller`; calls the step as a task of the current flow run.

    Prefect finds the task runs that returned `inputs` by the identity of these objects.
    """
    return TASKS[step](RunHandle(run), *inputs)


@cache
def _make_part_task(name: str) -> Task[..., Any]:
    """Return the task of the parts of a step's work; `inputs` are those of the step."""

    @task(name=name, task_run_name=f"{name} {{part}}", cache_policy=NO_CACHE, persist_result=False)
    def run_part(part: PartCall, inputs: tuple[StepResult[Any], ...]) -> Any:
        return part.call()

    return run_part


def _make_mapper(inputs: tuple[StepResult[Any], ...]) -> Mapper:
    """Return a mapper that runs parts in parallel, as task runs within that of a step."""

    def map_tasks(
        name: str, function: Callable[[Part], Result], parts: Mapping[str, Part]
    ) -> list[Result]:
        if len(parts) < 2:
            return map_in_order(name, function, parts)
        calls = [PartCall(label, partial(function, part)) for label, part in parts.items()]
        futures = _make_part_task(name).map(calls, unmapped(inputs))
        futures.wait()  # so that no part still runs if another failed
        return futures.result()

    return map_tasks
