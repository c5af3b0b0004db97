"""Workloads as files: `generate`."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import Json, takes_source
from flows.cli.output import print_rows

if TYPE_CHECKING:
    from flows.runs.workload_source import Source


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
    from warehouse.workloads.trace_writer import write_workload

    workload = source.open(gpus)
    files = write_workload(workload, out, overwrite=overwrite)
    written = {name: str(path) for name, path in files._asdict().items()}
    if as_json:
        print_rows([written | workload.figures()], as_json)
    else:
        options = " ".join(f"--{name} {quote(path)}" for name, path in written.items())
        least = max(spec.scale_factor for spec in workload.specs)
        typer.echo(
            f"{len(workload.specs)} jobs ({workload.source}) written. To run them:\n"
            f"  shockwave simulate --gpus {gpus or least} {options}"
        )
