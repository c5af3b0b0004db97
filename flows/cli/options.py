"""Options that several commands take, each declared once."""

from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from predictor.basis import Basis
from solver.fidelity import Fidelity
from warehouse.workloads.workload import Arrivals, Format

if TYPE_CHECKING:
    from flows.runs.workload_source import Source


class DriverName(StrEnum):
    """How rounds are called."""

    PLAIN = "plain"
    PREFECT = "prefect"


class VirtualKind(StrEnum):
    """How jobs run on a virtual clock."""

    VIRTUAL = "virtual"
    FAITHFUL = "faithful"


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
    str | None, typer.Option(help="Earlier runs whose finished jobs to learn from: RUN,…")
]
DriverOption = Annotated[DriverName, typer.Option(help="Plain calls, or Prefect task runs.")]

RuntimeOption = Annotated[
    VirtualKind, typer.Option(help="Jobs run as in the published simulator, or as in containers.")
]


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Jobs")


Trace = Annotated[Path | None, _option("Job trace; without it, jobs are generated.")]
FormatOption = Annotated[Format, _option("What the trace is.")]
ProfileFile = Annotated[Path | None, _option("Throughput table (JSON) of a public trace.")]
Regimes = Annotated[Path | None, _option("Regimes (CSV) of a public trace.")]
Columns = Annotated[str, _option("What a table's columns mean: ROLE=COLUMN,…")]
Only = Annotated[str, _option("Lines of a table to read: COLUMN=VALUE,…")]
SkipUnusable = Annotated[
    bool, _option("Leave out lines of a table that can be no jobs.", "--skip-unusable")
]
Jobs = Annotated[int, _option("Jobs to generate when there is no trace.")]
ArrivalsOption = Annotated[Arrivals, _option("How generated jobs arrive.")]
Interarrival = Annotated[float | None, _option("Mean gap between arrivals, 90 if not given.")]
Contention = Annotated[float | None, _option("Work that arrives over what the GPUs can do.")]
Shortest = Annotated[float, _option("Least isolated run time of generated jobs.")]
Longest = Annotated[float, _option("Largest isolated run time of generated jobs.")]
ScaleFactors = Annotated[str, _option("Weights of generated scale factors: GPUS=WEIGHT,…")]
Modes = Annotated[str, _option("Weights of drawn adaptation modes: MODE=WEIGHT,…")]
Seed = Annotated[int, _option("Seed of all that is drawn.")]


def _source(
    trace: Trace = None,
    format: FormatOption = Format.PUBLIC,
    profile: ProfileFile = None,
    regimes: Regimes = None,
    columns: Columns = "",
    only: Only = "",
    skip_unusable: SkipUnusable = False,
    jobs: Jobs = 60,
    arrivals: ArrivalsOption = Arrivals.POISSON,
    mean_interarrival_seconds: Interarrival = None,
    contention_factor: Contention = None,
    shortest_seconds: Shortest = 720.0,
    longest_seconds: Longest = 18_000.0,
    scale_factors: ScaleFactors = "1=0.6,2=0.3,4=0.09,8=0.01",
    modes: Modes = "gns=0.5,accordion=0.5",
    seed: Seed = 0,
) -> "Source":
    """The jobs that these options ask for."""
    from flows.runs.workload_source import Source

    return Source(
        trace=trace,
        format=format,
        profile=profile,
        regimes=regimes,
        columns=columns,
        only=only,
        skip_unusable=skip_unusable,
        jobs=jobs,
        arrivals=arrivals,
        mean_interarrival_seconds=mean_interarrival_seconds,
        contention_factor=contention_factor,
        shortest_seconds=shortest_seconds,
        longest_seconds=longest_seconds,
        scale_factors=scale_factors,
        modes=modes,
        seed=seed,
    )


def takes_source(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options above; it gets what they ask for as its `source`."""
    ours = signature(_source).parameters
    own = [part for part in signature(command).parameters.values() if part.name != "source"]

    @wraps(command)
    def called(**given: Any) -> None:
        asked = {name: given.pop(name) for name in ours}
        command(source=_source(**asked), **given)

    parts = [part.replace(kind=Parameter.KEYWORD_ONLY) for part in (*own, *ours.values())]
    called.__annotations__ = {part.name: part.annotation for part in parts}
    vars(called)["__signature__"] = Signature(parts)
    return called
