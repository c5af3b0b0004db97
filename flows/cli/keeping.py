"""Commands that delete, export and import runs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Json, RunId, Warehouse
from flows.cli.output import print_rows, say
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE
from warehouse.wording import counted


def rm(
    run: RunId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Delete a run for good; the ledger records the removal."""
    from warehouse.analytics.catalog import build
    from warehouse.store.folder import run_folder
    from warehouse.store.removal import remove_run

    if not yes:
        if not sys.stdin.isatty():
            raise InputError(f"run {run!r}", "would be deleted for good", "confirm with --yes")
        run_folder(warehouse, run)
        typer.confirm(f"Delete {run} for good?", abort=True, err=True)
    remove_run(warehouse, run)
    build(warehouse)  # views without the run
    if as_json:
        print_rows([{"run": run, "removed": True}], as_json)
    else:
        say(f"{run}: deleted")


def export(
    run: RunId,
    file: Annotated[Path, typer.Argument(help="A new file.")],
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Audit an ended run and write it, with labels, to a file."""
    from warehouse.store.durable import check_writable
    from warehouse.store.exchange import export_run

    check_writable(file)
    exported = export_run(warehouse, run, file)
    size = file.stat().st_size
    if as_json:
        row = {"run": run, "file": str(file), "bytes": size, "rounds": exported.rounds}
        print_rows([row], as_json)
    else:
        say(f"{file}: {run}, {counted(exported.rounds, 'round')}, {size / 1e6:.1f} MB")


def import_(
    file: Annotated[Path, typer.Argument(help="A file of shockwave export.")],
    memory: Annotated[
        int, typer.Option(help="MiB that its audit may take.", min=64, max=2**24)
    ] = 2048,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Audit the run in a file and add it to the warehouse."""
    from flows.cli.progress import progress
    from warehouse.analytics.catalog import build
    from warehouse.analytics.marts import keep_fast
    from warehouse.store.exchange import import_run

    imported = import_run(warehouse, file, memory)
    build(warehouse)
    keep_fast(warehouse, progress().counted("copying figures", "files"))
    if as_json:
        print_rows(
            [{"run": imported.run, "rounds": imported.rounds, "jobs": imported.jobs}], as_json
        )
    else:
        held = f"{counted(imported.rounds, 'round')}, {counted(imported.jobs, 'job')}"
        say(f"{imported.run}: {held}, chain and rounds are whole")
