"""Options shared by commands; options of runs and workloads derive from their settings."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from flows.cli.commands import GLOSSARY
from flows.cli.errors import WAREHOUSE_VARIABLE, add_warehouse, convert_place, name_options
from flows.runs.setting import Setting, settings_in
from flows.runs.settings import BACKEND, GPUS, POLICY, POOLS, ClusterSize, pools_of
from flows.runs.workload_source import Source
from predictor.errors import InputError, ShockwaveError, check_plain

if TYPE_CHECKING:
    from tasks.record import Parameter as PolicyParameter

warehouse_named = ContextVar("warehouse_named", default=True)
"""Whether the running command has `--warehouse`, and so uses no login."""

after_dashes = ContextVar[Sequence[str]]("after_dashes", default=())
"""The words after `--` of the running command."""


class ShockwaveCommand(TyperCommand):
    """A command whose errors name its options."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.epilog = f"Terms are explained in the glossary: {GLOSSARY}"
        for parameter in self.params:
            if parameter.param_type_name == "argument":  # as the docs do
                parameter.metavar = str(parameter.name).upper()

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the arguments of the usage line: `JOBS...`, where Typer has `{JOBS}...`."""
        return [re.sub(r"^{(.*)}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the line, and store the words after `--`."""
        after_dashes.set(args[args.index("--") + 1 :] if "--" in args else ())
        words = [*args]
        rest = super().parse_args(ctx, args)
        texts, _, _ = self.make_parser(ctx).parse_args(words)
        _check_texts(self.params, ctx.params, texts)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            ShockwaveError: The error that the command raised, with the option as its place.
        """
        try:
            source = ctx.get_parameter_source("warehouse")
            warehouse_named.set(source is not None and source.name == "COMMANDLINE")
            _use_ids(ctx.params)
            return super().invoke(ctx)
        except ShockwaveError as error:
            place = convert_place(error.place, self.params)
            remedy, kept = error.remedy, ctx.params.get("warehouse")
            if ".toml: " not in error.place:  # no option sets the field of a file
                remedy = name_options(remedy, self.params)
            if kept is not None:
                remedy = add_warehouse(remedy, Path(kept))
            raise type(error)(place, error.problem, remedy) from error


def _check_texts(
    parameters: Sequence[Any], values: Mapping[str, Any], texts: Mapping[str, Any]
) -> None:
    """Refuse texts that Typer accepts: numbers such as 1_000, and empty paths.

    An empty path, such as an unset variable of the shell, would be the current folder.

    Raises:
        InputError: A parameter has such a text; the error names it.
    """
    for parameter in parameters:
        if (given := texts.get(parameter.name)) is None:
            continue
        read = _as_list(values.get(parameter.name))
        for value, text in zip(read, _as_list(given), strict=False):
            if isinstance(value, Path) and not text:
                remedy = "give a file or folder, . for the current folder"
                raise InputError(_typed(parameter), "is empty", remedy)
            try:
                if type(value) in (int, float):
                    check_plain(text)
            except ValueError:
                remedy = "write it in digits from 0 to 9, without separators"
                raise InputError(_typed(parameter), f"{text!r} is not a number", remedy) from None


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _typed(parameter: Any) -> str:
    """Return a parameter as users type it: its option, or its name in the usage line."""
    option: str = parameter.opts[0]
    return option if option.startswith("--") else option.upper()


def _use_ids(values: dict[str, Any]) -> None:
    """Replace names of runs by their ids."""
    for field in ("run", "other"):
        if isinstance(values.get(field), str):
            from warehouse.store.labelling import find_run

            values[field] = find_run(Path(values["warehouse"]), values[field])


class DriverName(StrEnum):
    """Driver of rounds or cells."""

    PLAIN = "plain"
    PREFECT = "prefect"


def make_option(setting: Setting, *names: str, panel: str | None = None) -> Any:
    """Make an option of a setting, whose bounds are checked when the run starts."""
    return typer.Option(*names, help=setting.meaning, rich_help_panel=panel)


Warehouse = Annotated[
    Path,
    typer.Option(envvar=WAREHOUSE_VARIABLE, help="Folder of the records of all runs."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line on stdout.")]
EveryFigure = Annotated[bool, typer.Option("--all", help="Show all figures.")]
RunId = Annotated[str, typer.Argument(help="A recorded run, by its id or name.")]
Gpus = Annotated[int | None, make_option(GPUS)]
Pools = Annotated[str, make_option(POOLS)]
Backend = Annotated[str, make_option(BACKEND)]
Policy = Annotated[str, make_option(POLICY)]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A policy's parameter, NAME=VALUE; can be repeated."),
]
HistoryOption = Annotated[
    str | None, typer.Option(help="Earlier runs to learn from, by their finished jobs: RUN,…")
]
DriverOption = Annotated[DriverName, typer.Option(help="Plain calls, or Prefect task runs.")]
CellDriverOption = Annotated[
    DriverName, typer.Option("--driver", help="Plain pool, or a Prefect flow run.")
]


@dataclass(frozen=True)
class ClusterOptions(ClusterSize):
    """A virtual cluster, given by its size or by a file."""

    cluster: Annotated[
        Path | None, Setting("Cluster", "Cluster spec (CSV) of Tiresias, instead of --gpus.")
    ] = None

    def size(self, default: int | None = None) -> ClusterSize:
        """Return the requested cluster, by default of `default` GPUs.

        Raises:
            InputError: No size is given, both size and file are given, or the file is invalid.
        """
        if self.cluster is None:
            gpus = default if self.gpus is None and not self.pools else self.gpus
            if gpus is None and not self.pools:
                raise InputError("gpus", "missing", "give the number of GPUs, --pools or --cluster")
            return ClusterSize(gpus, self.gpus_per_node, self.pools, self.cells, self.levels)
        from warehouse.workloads.tiresias import read_cluster

        shape = read_cluster(self.cluster)
        if self.gpus is not None or self.gpus_per_node != 1 or self.pools:
            raise InputError(
                "cluster",
                "already gives the number of GPUs",
                "leave out --gpus, --gpus-per-node and --pools",
            )
        gpus = shape.nodes * shape.gpus_per_node
        return ClusterSize(gpus, shape.gpus_per_node, "", self.cells, self.levels)


def resolve_gpus(source: Source, gpus: int | None, pools: str) -> tuple[int | None, list[str]]:
    """Return the number of GPUs, if known, and the GPU types of the cluster.

    Raises:
        InputError: Both are given, pools are invalid, or the jobs have no throughputs by GPU type.
    """
    if not pools:
        return gpus, []
    if source.throughputs is None and source.profile is None:
        problem = "need throughputs by GPU type"
        raise InputError("pools", problem, "give --throughputs, or leave them out")
    parsed = pools_of(ClusterSize(gpus, pools=pools))
    return sum(pool.gpus for pool in parsed), list(dict.fromkeys(pool.gpu_type for pool in parsed))


PANELS: dict[type[Any], str] = {Source: "Jobs"}
"""Heading in `--help` by group of settings; other groups have none."""


Expansion = tuple[Sequence[Parameter], Callable[[dict[str, Any]], Any]]
"""Options, and what makes a value of theirs by name."""


def expand(**groups: Expansion) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace parameters of a command by options; `groups` has the expansion of each."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**values: Any) -> None:
            made = {
                name: make({part.name: values.pop(part.name) for part in parts})
                for name, (parts, make) in groups.items()
            }
            command(**made, **values)

        parts: list[Parameter] = []
        for part in signature(command).parameters.values():
            parts += groups[part.name][0] if part.name in groups else [part]
        parts = [part.replace(kind=Parameter.KEYWORD_ONLY) for part in parts]
        called.__annotations__ = {part.name: part.annotation for part in parts}
        vars(called)["__signature__"] = Signature(parts)
        return called

    return decorate


def expand_settings(**groups: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Expand parameters of a command that are dataclasses of settings into options."""

    def make(group: type[Any]) -> Expansion:
        return [*_options(group)], lambda values: group(**values)

    return expand(**{name: make(group) for name, group in groups.items()})


def _options(group: type[Any]) -> Iterator[Parameter]:
    """Make the options of a group, in the order of its fields."""
    defaults = signature(group).parameters
    annotated: Any = Annotated  # mypy requires a static type as argument
    for name, kind, setting in settings_in(group):
        flag = [f"--{name.replace('_', '-')}"] if kind is bool else []  # without a `--no-…`
        annotation = annotated[kind, make_option(setting, *flag, panel=PANELS.get(group))]
        yield Parameter(
            name, Parameter.KEYWORD_ONLY, default=defaults[name].default, annotation=annotation
        )


def parse_parameters(texts: Iterable[str] | None) -> "tuple[PolicyParameter, ...]":
    """Parse parameters of a policy, NAME=VALUE; return them sorted by name.

    Raises:
        InputError: A text has another form, a value is not finite, or a name is repeated.
    """
    parsed: dict[str, float] = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        try:
            number = float(check_plain(value))
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            problem = f"{text!r} is not NAME=VALUE with a finite number"
            raise InputError("parameters", problem, "give one, such as fairness=0.5")
        if name in parsed:
            raise InputError(f"parameters.{name}", "is given twice", "give it once")
        parsed[name] = number
    from tasks.record import Parameter as PolicyParameter  # imports NumPy

    return tuple(PolicyParameter(name, parsed[name]) for name in sorted(parsed))
