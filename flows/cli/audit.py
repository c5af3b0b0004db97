"""The command `audit`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import Json, Warehouse
from flows.cli.output import print_rows, say
from warehouse import DEFAULT_WAREHOUSE
from warehouse.wording import counted

if TYPE_CHECKING:
    from warehouse.store.audit import Audit, AuditFinding
    from warehouse.store.warehouse_audit import WarehouseAudit

FIELDS = (
    *("first_broken", "files", "rounds", "jobs"),
    *("unended", "entered", "last_hash"),
)
"""Attributes of a run's audit in its summary."""


def audit(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(help="A recorded run.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All runs, campaigns and copies instead, and the ledger.")
    ] = False,
    expect: Annotated[
        str | None,
        typer.Option(
            help="A hash that was kept elsewhere: of a record of the run, or of an entry."
        ),
    ] = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept", help="Enter what is whole and not in the ledger, and what is gone."
        ),
    ] = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Verify a run or all runs: bytes, hash chain, completeness, ledger."""
    if (run is None) is not every or (accept and not every):
        raise typer.BadParameter("give a RUN, or --all with or without --accept", ctx)
    if run is not None:
        from warehouse.store.audit import audit as audit_run

        audited = audit_run(warehouse, run, expect)
        for finding in audited.findings:
            _print_finding(finding, as_json)
        _print_run(audited, as_json)
        broken = bool(audited.findings)
    else:
        from flows.cli.progress import progress
        from warehouse.store.checks import check_warehouse
        from warehouse.store.warehouse_audit import accept as enter_found
        from warehouse.store.warehouse_audit import audit_all

        check_warehouse(warehouse)
        show = progress().counted("auditing", "runs")
        result = audit_all(warehouse, expect, show)
        if accept and (result.acceptable):
            enter_found(warehouse, result)
            result = audit_all(warehouse, expect, show)
        for finding in result.findings:
            _print_finding(finding, as_json, all_runs=True)
        _print_all(warehouse, result, as_json)
        broken = bool(result.findings)
    if broken:
        raise typer.Exit(1)


def _print_finding(finding: "AuditFinding", as_json: bool, *, all_runs: bool = False) -> None:
    if as_json:
        print_rows([asdict(finding)], as_json)
        return
    of = f"{finding.run}, " if all_runs and finding.run else ""
    place = f"round {finding.round}, " if finding.round is not None else ""
    say(f"{of}{place}{finding.place}: {finding.problem}")


def _print_run(audited: "Audit", as_json: bool) -> None:
    if as_json:
        summary = {"run": audited.run, "findings": len(audited.findings)}
        print_rows([summary | {name: getattr(audited, name) for name in FIELDS}], as_json)
        return
    what = (audited.rounds, "round"), (audited.jobs, "job"), (audited.files, "file")
    held = f"{audited.run}: {', '.join(counted(*count) for count in what)}"
    open_ends = f", {counted(audited.unended, 'job')} under way" if audited.unended else ""
    verdict = "chain and rounds are whole"
    if audited.findings:
        first = audited.first_broken
        where = "" if first is None else f", the first broken record is round {first}"
        verdict = f"{counted(len(audited.findings), 'finding')}{where}"
    entered = "; not in the ledger" if audited.entered is None else ""
    if audited.entered is not None and audited.entered < audited.rounds:
        entered = f"; {audited.entered} of the rounds are in the ledger"
    say(f"{held}{open_ends}: {verdict}{entered}")


def _print_all(warehouse: Path, result: "WarehouseAudit", as_json: bool) -> None:
    entries = len(result.ledger.entries)
    rounds = sum(audited.rounds for audited in result.runs)
    files = sum(audited.files for audited in result.runs) + result.files
    summary = {
        "findings": len(result.findings),
        "runs": len(result.runs),
        "rounds": rounds,
        "files": files,
        "entries": entries,
        "signed": result.ledger.signed,
        "last_hash": result.last_hash,
    }
    if as_json:
        print_rows([summary], as_json)
        return
    verdict = "whole, and as the ledger has it"
    if result.findings:
        verdict = counted(len(result.findings), "finding")
    signed = f", {result.ledger.signed} signed" if result.ledger.signed else ""
    say(
        f"{warehouse}: {counted(len(result.runs), 'run')}, {counted(rounds, 'round')}, "
        f"{counted(files, 'file')}: {verdict}"
    )
    say(f"ledger: {entries} entries{signed}, the last has the hash {result.last_hash}")
