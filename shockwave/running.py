"""Runs, comparisons and campaigns."""

import atexit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.prefect_server.teardown import silence_teardown
from flows.runs.settings import DEFAULT_POLICY, ClusterSize, SimulationSettings
from flows.runs.workload_source import Source
from shockwave.progress import Progress, ignore_progress, watch_jobs
from shockwave.queries import Warehouse, find_id, find_warehouse
from tasks.record import Parameter

if TYPE_CHECKING:
    import pandas as pd

    from flows.campaigns.plan import CampaignPlan as Plan

GENERATED = Source()
DEFAULTS = SimulationSettings()


def simulate(
    source: Source = GENERATED,
    *,
    gpus: int | None = None,
    gpus_per_node: int = 1,
    pools: str = "",
    policy: str = DEFAULT_POLICY,
    parameters: Mapping[str, float] | None = None,
    history: Sequence[str] = (),
    settings: SimulationSettings = DEFAULTS,
    runtime: str | None = None,
    warehouse: str | Path | None = None,
    progress: Progress = ignore_progress,
) -> str:
    """Run a trace or a generated workload to its end on a virtual cluster; return the run's id.

    Args:
        source: The trace with its tables, or what to generate; its seed is the run's.
        gpus: GPUs of the cluster.
        gpus_per_node: GPUs of a node; divides `gpus`.
        pools: GPUs of several types, in place of `gpus` and `gpus_per_node`, such as
            `v100:12x1,k80:3x4@0.135`: nodes, GPUs per node and the price of a GPU-hour.
        policy: Name of the policy.
        parameters: Parameters of the policy that differ from its defaults, by name.
        history: Earlier runs, by id or name, from whose finished jobs the run learns.
        settings: Settings of the run: round, restart, window, fidelity, runtime and others.
        runtime: Overrides the settings' runtime: `virtual` behaves like the published simulator,
            `faithful` like containers; or the name of a plugin.
        warehouse: See `find_warehouse`.
        progress: Receives the number of ended jobs, and of all jobs, after every round.

    Raises:
        ShockwaveError: A file or a setting is invalid, or the warehouse cannot be written.
    """
    from flows.runs.simulation import simulate as run
    from flows.runs.start import make_simulation_start
    from warehouse.analytics.marts import keep_fast

    start = make_simulation_start(
        _with_paths(source),
        ClusterSize(gpus, gpus_per_node, pools),
        policy,
        settings if runtime is None else replace(settings, runtime=runtime),
        find_warehouse(warehouse),
        parameters=_parameters(parameters),
        history=_ids(history, warehouse),
    )
    name = run(start, find_warehouse(warehouse), progress=watch_jobs(progress)(start))
    keep_fast(find_warehouse(warehouse))
    return name


def compare(
    policies: Sequence[str],
    source: Source = GENERATED,
    *,
    gpus: int | None = None,
    gpus_per_node: int = 1,
    pools: str = "",
    parameters: Mapping[str, float] | None = None,
    history: Sequence[str] = (),
    settings: SimulationSettings = DEFAULTS,
    warehouse: str | Path | None = None,
    progress: Progress = ignore_progress,
) -> list[str]:
    """Run one workload under several policies.

    Args:
        policies: Names of the policies.
        source: The trace with its tables, or what to generate.
        gpus: See `simulate`.
        gpus_per_node: See `simulate`.
        pools: See `simulate`.
        parameters: Parameters by name; each is set for the policies that have it.
        history: See `simulate`.
        settings: Settings of all runs.
        warehouse: See `find_warehouse`.
        progress: Receives the number of ended jobs, and of all jobs of all runs.

    Returns:
        The runs' ids, in the order of the policies.

    Raises:
        ShockwaveError: A file or a setting is invalid, or the warehouse cannot be written.
    """
    from flows.campaigns.compare import plan_comparison, run_comparison

    plan, _ = plan_comparison(
        _with_paths(source),
        ClusterSize(gpus, gpus_per_node, pools),
        settings,
        list(policies),
        find_warehouse(warehouse),
        _parameters(parameters),
        _ids(history, warehouse),
    )
    return run_comparison(plan, find_warehouse(warehouse), watch_jobs(progress, len(policies)))


@dataclass(frozen=True)
class Campaign:
    """A campaign: policies × workloads × clusters × seeds × options."""

    plan: "Plan"
    warehouse: Path

    @classmethod
    def read(cls, file: str | Path, warehouse: str | Path | None = None) -> "Campaign":
        """Read a campaign from a TOML file.

        Raises:
            InputError: The file is missing, or a field is invalid; names the field.
        """
        from flows.campaigns.plan import read_campaign

        return cls(read_campaign(Path(file)), find_warehouse(warehouse))

    @property
    def name(self) -> str:
        """Id of the campaign: its name, and digits of a hash of all its fields."""
        from flows.campaigns.execution import campaign_id

        return campaign_id(self.plan)

    def run(
        self,
        *,
        runner: str = "processes",
        workers: int = 0,
        fresh: bool = False,
        progress: Progress = ignore_progress,
    ) -> str:
        """Run the unfinished cells; return the campaign's id, for `report`.

        With processes, the calling program needs `if __name__ == "__main__":`.

        Args:
            runner: `processes`, `threads`, `dask` or `ray`.
            workers: Number of concurrent cells; 0: one per core.
            fresh: Whether to run finished cells again.
            progress: Receives the number of ended cells, and of all cells.

        Raises:
            ShockwaveError: The plan or the warehouse is invalid, or cells failed.
        """
        from flows.campaigns import Runner
        from flows.campaigns.cells import check_start
        from flows.campaigns.execution import run_campaign, watch_campaigns
        from flows.campaigns.runners import CLUSTERS
        from flows.prefect_server.environment import private_env, set_env
        from warehouse.store.durable import check_writable

        check_start(self.plan, self.warehouse)
        check_writable(self.warehouse)
        with watch_campaigns(cells=lambda done, total, share: progress(done, total)):
            if runner not in CLUSTERS:
                return run_campaign(self.plan, Runner(runner), workers, self.warehouse, fresh)
            _end_quietly()
            with set_env(private_env()):  # Prefect reads the environment when it is imported
                from flows.campaigns.campaign import run_campaign_in_prefect

                return run_campaign_in_prefect(
                    self.plan, Runner(runner), workers, None, self.warehouse, fresh
                )

    def summary(self, of_jobs: str | None = None) -> "pd.DataFrame":
        """Return the finished cells' means over seeds, with bounds of their 95 % intervals.

        Args:
            of_jobs: SQL condition on the columns of `job_outcomes` that selects jobs, such as
                `scale_factor = 4`.

        Raises:
            InputError: The condition is invalid.
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
        """Return paired differences between a baseline policy and each other policy.

        Cells are paired if they differ only in the policy. Each policy has a row over all workloads
        and one for each workload: mean differences, in the figure's unit and in percent or
        percentage points, with bounds of their 95 % intervals.

        Args:
            of_jobs: See `summary`.
            against: The baseline policy; by default the first.

        Raises:
            InputError: The condition is invalid, or the campaign has no such policy.
            WarehouseError: A run is damaged, or the campaign was never run.
        """
        import pandas as pd

        from flows.campaigns.summary import compare_policies
        from warehouse.store.campaigns import read_cells

        cells = read_cells(self.warehouse, self.name)
        pairs = compare_policies(self.warehouse, cells, of_jobs, against)
        return pd.DataFrame([pair.row() for pair in pairs])

    def cells(self) -> "pd.DataFrame":
        """Return the finished cells, one row per cell: its parts and its run's figures.

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
    """Silence Prefect when this process ends."""
    atexit.register(silence_teardown)


def _parameters(values: Mapping[str, float] | None) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, float(value)) for name, value in sorted((values or {}).items()))


def _ids(runs: Sequence[str], warehouse: str | Path | None) -> tuple[str, ...]:
    return tuple(find_id(run, find_warehouse(warehouse)) for run in runs)


def _with_paths(source: Source) -> Source:
    """Return the source with its files as `Path`s."""
    files: dict[str, Any] = {
        name: Path(value)
        for name in ("trace", "profile", "applications", "regimes")
        if isinstance(value := getattr(source, name), str)
    }
    return replace(source, **files)
