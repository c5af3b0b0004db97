"""Commands that remove runs and bring them back: `rm`, `restore`, `export`, `import`."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.errors import option_of
from flows.cli.options import Json, RunId, Warehouse
from flows.cli.output import print_rows, say
from warehouse import DEFAULT_WAREHOUSE
from warehouse.wording import counted


def rm(
    run: RunId,
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove it from the trash, for good.")
    ] = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Move a run to the warehouse's trash; the ledger says so."""
    from warehouse.analytics.catalog import build
    from warehouse.store import trash

    if purge:
        trash.purge(warehouse, run)
    else:
        trash.remove(warehouse, run)
        build(warehouse)  # without the run
    if as_json:
        print_rows([{"run": run, "removed": True, "purged": purge}], as_json)
    elif purge:
        say(f"{run}: removed for good")
    else:
        say(f"{run}: in the trash; back with: shockwave restore {run}{option_of(warehouse)}")


def restore(run: RunId, warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """Bring a run back from the trash."""
    from warehouse.analytics.catalog import build
    from warehouse.store import trash

    trash.restore(warehouse, run)
    build(warehouse)
    if as_json:
        print_rows([{"run": run, "removed": False}], as_json)
    else:
        say(f"{run}: restored")


def export(
    run: RunId,
    file: Annotated[Path, typer.Argument(help="A new file.")],
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Audit an ended run and write it, with its name, tags and note, into a file."""
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
