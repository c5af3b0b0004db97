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
    task_run_name="simulate {policy}",
    tags=["shockwave", "simulate"],
    cache_policy=NO_CACHE,
)
def simulate_policy(source: Source, policy: str, gpus: int, warehouse: Path) -> str:
    """Run the workload under one policy; returns the run's id."""
    header = make_header(source.open(), Settings(policy, gpus, seed=source.seed))
    told = [watch(header) for watch in _watchers]

    def progress(run: Run) -> None:
        for tell in told:
            tell(run)

    return simulate(header, warehouse, progress=progress)


@flow(
    name="compare",
    description="One workload under several policies on the virtual cluster.",
    flow_run_name="compare {policies}",
)
def compare(source: Source, policies: list[str], gpus: int, warehouse: Path) -> list[str]:
    """Run one workload once per policy and put the figures side by side.

    Args:
        source: The workload.
        policies: Names of policies.
        gpus: GPUs of the cluster.
        warehouse: Where the runs go.

    Returns:
        The runs' ids, in the order of the policies.
    """
    runs = [simulate_policy(source, policy, gpus, warehouse) for policy in policies]
    columns, rows = Reader(warehouse).query(
        "SELECT * EXCLUDE (complete, last_hash) FROM run_summary"
    )
    create_table_artifact(
        table=[dict(zip(columns, row, strict=True)) for row in rows if row[0] in runs],
        key="comparison",
        description=", ".join(policies),
    )
    return runs
