"""Commands about workloads."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from flows.cli.errors import escape
from flows.cli.options import Gpus, Json, Pools, expand_settings, resolve_gpus
from flows.cli.output import print_rows, say
from flows.runs.settings import DEFAULT_POLICY, ClusterSize, pools_of
from flows.runs.workload_source import Source
from warehouse.wording import counted


@expand_settings(source=Source)
def generate(
    source: Source,
    out: Annotated[Path, typer.Argument(help="Folder to write to.")],
    gpus: Gpus = None,
    pools: Pools = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    as_json: Json = False,
) -> None:
    """Write a workload, generated or read, as a trace."""
    from flows.runs.start import fit_to_cluster
    from tasks.record import Settings
    from warehouse.store.durable import check_writable
    from warehouse.workloads.trace_writer import write_workload

    check_writable(out)
    workload = source.open(*resolve_gpus(source, gpus, pools))
    number = gpus or max(spec.demand.least for spec in workload.specs)
    # A table with rates by nodes says more than would be written.
    table = source.profile if workload.profile.placement_matters else None
    table = source.throughputs or table
    if table is not None:
        pools = pools or f"{workload.profile.gpu_types[0]}:{number}x1"
    size = ClusterSize(pools=pools) if pools else ClusterSize(number)
    fit_to_cluster(
        workload, Settings(DEFAULT_POLICY, pools_of(size))
    )  # so that the command shown runs
    files = write_workload(workload, out, table, overwrite=overwrite)
    written = {name: str(path) for name, path in files._asdict().items()}
    if table is not None:
        written["throughputs"] = written.pop("profile")
    if as_json:
        print_rows([written | workload.figures()], as_json)
    else:
        options = " ".join(f"--{name} {quote(path)}" for name, path in written.items())
        cluster = f"--pools {quote(pools)}" if pools else f"--gpus {number}"
        say(f"{counted(len(workload.specs), 'job')} ({workload.source}) written. To run them:")
        command = f"  shockwave simulate {cluster} {options}"
        typer.echo(escape(command))  # in one line, to copy
