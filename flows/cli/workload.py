"""Commands about workloads."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from flows.cli.errors import escape
from flows.cli.options import Gpus, Json, Pools, expand_settings, resolve_gpus
from flows.cli.output import print_left_out, print_rows, say
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
    from predictor.errors import InputError
    from tasks.record import Settings
    from warehouse.store.durable import check_writable
    from warehouse.workloads.trace_writer import write_workload

    if source.applications:
        problem = "measured applications have no throughputs to write"
        raise InputError("applications", problem, "give the workload as it is")
    check_writable(out)
    workload = source.open(*resolve_gpus(source, gpus, pools))
    print_left_out(workload.left_out, err=True)
    number = gpus or max(spec.demand.size for spec in workload.specs)
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


@expand_settings(source=Source)
def show(source: Source, as_json: Json = False) -> None:
    """Show what a cluster's log says of its jobs."""
    from dataclasses import asdict

    log = source.read_log()
    if as_json:
        numbered = enumerate(log.jobs)
        print_rows([{"job_id": job_id, **asdict(job)} for job_id, job in numbered], as_json)
        print_left_out(log.left_out, err=True)
        return
    say(f"{counted(len(log.jobs), 'job')} ({escape(log.source)})")
    print_rows([log.summarize()], as_json)
    print_left_out(log.left_out)
    say("The log cannot say:")
    for unknown in log.unknown:
        say(f"  {unknown}")


def fetch(
    name: Annotated[str, typer.Argument(help="A public set; without it, all are listed.")] = "",
    downloaded: Annotated[
        Path | None, typer.Argument(help="What was downloaded: a file or a folder.")
    ] = None,
    out: Annotated[Path | None, typer.Argument(help="Folder to write to.")] = None,
    as_json: Json = False,
) -> None:
    """Print where a public set of traces is, and convert what was downloaded."""
    from dataclasses import asdict

    from predictor.errors import InputError
    from warehouse.workloads.public_sets import SETS, convert, find_set

    if not name:
        print_rows([{"name": name, **asdict(found)} for name, found in SETS.items()], as_json)
        return
    found = find_set(name)
    if downloaded is None:
        say(f"{found.about}. Download {found.files}, from")
        say(f"  {found.address}")
        say("and mind its licence. Then:")
        typer.echo(_next_command(name))
        return
    if out is None and found.converts:
        raise InputError("OUT", "is missing", "give a folder to write to")
    if out is None:
        typer.echo(_next_command(name, str(downloaded)))
        return
    for path in convert(name, downloaded, out):
        say(f"wrote {path}")
    typer.echo(_next_command(name, str(downloaded), out))


def _next_command(name: str, downloaded: str = "DOWNLOADED", out: Path | None = None) -> str:
    """Return what to type next."""
    from warehouse.workloads.public_sets import SETS

    if not SETS[name].converts:
        asked = f"--format {SETS[name].format} --trace {quote(downloaded)}"
        return (
            f"  shockwave workload show {asked}\n"
            f"  shockwave simulate --gpus GPUS --policy fifo {asked}"
        )
    if out is None:
        return f"  shockwave workload fetch {name} {quote(downloaded)} FOLDER"
    if name == "gavel":
        file = quote(str(out / "throughputs.csv.gz"))
        return f"  shockwave simulate --pools v100:4x2,k80:4x2 --throughputs {file}"
    trace, profile = (
        quote(str(out / "jobs120_gpus32.trace")),
        quote(str(out / "tacc_throughputs.json")),
    )
    return (
        f"  shockwave simulate --gpus 32 --trace {trace} --profile {profile} --regimes published\n"
        f"  python -m benchmarks.conformance {quote(str(out))}"
    )
