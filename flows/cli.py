"""The command line. Heavy imports wait until a command needs them."""

import atexit
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from decimal import Decimal
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from textwrap import wrap
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.options import takes_source
from predictor.basis import Basis
from predictor.errors import InputError, Interrupted, ShockwaveError
from solver.fidelity import Fidelity

if TYPE_CHECKING:
    from flows.simulation import Driver
    from flows.workloads import Source

app = typer.Typer(
    help="A fair, efficient, auditable scheduler for GPU clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

SIMULATE_FIELDS = (
    "run",
    "policy",
    "fidelity",
    "trace",
    "gpus",
    "jobs",
    "makespan_s",
    "mean_jct_s",
    "worst_ftf",
    "unfair_fraction",
    "worst_ftf_themis",
    "unfair_fraction_themis",
    "utilization",
    "rounds",
    "preemptions",
    "wall_s",
    "solve_ms_p50",
    "solve_ms_p95",
    "solve_ms_max",
    "max_gap",
    "jct_p50_s",
    "jct_p95_s",
    "jct_p99_s",
    "mean_queueing_s",
    "restart_s",
    "gpu_hours",
    "nash_welfare",
    "proportionality_violations",
    "envy_violations",
)
"""What `simulate`, `resume` and `compare` report of a run."""


class DriverName(StrEnum):
    """How rounds are called."""

    PLAIN = "plain"
    PREFECT = "prefect"


Warehouse = Annotated[
    Path,
    typer.Option(envvar="SHOCKWAVE_WAREHOUSE", help="Folder that keeps the records of all runs."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line on stdout.")]
Gpus = Annotated[int | None, typer.Option(help="GPUs in the cluster.")]
ClusterFile = Annotated[
    Path | None, typer.Option(help="Cluster spec (CSV) of Tiresias, instead of --gpus.")
]
RoundSeconds = Annotated[float, typer.Option(help="Length of a round, in seconds.")]
RestartSeconds = Annotated[float, typer.Option(help="What a restart costs a job, in seconds.")]
Window = Annotated[int, typer.Option(help="Rounds to plan ahead.")]
GpusPerNode = Annotated[int, typer.Option(help="GPUs that share a node.")]
FidelityOption = Annotated[
    Fidelity,
    typer.Option(help="Run policies all alike, or with the published simulator's limits."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A policy's parameter, NAME=VALUE; can be repeated."),
]
BackendName = Annotated[str, typer.Option(help="Solver: auto, lagrangian, gurobi or highs.")]
ForecastsOption = Annotated[
    Basis,
    typer.Option(help="From what was seen and learned, the present batch size, or the truth."),
]
HistoryOption = Annotated[
    str, typer.Option(help="Earlier runs whose finished jobs to learn from: RUN,…")
]
DriverOption = Annotated[DriverName, typer.Option(help="Plain calls, or Prefect task runs.")]

DEFAULT_WAREHOUSE = Path("var/warehouse")


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(version("shockwave"))
        raise typer.Exit


@app.callback()
def _shockwave(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


@app.command()
@takes_source
def simulate(
    source: "Source",
    gpus: Gpus = None,
    gpus_per_node: GpusPerNode = 1,
    cluster: ClusterFile = None,
    policy: Annotated[str, typer.Option(help="See shockwave policies.")] = "shockwave",
    fidelity: FidelityOption = Fidelity.FAIR,
    parameters: SetOption = None,
    backend: BackendName = "auto",
    round_seconds: RoundSeconds = 120.0,
    restart_seconds: RestartSeconds = 20.0,
    window: Window = 20,
    forecasts: ForecastsOption = Basis.POSTERIOR,
    history: HistoryOption = "",
    driver: DriverOption = DriverName.PLAIN,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Run a trace or a generated workload to its end on a virtual cluster."""
    started = perf_counter()
    from flows.simulation import make_header, parse_parameters, past_jobs
    from flows.simulation import simulate as run_simulation
    from flows.terminal import bars
    from warehouse.record import Settings

    gpus, gpus_per_node = _nodes(gpus, gpus_per_node, cluster)
    header = make_header(
        source.open(gpus),
        Settings(
            policy=policy,
            gpus=gpus,
            gpus_per_node=gpus_per_node,
            fidelity=fidelity,
            parameters=parse_parameters(parameters or ()),
            backend=backend,
            round_seconds=round_seconds,
            restart_seconds=restart_seconds,
            window=window,
            forecasts=forecasts,
            seed=source.seed,
        ),
        past_jobs(warehouse, filter(None, history.split(","))),
    )
    with bars(quiet=as_json) as shown:
        told = shown.add(header)
        run = _drive(
            driver, lambda call: run_simulation(header, warehouse, driver=call, progress=told)
        )
    _report(warehouse, [run], perf_counter() - started, as_json)


@app.command()
@takes_source
def compare(
    source: "Source",
    gpus: Gpus = None,
    gpus_per_node: GpusPerNode = 1,
    cluster: ClusterFile = None,
    policies: Annotated[str, typer.Option(help="Comma-separated.")] = "shockwave,fifo,srtf",
    fidelity: FidelityOption = Fidelity.FAIR,
    round_seconds: RoundSeconds = 120.0,
    restart_seconds: RestartSeconds = 20.0,
    window: Window = 20,
    forecasts: ForecastsOption = Basis.POSTERIOR,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Run one workload under several policies, as one Prefect flow run."""
    started = perf_counter()
    from flows.simulation import make_header, prepare
    from flows.terminal import bars
    from warehouse.record import Settings

    gpus, gpus_per_node = _nodes(gpus, gpus_per_node, cluster, default=16)
    asked = [
        Settings(
            policy=name.strip(),
            gpus=gpus,
            gpus_per_node=gpus_per_node,
            fidelity=fidelity,
            round_seconds=round_seconds,
            restart_seconds=restart_seconds,
            window=window,
            forecasts=forecasts,
            seed=source.seed,
        )
        for name in policies.split(",")
    ]
    workload = source.open(gpus)
    for settings in asked:  # refuse bad input before Prefect starts
        prepare(make_header(workload, settings))
    with bars(quiet=as_json) as shown:
        from flows.compare import compare as run_comparison
        from flows.compare import watched
        from flows.round import embedded_prefect, starts_server

        if starts_server():
            shown.note("Starting Prefect; its first start on a machine takes some 20 s.")

        with embedded_prefect(), watched(shown.add):
            runs = run_comparison(f"{policies} ({fidelity})", source, asked, warehouse)
    _report(warehouse, runs, perf_counter() - started, as_json)
    if not as_json:
        here = os.path.relpath(Path(sys.argv[0]).parent)
        kept = "" if warehouse == DEFAULT_WAREHOUSE else f" --warehouse {quote(str(warehouse))}"
        typer.echo(
            "\nEvery round is kept. Ask, for instance:\n"
            f'  {here}/shockwave sql "SELECT job_id, model, mode, jct_seconds, ftf '
            f"FROM job_outcomes WHERE run = '{runs[0]}' ORDER BY ftf DESC LIMIT 5\"{kept}\n"
            f"  {here}/shockwave replay {runs[0]}{kept}\n"
            f"To see the flow run in the Prefect UI: {here}/prefect server start, "
            "then open http://127.0.0.1:4200"
        )


@app.command()
@takes_source
def generate(
    source: "Source",
    out: Annotated[Path, typer.Argument(help="Folder to write to.")],
    gpus: Annotated[int | None, typer.Option(help="GPUs of the cluster.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a generated workload, or one read in any format, as a public trace."""
    from warehouse.writer import write_workload

    workload = source.open(gpus)
    files = write_workload(workload, out, overwrite=overwrite)
    written = {name: str(path) for name, path in files._asdict().items()}
    if as_json:
        _print([written | workload.figures()], as_json)
    else:
        options = " ".join(f"--{name} {quote(path)}" for name, path in written.items())
        least = max(spec.scale_factor for spec in workload.specs)
        typer.echo(
            f"{len(workload.specs)} jobs ({workload.source}) written. To run them:\n"
            f"  shockwave simulate --gpus {gpus or least} {options}"
        )


@app.command()
def resume(
    run: Annotated[str, typer.Argument(help="An interrupted run.")],
    driver: DriverOption = DriverName.PLAIN,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Go on from the last recorded round of an interrupted run."""
    started = perf_counter()
    from flows.simulation import resume as resume_simulation
    from flows.terminal import bars
    from warehouse.store import Reader

    header = Reader(warehouse).header(run)
    with bars(quiet=as_json) as shown:
        told = shown.add(header)
        _drive(driver, lambda call: resume_simulation(run, warehouse, driver=call, progress=told))
    _report(warehouse, [run], perf_counter() - started, as_json)


@app.command()
def replay(
    run: Annotated[str, typer.Argument(help="A recorded run.")],
    number: Annotated[int | None, typer.Option("--round", help="One round only.")] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Predict and solve recorded rounds again; exit 1 if anything comes out otherwise."""
    from flows.simulation import replay as replay_run

    comparison = replay_run(run, warehouse, only=number)
    for difference in comparison.differences:
        line = {
            "round": difference.round,
            "field": difference.field,
            "recorded": difference.recorded,
            "replayed": difference.replayed,
        }
        typer.echo(
            json.dumps(line) if as_json else f"round {difference.round}: {difference.field} differs"
        )
    rounds = f"{comparison.rounds} round{'s' * (comparison.rounds != 1)}"
    different = len({difference.round for difference in comparison.differences})
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "run": run,
                    "rounds": comparison.rounds,
                    "different": different,
                    "complete": comparison.complete,
                }
            )
        )
    elif not different:
        ended = "" if number is not None or comparison.complete else "; the run has not ended"
        typer.echo(f"{run}: {rounds} replayed, all identical byte for byte{ended}")
    else:
        typer.echo(f"{run}: {different} of {comparison.rounds} rounds differ")
    if different:
        raise typer.Exit(1)


@app.command()
def policies(as_json: Json = False) -> None:
    """List the policies, where each was published, and what can be set."""
    from solver.policies import POLICIES, parameters

    listed = [
        {
            "policy": name,
            "summary": policy.summary,
            "source": policy.source,
            "parameters": parameters(policy),
        }
        for name, policy in POLICIES.items()
    ]
    if as_json:
        _print(listed, as_json)
        return
    for policy in listed:
        lines = [policy["policy"], policy["summary"], policy["source"]]
        if policy["parameters"]:
            settable = [f"{key}={value:g}" for key, value in policy["parameters"].items()]
            lines += wrap(f"parameters: {' '.join(settable)}", 90)
        typer.echo("\n    ".join(lines))


@app.command()
def conformance(
    folder: Annotated[Path, typer.Argument(help="Public traces and their published results.")],
    as_json: Json = False,
) -> None:
    """Run the published policies as published; exit 1 if a figure is off."""
    from flows.conformance import conformance as run_conformance

    rows = []
    for row in run_conformance(folder):
        rows.append(row)
        if as_json:
            _print([row], as_json)
    if not as_json:
        _print(rows, as_json)
    if not all(row["ok"] for row in rows):
        raise typer.Exit(1)


@app.command("forecast-error")
@takes_source
def forecast_error(
    source: "Source",
    gpus: Annotated[int | None, typer.Option(help="GPUs, for a contention factor.")] = None,
    as_json: Json = False,
) -> None:
    """Judge forecasts of the remaining run time on jobs whose truth is known."""
    from flows.forecast_error import forecast_errors

    _print(map(asdict, forecast_errors(source.open(gpus), source.seed)), as_json)


@app.command()
def solve(
    file: Annotated[Path, typer.Argument(help="Recorded window problems, one JSON a line.")],
    backend: BackendName = "auto",
    as_json: Json = False,
) -> None:
    """Solve recorded window problems and lay them out."""
    from flows.windows import solve_windows

    _print(solve_windows(file, backend), as_json)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="A SELECT over the views.")],
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Query the history of all runs."""
    from warehouse.store import Reader

    columns, rows = Reader(warehouse).query(query)
    if as_json:
        _print([dict(zip(columns, row, strict=True)) for row in rows], as_json)
    else:
        from flows.terminal import print_table

        print_table(columns, rows)


@app.command()
def views(warehouse: Warehouse = DEFAULT_WAREHOUSE) -> None:
    """Make or renew analytics.duckdb, and say what its views are."""
    from warehouse.catalog import VIEWS, build, check_warehouse

    check_warehouse(warehouse)
    build(warehouse)
    typer.echo(f"{warehouse / 'analytics.duckdb'}: {', '.join(VIEWS)}")


def _nodes(
    gpus: int | None, gpus_per_node: int, cluster: Path | None, *, default: int | None = None
) -> tuple[int, int]:
    """GPUs of the cluster, and GPUs of each node."""
    if cluster is None:
        if gpus is None and default is None:
            raise InputError("--gpus", "missing", "give the number of GPUs or --cluster")
        return (default or 0) if gpus is None else gpus, gpus_per_node
    from warehouse.tiresias import read_cluster

    shape = read_cluster(cluster)
    if gpus is not None or gpus_per_node != 1:
        raise InputError("--cluster", "says how many GPUs there are", "leave --gpus out")
    return shape.nodes * shape.gpus_per_node, shape.gpus_per_node


def _drive(driver: DriverName, start: "Callable[[Driver], str]") -> str:
    """Start a simulation under the chosen driver."""
    if driver is DriverName.PLAIN:
        from tasks.steps import run_round

        return start(run_round)
    from flows.round import embedded_prefect, run_round_in_prefect

    with embedded_prefect():
        return start(run_round_in_prefect)


def _report(warehouse: Path, runs: list[str], wall_seconds: float, as_json: bool) -> None:
    """Print the headline figures of runs."""
    from warehouse.store import Reader

    columns, rows = Reader(warehouse).query("FROM run_summary", runs)
    found = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    wall = {"wall_s": round(wall_seconds, 3)}
    figures = [{name: (found[run] | wall)[name] for name in SIMULATE_FIELDS} for run in runs]
    if as_json:
        _print(figures, as_json)
    else:
        from flows.terminal import print_side_by_side

        first = figures[0]
        typer.echo(
            f"{first['jobs']} jobs ({first['trace']}) on {first['gpus']} GPUs, "
            f"fidelity {first['fidelity']}, in {wall_seconds:.1f} s"
        )
        said = ("fidelity", "trace", "gpus", "jobs", "wall_s")
        print_side_by_side(
            [{name: row[name] for name in row if name not in said} for row in figures],
            heading="policy",
        )
        _, solvers = Reader(warehouse).query(
            "SELECT backend, reason, count(*) FROM solves "
            "WHERE backend <> 'none' GROUP BY ALL ORDER BY ALL",
            runs,
        )
        for backend, reason, rounds in solvers:
            typer.echo(f"{rounds} rounds solved by {backend} ({reason})")


def _print(rows: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Print rows: as JSON each as soon as there is one, else as one table."""
    if as_json:
        for row in rows:
            typer.echo(json.dumps(_plain(row), allow_nan=False))
    elif table := list(rows):
        from flows.terminal import print_table

        print_table(list(table[0]), [list(row.values()) for row in table])


def _plain(value: Any) -> Any:
    """A value of DuckDB's as JSON has it; what is not a finite number is null."""
    match value:
        case dict():
            return {str(name): _plain(part) for name, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case float() | Decimal():
            return float(value) if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)


def _printable(text: str) -> str:
    """A text on one line, without what would steer the terminal."""
    return "".join(
        part if part.isprintable() else part.encode("unicode_escape").decode() for part in text
    )


def _silence_teardown() -> None:
    """Drop what native modules print while the interpreter is taken down.

    Prefect's threads outlive it, and DuckDB's bindings then report a page of leaks.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def main() -> None:
    """Run the command line; user errors and interruptions are one line and an exit code."""
    atexit.register(_silence_teardown)  # registered first, so it runs last
    interruptions: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interruptions.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is to be ignored
        signal.signal(signal.SIGINT, interrupt)
    try:
        app(prog_name="shockwave")
    except BaseException as error:
        told = error
        # Imports, DuckDB, Prefect and Typer each make something else of it.
        if interruptions and not isinstance(error, Interrupted):
            told = Interrupted("shockwave", "interrupted", "run it again, what it recorded is kept")
        if not isinstance(told, ShockwaveError):
            raise
        typer.secho(f"error: {_printable(str(told))}", fg=typer.colors.RED, err=True)
        sys.exit(told.exit_code)
