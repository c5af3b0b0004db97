"""The steps of a round as Prefect tasks, and its artifacts; the only use of Prefect below flows.

Tasks pass ids only: the run's name and the round's number. The objects behind them stay in
this process for the duration of the round.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.client.schemas.objects import TaskRun
from prefect.tasks import Task

from predictor.errors import WarehouseBusy
from solver.plan import SolveReport
from tasks.round import ROUND, Round, Run, Step, record, run_steps, run_timed

RETRY_SECONDS = (1.0, 5.0)
"""Delays before the first and second retry after a transient error. An engineering choice."""

MOST_BIDS = 50
"""Most bids shown per round. A choice of layout."""

_registered: dict[tuple[str, int], tuple[Run, Round]] = {}


@contextmanager
def register_round(run: Run) -> Iterator[Round]:
    """Make a run's next round known to the tasks by its ids, within the context."""
    key, this = (run.name, run.state.round), Round()
    _registered[key] = (run, this)
    try:
        yield this
    finally:
        del _registered[key]


def should_retry(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Return whether a failed task is retried: transient storage errors are, damage is not."""
    return isinstance(state.result(raise_on_failure=False), WarehouseBusy)


def _task(step: Step) -> Task[[str, int], None]:
    @task(
        name=step.__name__,
        description=step.__doc__,
        task_run_name=f"{step.__name__} {{run}} round {{number}}",
        tags=["shockwave", step.__name__],
        cache_policy=NO_CACHE,
        # Only `record` is atomic (its file counts once it is renamed), so only it is retried.
        retries=len(RETRY_SECONDS) if step is record else 0,
        retry_delay_seconds=list(RETRY_SECONDS),
        retry_condition_fn=should_retry,
    )
    def call(run: str, number: int) -> None:
        run_timed(step, *_registered[run, number])

    return call


TASKS = tuple(map(_task, ROUND))
"""The steps of a round as tasks, in order."""


def call_tasks(run: str, number: int) -> None:
    """Run the round's tasks in order, then publish its artifacts.

    Raises:
        Exception: Any exception of a step.
    """
    before: list[State[None]] = []
    for step in TASKS:
        state = step(run, number, return_state=True, wait_for=before)
        state.result()
        before = [state]
    publish(*_registered[run, number])


def call_steps(run: str, number: int) -> None:
    """Run the round's steps in order, without tasks of their own."""
    run_steps(*_registered[run, number])


def publish(run: Run, this: Round) -> None:
    """Publish the round's artifacts: its allocation as a table, its market as text."""
    number = run.state.round - 1  # `record` has advanced the state past this round
    active = this.active
    rows = [
        {
            "job": job_id,
            "model": active[job_id].spec.model,
            "gpus": " ".join(map(str, gpus)),
            "batch size": active[job_id].belief.batch_size,
            "progress": f"{active[job_id].belief.share_done:.1%}",
            "remaining (s)": round(active[job_id].run_time(active[job_id].own).remaining),
        }
        for job_id, gpus in this.plan.placement.items()
    ]
    create_table_artifact(
        table=rows or [{"job": "none"}],
        key=f"allocation-{run.name}",
        description=f"GPUs by job in round {number} of run {run.name}",
    )
    create_markdown_artifact(
        _summary(run, number, this), key=f"market-{run.name}", description=f"Round {number}"
    )


def _summary(run: Run, number: int, this: Round) -> str:
    report, gpus = this.plan.report, run.header.settings.gpus
    busy = sum(map(len, this.plan.placement.values()))
    market = _market(report) if report.prices else ""
    return f"""# Round {number} of run {run.name}

| | |
| --- | --- |
| clock | {this.observation.clock_seconds:,.1f} s |
| active jobs | {len(this.state.beliefs)} ({len(this.arrivals)} new) |
| finished in the round before | {len(this.observation.ended)} |
| running jobs | {len(this.plan.placement)} |
| busy GPUs | {busy} of {gpus} |
| policy | {report.policy} |
{market}| solve | {this.milliseconds["solve"]:.1f} ms |
{_bids(this)}"""


def _market(report: SolveReport) -> str:
    """Describe how the market was solved, and the gap due to placing whole gangs."""
    prices = "".join(
        f"| price of a GPU-round ({row.gpu_type}) | {row.price:.3g} |\n" for row in report.prices
    )
    return f"""| counts | {report.status}, by {report.backend} ({report.reason}) |
| as laid out | {report.gap:.2%} off the bound |
{prices}"""


def _bids(this: Round) -> str:
    """Describe the bids for the coming round, highest first."""
    worth: dict[int, float] = {}
    for bid in this.plan.bids:
        worth.setdefault(bid.job_id, bid.utility / bid.allocation.gpus)
    ranked = sorted(worth, key=lambda job_id: -worth[job_id])
    if not ranked:
        return ""
    lines = [
        f"| {job_id} | {this.active[job_id].gang} | {worth[job_id]:.3g} "
        f"| {' '.join(map(str, this.plan.placement.get(job_id, ()))) or 'waits'} |\n"
        for job_id in ranked[:MOST_BIDS]
    ]
    more = f"\n{len(ranked) - MOST_BIDS} more bid less.\n" if len(ranked) > MOST_BIDS else ""
    return f"""
## Bids

| job | GPUs | worth of the round per GPU | has GPUs |
| ---: | ---: | ---: | --- |
{"".join(lines)}{more}"""
