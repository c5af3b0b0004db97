"""Commands that start and resume runs."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.errors import escape, make_warehouse_option
from flows.cli.options import (
    CellDriverOption,
    ClusterOptions,
    DriverName,
    DriverOption,
    EveryFigure,
    HistoryOption,
    Json,
    Policy,
    SetOption,
    Warehouse,
    expand_settings,
    parse_parameters,
)
from flows.cli.output import (
    find_best,
    make_jct_columns,
    print_reading,
    print_rows,
    print_side_by_side,
    say,
)
from flows.cli.progress import get_progress, wait_for_prefect
from flows.runs.settings import DEFAULT_POLICY, SimulationSettings, policy_names
from flows.runs.workload_source import Source
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE
from warehouse.wording import counted

if TYPE_CHECKING:
    from flows.runs.simulation import Driver, Progress
    from tasks.record import Start
    from tasks.run import Run
    from warehouse.analytics.paired import PairedDifference


SIMULATE_FIELDS = (
    *("run", "policy", "fidelity", "trace", "gpus", "jobs", "makespan_s", "mean_jct_s"),
    *("worst_rho", "unfair_fraction", "rho_p95"),
    *("utilization", "rounds", "preemptions", "wall_s", "solve_ms_p50", "solve_ms_p95"),
    *("solve_ms_max", "max_gap", "jct_p50_s", "jct_p95_s", "jct_p99_s", "mean_queueing_s"),
    *("restart_s", "gpu_hours", "nash_welfare", "proportionality_violations", "envy_violations"),
)
"""Columns of `run_summary` in the summary of runs."""

FEW_FIGURES = (
    *("run", "makespan_s", "mean_jct_s", "jct_p99_s", "worst_rho", "unfair_fraction"),
    *("utilization", "preemptions"),
)
"""Columns of `run_summary` that a comparison shows without `--all`."""

SOLVERS = """
SELECT backend, reason, count(*) FROM solves WHERE backend <> 'none' GROUP BY ALL ORDER BY ALL
"""
"""Rounds by solver back end, printed below the figures."""


@expand_settings(source=Source, cluster=ClusterOptions, settings=SimulationSettings)
def simulate(
    source: Source,
    cluster: ClusterOptions,
    settings: SimulationSettings,
    policy: Policy = DEFAULT_POLICY,
    parameters: SetOption = None,
    history: HistoryOption = None,
    driver: DriverOption = DriverName.PLAIN,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Run a trace or a generated workload to its end on a virtual cluster."""
    started = perf_counter()
    from flows.runs.simulation import simulate as run_simulation
    from flows.runs.start import make_simulation_start

    start = make_simulation_start(
        source,
        cluster.size(),
        policy,
        settings,
        warehouse,
        parameters=parse_parameters(parameters),
        history=parse_history(warehouse, history),
    )
    with open_driver(driver) as call:
        run = run_simulation(start, warehouse, driver=call, progress=watch_run(start, driver))
    print_reading(start.workload, err=as_json)
    print_summary(warehouse, [run], perf_counter() - started, as_json)


@expand_settings(source=Source, cluster=ClusterOptions, settings=SimulationSettings)
def compare(
    source: Source,
    cluster: ClusterOptions,
    settings: SimulationSettings,
    policies: Annotated[str, typer.Option(help="Comma-separated.")] = "shockwave,fifo,srtf",
    parameters: SetOption = None,
    history: HistoryOption = None,
    driver: CellDriverOption = DriverName.PLAIN,
    every_figure: EveryFigure = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Run one workload under several policies."""
    started = perf_counter()
    from flows.campaigns.compare import plan_comparison, run_comparison

    size = cluster.size(default=16)
    names = parse_policies(policies)
    values = parse_parameters(parameters)
    plan, workload = plan_comparison(
        source, size, settings, names, warehouse, values, tuple(parse_history(warehouse, history))
    )
    shown, in_prefect = get_progress(), driver is DriverName.PREFECT
    shown.expect(len(names))
    if in_prefect:
        wait_for_prefect()
    runs = run_comparison(plan, warehouse, shown.count_jobs, in_prefect)
    print_reading(workload, err=as_json)
    from warehouse.analytics.paired import job_by_job

    jobs = job_by_job(warehouse, runs[0], runs[1:])
    print_summary(warehouse, runs, perf_counter() - started, as_json, jobs, every_figure)
    if not as_json:
        here = os.path.relpath(Path(sys.argv[0]).parent)
        kept = make_warehouse_option(warehouse)
        say(
            "\nEvery round is recorded. For example:\n"
            f'  {here}/shockwave sql "SELECT job_id, model, mode, jct_seconds, rho '
            f"FROM job_outcomes WHERE run = '{runs[0]}' ORDER BY rho DESC LIMIT 5\"{kept}\n"
            f"  {here}/shockwave run replay {runs[0]}{kept}"
        )
        if in_prefect:
            say(
                f"To see the flow run in the Prefect UI: {here}/shockwave up{kept}, "
                "then open http://127.0.0.1:4200"
            )


def resume(
    run: Annotated[str, typer.Argument(help="An interrupted run.")],
    cluster: Annotated[
        Path | None, typer.Option(help="Cluster file (TOML), of a run in containers.")
    ] = None,
    driver: DriverOption = DriverName.PLAIN,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Continue an interrupted run from its last recorded round."""
    started = perf_counter()
    from warehouse.store.folder import run_folder
    from warehouse.store.parts import WHOLE
    from warehouse.store.reader import Reader

    start = Reader(warehouse).start(run)
    ended = (run_folder(warehouse, run) / WHOLE).exists()
    with open_driver(driver) as call:
        show = watch_run(start, driver)
        if cluster is None:
            from flows.runs.resuming import resume as resume_simulation

            resume_simulation(run, warehouse, driver=call, progress=show)
        else:
            from flows.runs.cluster_file import read_cluster
            from flows.runs.live import resume_live

            nodes = read_cluster(cluster)
            resume_live(run, nodes, warehouse, driver=call, progress=show)
    if ended:
        say(f"{run} had already ended", err=True)
    print_summary(warehouse, [run], perf_counter() - started, as_json)


def parse_policies(policies: str) -> list[str]:
    """Return the policies that `--policies` names.

    Raises:
        InputError: It is no list of names.
    """
    names = [name.strip() for name in policies.split(",")]
    if not all(names):
        problem = f"{policies!r} is not a list POLICY,POLICY,…"
        raise InputError("policies", problem, f"give some of {', '.join(policy_names())}")
    return names


def parse_history(warehouse: Path, history: str | None) -> list[str]:
    """Return the ids of the runs that `--history` names."""
    from warehouse.store.labelling import find_run

    if history is None:
        return []
    names = history.split(",")
    if not all(names):
        raise InputError(
            "history", f"{history!r} is not a list RUN,RUN,…", "name runs or leave it out"
        )
    return [find_run(warehouse, name) for name in names]


@contextmanager
def open_driver(driver: DriverName) -> "Iterator[Driver]":
    """Open the chosen driver, with the server that it needs."""
    if driver is DriverName.PLAIN:
        from tasks.round import run_round

        yield run_round
        return
    from flows.prefect_server.own_server import run_own_server
    from flows.prefect_server.prefect_driver import embedded_prefect, open_prefect_driver

    with embedded_prefect(), run_own_server(), open_prefect_driver() as opened:
        yield opened


def watch_run(start: "Start", driver: DriverName) -> "Progress":
    """Return the callback for a run's rounds: progress on the terminal, and in Prefect's UI."""
    show = get_progress().count_jobs(start)
    if driver is DriverName.PLAIN:
        return show
    from flows.prefect_server.progress_artifact import show_finished_jobs

    publish = show_finished_jobs(len(start.workload.specs))

    def after_round(run: "Run") -> None:
        show(run)
        publish(run)

    return after_round


def print_summary(
    warehouse: Path,
    runs: list[str],
    wall_seconds: float,
    as_json: bool,
    jobs: "Mapping[str, PairedDifference] | None" = None,
    every_figure: bool = True,
) -> None:
    """Print the headline figures of runs, which took `wall_seconds`.

    `jobs` has, by run, the differences of its jobs' JCTs from those of the first run. Unless
    `every_figure`, the text has the most important figures only.
    """
    from warehouse.analytics.marts import keep_fast
    from warehouse.analytics.questions import Analytics

    keep_fast(warehouse, get_progress().count("copying figures", "files"))
    get_progress().begin("reading figures")
    asked = ["FROM run_summary"] if as_json else ["FROM run_summary", SOLVERS]
    (columns, rows), *others = Analytics(warehouse).queries(asked, runs)
    summaries = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    wall = {"wall_s": round(wall_seconds, 3)}
    figures = [{name: (summaries[run] | wall)[name] for name in SIMULATE_FIELDS} for run in runs]
    if jobs:
        for run, row in zip(runs, figures, strict=True):
            row |= make_jct_columns(jobs.get(run), as_json)
    if as_json:
        print_rows(figures, as_json)
        return
    first = figures[0]
    unit = "slot" if first["trace"].endswith(" GPU a slot") else "GPU"
    say(
        f"{counted(first['jobs'], 'job')} ({escape(first['trace'])}) "
        f"on {counted(first['gpus'], unit)}, fidelity {first['fidelity']}, "
        f"in {wall_seconds:.1f} s"
    )
    print_side_by_side(_select_figures(figures, every_figure), heading="policy")
    if not every_figure:
        say("More figures: add --all")
        return
    ((_, solvers),) = others
    for backend, reason, rounds in solvers:
        say(f"{counted(rounds, 'round')} solved by {backend} ({reason})")


def _select_figures(
    figures: Sequence[Mapping[str, Any]], every_figure: bool
) -> list[dict[str, object]]:
    """Return the rows of each run's column and, with several runs, whose figures are best."""
    base = figures[0]["policy"]
    against = {
        "jct_difference_s": f"jct_s vs {base}",
        "sooner": f"jobs sooner than {base}",
        "later": f"jobs later than {base}",
    }
    said = ("policy", "fidelity", "trace", "gpus", "jobs", "wall_s")
    names = [name for name in figures[0] if name not in said]
    if not every_figure:
        names = [name for name in names if name in FEW_FIGURES or name in against]
    shown = [
        {"policy": row["policy"]} | {against.get(name, name): row[name] for name in names}
        for row in figures
    ]
    if len(figures) > 1:
        best = {
            against.get(name, name): ", ".join(
                find_best(name, {row["policy"]: row[name] for row in figures})
            )
            for name in names
        }
        shown.append({"policy": "best", **best})
    return shown
