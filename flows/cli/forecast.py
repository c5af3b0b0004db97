"""What lies ahead of a service: `forecast`."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.jobs import desk
from flows.cli.options import Json, Warehouse
from flows.cli.output import print_listed, say
from warehouse import DEFAULT_WAREHOUSE

Jobs = list[str] | None

CHANGED = ("whatif_ends_in_s", "later_s", "name", "whatif_starts_in_s", "ends_in_s", "starts_in_s")
"""Columns that are left out last where a forecast does not fit the terminal."""


def forecast(
    submit: Annotated[
        list[Path] | None, typer.Option(help="A job's file (TOML) that is handed in.")
    ] = None,
    cancel: Annotated[Jobs, typer.Option(help="A job that is cancelled.")] = None,
    hold: Annotated[Jobs, typer.Option(help="A job that is put on hold.")] = None,
    release: Annotated[Jobs, typer.Option(help="A job on hold that is released.")] = None,
    drain: Annotated[Jobs, typer.Option(help="A node that is drained.")] = None,
    cordon: Annotated[Jobs, typer.Option(help="A node on which no job starts.")] = None,
    uncordon: Annotated[Jobs, typer.Option(help="A node that comes back into service.")] = None,
    budget: Annotated[
        Jobs, typer.Option(help="TENANT=FACTOR: what its jobs' budgets are multiplied by.")
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Forecast starts and ends of the active jobs, with and without a change."""
    from dataclasses import asdict

    from flows.api.requests import WhatIf, parse_budget_factor
    from flows.api.rows import SHOWN
    from flows.api.submission import parse_job
    from flows.runs.toml_file import read_toml
    from warehouse.wording import counted

    files = ((path, read_toml(path, "a job's TOML file")) for path in submit or ())
    change = WhatIf(
        submit=[parse_job(path, fields) for path, fields in files],
        cancel=cancel or [],
        hold=hold or [],
        release=release or [],
        drain=drain or [],
        cordon=cordon or [],
        uncordon=uncordon or [],
        budget=dict(map(parse_budget_factor, budget or ())),
    )
    with desk(warehouse) as service:
        asked = change.model_dump(mode="json", exclude_unset=True)
        rows = [asdict(row) for row in service.forecast(asked)]
    if not change.changes:
        rows = [
            {field: row[field] for field in row if not field.startswith(("whatif", "later"))}
            for row in rows
        ]
    if as_json or not change.changes:
        print_listed(rows, as_json)
        return
    reasons = [(row["name"] or f"job {row['job_id']}", row.pop("whatif_reason")) for row in rows]
    print_listed(rows, as_json, CHANGED, always=CHANGED)
    moved = [row["later_s"] for row in rows if row["later_s"]]
    say("")
    later = sum(seconds > 0 for seconds in moved)
    say(f"{counted(later, 'job')} should end later, {len(moved) - later} earlier")
    endless = [f"{name} {reason}" for name, reason in reasons if reason]
    if endless:
        more = f"; and {len(endless) - SHOWN} more" if len(endless) > SHOWN else ""
        say(f"{counted(len(endless), 'job')} would not end: {'; '.join(endless[:SHOWN])}{more}")
