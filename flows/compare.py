"""The main job: one workload under several policies, as one Prefect flow run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows.simulation import Progress, make_header, simulate
from flows.workloads import Source
from tasks.steps import Run
from warehouse.record import RunHeader, Settings
from warehouse.store import Reader

Watch = Callable[[RunHeader], Progress]
"""Given what a run starts from, what is told after each of its rounds."""

_watchers: list[Watch] = []


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Have the simulations of this process watched for as long as the context lasts."""
    _watchers.append(watch)
    try:
        yield
    finally:
        _watchers.remove(watch)


@task(
    name="simulate",
    task_run_name="simulate {settings.policy}",
    tags=["shockwave", "simulate"],
    cache_policy=NO_CACHE,
)
def simulate_policy(source: Source, settings: Settings, warehouse: Path) -> str:
    """Run the workload under one policy; returns the run's id."""
    header = make_header(source.open(settings.gpus), settings)
    told = [watch(header) for watch in _watchers]

    def progress(run: Run) -> None:
        for tell in told:
            tell(run)

    return simulate(header, warehouse, progress=progress)


@flow(
    name="compare",
    description="One workload under several policies on the virtual cluster.",
    flow_run_name="compare {title}",
)
def compare(title: str, source: Source, settings: list[Settings], warehouse: Path) -> list[str]:
    """Run one workload once per policy and put the figures side by side.

    Args:
        title: What is compared, for people.
        source: The workload.
        settings: What each run is asked to do.
        warehouse: Where the runs go.

    Returns:
        The runs' ids, in the order of the settings.
    """
    runs = [simulate_policy(source, asked, warehouse) for asked in settings]
    columns, rows = Reader(warehouse).query(
        "SELECT * EXCLUDE (complete, last_hash) FROM run_summary", runs
    )
    create_table_artifact(
        table=[dict(zip(columns, row, strict=True)) for row in rows],
        key="comparison",
        description=title,
    )
    return runs
