"""Runs, comparisons and campaigns."""

import atexit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.progress import progress, working
from flows.prefect_server.teardown import silence_teardown
from flows.runs.settings import DEFAULT_POLICY, ClusterSize, SimulationSettings
from flows.runs.workload_source import Source
from shockwave.folder import folder_of, id_of
from shockwave.queries import Warehouse
from tasks.record import Parameter

if TYPE_CHECKING:
    import pandas as pd

    from flows.campaigns.plan import Campaign as Plan

USUAL = Source()
USUAL_SETTINGS = SimulationSettings()


@working("simulate")
def simulate(
    source: Source = USUAL,
    *,
    gpus: int | None = None,
    gpus_per_node: int = 1,
    pools: str = "",
    policy: str = DEFAULT_POLICY,
    parameters: Mapping[str, float] | None = None,
    history: Sequence[str] = (),
    settings: SimulationSettings = USUAL_SETTINGS,
    runtime: str | None = None,
    warehouse: str | Path | None = None,
) -> str:
    """Run a trace or a generated workload to its end on a virtual cluster.

    Args:
        source: The trace with its tables, or what to generate; its seed is that of the run.
        gpus: GPUs of the cluster.
        gpus_per_node: GPUs of a node; divides `gpus`.
        pools: In their place, GPUs of several types, such as `v100:12x1,k80:3x4@0.135`: nodes,
            GPUs of each and the price of a GPU-hour.
        policy: Name of the policy.
        parameters: Parameters of the policy that differ from its defaults, by name.
        history: Earlier runs, by id or name, whose finished jobs to learn from.
        settings: Settings of the run: round, restart, window, fidelity, runtime and others.
        runtime: In place of that of the settings: `virtual`, as in the published simulator,
            `faithful`, as in containers, or the name of a runtime of another package.
        warehouse: Folder that keeps the records; see `folder_of`.

    Returns:
        The run's id.

    Raises:
        ShockwaveError: A file or a setting is wrong, or the warehouse cannot be written.
    """
    from flows.runs.simulation import simulate as run
    from flows.runs.start import asked_start
    from warehouse.analytics.marts import keep_fast

    start = asked_start(
        _with_paths(source),
        ClusterSize(gpus, gpus_per_node, pools),
        policy,
        settings if runtime is None else replace(settings, runtime=runtime),
        folder_of(warehouse),
        parameters=_parameters(parameters),
        history=_ids(history, warehouse),
    )
    made = run(start, folder_of(warehouse), progress=progress().run(start))
    keep_fast(folder_of(warehouse))
    return made


@working("compare")
def compare(
    policies: Sequence[str],
    source: Source = USUAL,
    *,
    gpus: int | None = None,
    gpus_per_node: int = 1,
    pools: str = "",
    parameters: Mapping[str, float] | None = None,
    history: Sequence[str] = (),
    settings: SimulationSettings = USUAL_SETTINGS,
    warehouse: str | Path | None = None,
) -> list[str]:
    """Run one workload under several policies, as one Prefect flow run.

    Args:
        policies: Names of the policies.
        source: The trace with its tables, or what to generate.
        gpus: GPUs of the cluster.
        gpus_per_node: GPUs of a node; divides `gpus`.
        pools: In their place, GPUs of several types, such as `v100:12x1,k80:3x4@0.135`: nodes,
            GPUs of each and the price of a GPU-hour.
        parameters: Parameters by name; each is set for the policies that have it.
        history: Earlier runs, by id or name, whose finished jobs to learn from.
        settings: Settings of all runs.
        warehouse: Folder that keeps the records; see `folder_of`.

    Returns:
        The runs' ids, in the order of the policies.

    Raises:
        ShockwaveError: A file or a setting is wrong, or the warehouse cannot be written.
    """
    from flows.campaigns.compare import planned, run_comparison

    _end_quietly()
    plan = planned(
        _with_paths(source),
        ClusterSize(gpus, gpus_per_node, pools),
        settings,
        list(policies),
        folder_of(warehouse),
        _parameters(parameters),
        _ids(history, warehouse),
    )
    shown = progress()
    shown.expect(len(policies))
    shown.stage("waiting for Prefect")
    return run_comparison(plan, folder_of(warehouse), shown.run)


@dataclass(frozen=True)
class Campaign:
    """Policies × workloads × clusters × seeds × options.

    Attributes:
        plan: What is run.
        warehouse: Folder that keeps the records; see `folder_of`.
    """

    plan: "Plan"
    warehouse: Path

    @classmethod
    def read(cls, file: str | Path, warehouse: str | Path | None = None) -> "Campaign":
        """The campaign of a TOML file.

        Raises:
            InputError: The file is missing, or a field is wrong; names the field.
        """
        from flows.campaigns.campaign_file import read_campaign

        return cls(read_campaign(Path(file)), folder_of(warehouse))

    @property
    def name(self) -> str:
        """Its id: its name, and digits of a hash of all of its fields."""
        from flows.campaigns.execution import campaign_id

        return campaign_id(self.plan)

    @working("campaign")
    def run(self, *, runner: str = "processes", workers: int = 0, fresh: bool = False) -> str:
        """Run the cells that are not finished.

        A program that runs it in processes has its own calls below `if __name__ == "__main__":`.

        Args:
            runner: `processes`, `threads`, `dask` or `ray`.
            workers: Cells at the same time; 0: one a core.
            fresh: Whether to run finished cells again.

        Returns:
            The campaign's id, which `report` takes.

        Raises:
            ShockwaveError: The plan or the warehouse is invalid, or cells failed.
        """
        from flows.prefect_server.environment import private_env, set_env

        with set_env(private_env()):  # before Prefect is imported, which reads it
            return self._run(runner, workers, fresh)

    def _run(self, runner: str, workers: int, fresh: bool) -> str:
        from flows.campaigns.campaign import run_campaign
        from flows.campaigns.cells import check_start
        from flows.campaigns.execution import watched
        from flows.campaigns.runners import Runner
        from warehouse.store.durable import check_writable

        _end_quietly()
        check_start(self.plan, self.warehouse)
        check_writable(self.warehouse)
        shown = progress()
        shown.stage("waiting for Prefect")
        with watched(cells=shown.cells(self.plan.name)):
            return run_campaign(self.plan, Runner(runner), workers, None, self.warehouse, fresh)

    def summary(self, of_jobs: str | None = None) -> "pd.DataFrame":
        """Means over seeds of the finished cells, with the bounds of their 95 % intervals.

        Args:
            of_jobs: A condition over the columns of `job_outcomes` (SQL), such as
                `scale_factor = 4`: figures of the jobs that meet it.

        Raises:
            InputError: The condition is wrong.
            WarehouseError: A run is damaged, or the campaign was never run.
        """
        import pandas as pd

        from flows.campaigns.summary import summarize
        from warehouse.store.campaigns import read_cells

        groups = summarize(self.warehouse, read_cells(self.warehouse, self.name), of_jobs)
        return pd.DataFrame([group.row() for group in groups])

    def differences(
        self, of_jobs: str | None = None, *, against: str | None = None
    ) -> "pd.DataFrame":
        """Paired differences of policies from one of them, over cells that share all else.

        A row per policy, with several workloads over all of them and for each: mean differences,
        in the figure's unit and in percent of that policy's, or in percentage points, with the
        bounds of their 95 % intervals.

        Args:
            of_jobs: See `summary`.
            against: The policy that the others are compared with; by default the first.

        Raises:
            InputError: The condition is wrong, or the campaign has no such policy.
            WarehouseError: A run is damaged, or the campaign was never run.
        """
        import pandas as pd

        from flows.campaigns.summary import differences
        from warehouse.store.campaigns import read_cells

        cells = read_cells(self.warehouse, self.name)
        pairs = differences(self.warehouse, cells, of_jobs, against)
        return pd.DataFrame([pair.row() for pair in pairs])

    def cells(self) -> "pd.DataFrame":
        """The finished cells, a row a cell: its parts and its run's figures.

        Raises:
            WarehouseError: A run is damaged, or the campaign was never run.
        """
        return Warehouse(self.warehouse).sql(
            "SELECT c.cell, c.policy, c.workload, c.cluster, c.options, c.seed, "
            "s.* EXCLUDE (policy) "
            "FROM campaign_cells AS c JOIN run_summary AS s USING (run) "
            f"WHERE c.campaign = '{self.name}' ORDER BY c.cell"
        )


@cache
def _end_quietly() -> None:
    """See `silence_teardown`; after Prefect ran in this process."""
    atexit.register(silence_teardown)


def _parameters(values: Mapping[str, float] | None) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, float(value)) for name, value in sorted((values or {}).items()))


def _ids(runs: Sequence[str], warehouse: str | Path | None) -> tuple[str, ...]:
    return tuple(id_of(run, folder_of(warehouse)) for run in runs)


def _with_paths(source: Source) -> Source:
    """The source, with files given as text made paths."""
    files: dict[str, Any] = {
        name: Path(value)
        for name in ("trace", "profile", "regimes")
        if isinstance(value := getattr(source, name), str)
    }
    return replace(source, **files)
