"""Options that several commands take; those of a run and its jobs follow from their settings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.runs.setting import Setting, settings_in
from flows.runs.settings import BACKEND, GPUS, GPUS_PER_NODE, POLICY, ClusterSize
from flows.runs.workload_source import Source
from predictor.errors import InputError


class DriverName(StrEnum):
    """How rounds are called."""

    PLAIN = "plain"
    PREFECT = "prefect"


class VirtualKind(StrEnum):
    """How jobs run on a virtual clock."""

    VIRTUAL = "virtual"
    FAITHFUL = "faithful"


def option(setting: Setting, *names: str, panel: str | None = None) -> Any:
    """A setting as an option; refusals out of bounds are those of the run."""
    return typer.Option(*names, help=setting.meaning, rich_help_panel=panel)


Warehouse = Annotated[
    Path,
    typer.Option(envvar="SHOCKWAVE_WAREHOUSE", help="Folder that keeps the records of all runs."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line on stdout.")]
Gpus = Annotated[int | None, option(GPUS)]
Backend = Annotated[str, option(BACKEND)]
Policy = Annotated[str, option(POLICY)]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A policy's parameter, NAME=VALUE; can be repeated."),
]
HistoryOption = Annotated[
    str | None, typer.Option(help="Earlier runs whose finished jobs to learn from: RUN,…")
]
DriverOption = Annotated[DriverName, typer.Option(help="Plain calls, or Prefect task runs.")]
RuntimeOption = Annotated[
    VirtualKind, typer.Option(help="Jobs run as in the published simulator, or as in containers.")
]


@dataclass(frozen=True)
class ClusterOptions:
    """A virtual cluster, by its size or by a file."""

    gpus: Annotated[int | None, GPUS] = None
    gpus_per_node: Annotated[int, GPUS_PER_NODE] = 1
    cluster: Annotated[
        Path | None, Setting("Cluster", "Cluster spec (CSV) of Tiresias, instead of --gpus.")
    ] = None

    def size(self, default: int | None = None) -> ClusterSize:
        """The cluster that is asked for.

        Args:
            default: GPUs where nothing is said; by default that is refused.

        Raises:
            InputError: It is not said, said twice, or the file is wrong.
        """
        if self.cluster is None:
            gpus = default if self.gpus is None else self.gpus
            if gpus is None:
                raise InputError("gpus", "missing", "give the number of GPUs or --cluster")
            return ClusterSize(gpus, self.gpus_per_node)
        from warehouse.workloads.tiresias import read_cluster

        shape = read_cluster(self.cluster)
        if self.gpus is not None or self.gpus_per_node != 1:
            raise InputError("cluster", "says how many GPUs there are", "leave --gpus out")
        return ClusterSize(shape.nodes * shape.gpus_per_node, shape.gpus_per_node)


PANELS: dict[type[Any], str] = {Source: "Jobs"}
"""Below which heading `--help` lists the options of a group; with the command's own if none."""


def takes(**groups: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options for groups of settings, each of which it gets as one parameter.

    Args:
        groups: By the command's parameter, the dataclass that says what can be set.
    """

    def taking(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**given: Any) -> None:
            made = {
                name: group(**{field: given.pop(field) for field, _, _ in settings_in(group)})
                for name, group in groups.items()
            }
            command(**made, **given)

        parts: list[Parameter] = []
        for part in signature(command).parameters.values():
            parts += _options(groups[part.name]) if part.name in groups else [part]
        parts = [part.replace(kind=Parameter.KEYWORD_ONLY) for part in parts]
        called.__annotations__ = {part.name: part.annotation for part in parts}
        vars(called)["__signature__"] = Signature(parts)
        return called

    return taking


def _options(group: type[Any]) -> Iterator[Parameter]:
    """The options of a group, in its order."""
    defaults = signature(group).parameters
    annotated: Any = Annotated  # whose argument is no type yet
    for name, kind, setting in settings_in(group):
        flag = [f"--{name.replace('_', '-')}"] if kind is bool else []  # without a `--no-…`
        annotation = annotated[kind, option(setting, *flag, panel=PANELS.get(group))]
        yield Parameter(
            name, Parameter.KEYWORD_ONLY, default=defaults[name].default, annotation=annotation
        )
