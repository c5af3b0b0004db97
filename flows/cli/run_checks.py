"""Commands that verify, repeat and fork recorded runs: `run audit`, `run replay`, `run whatif`."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import Gpus, Json, RunId, SetOption, Warehouse, make_option, parse_parameters
from flows.cli.output import print_result, print_rows, say, subtract
from flows.cli.progress import get_progress
from flows.runs.settings import POOLS
from warehouse import DEFAULT_WAREHOUSE
from warehouse.wording import counted

if TYPE_CHECKING:
    from warehouse.store.audit import Audit, AuditFinding
    from warehouse.store.warehouse_audit import WarehouseAudit


FIELDS = ("first_broken", "files", "rounds", "jobs", "unended", "entered", "last_hash")
"""Attributes of a run's audit in its summary."""

MOST_JOBS = 20
"""Most jobs to list whose JCT changes; `--json` lists all. A choice of layout."""


def audit(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(help="A recorded run.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Verify all runs, campaigns and copies, and the ledger.")
    ] = False,
    expect: Annotated[
        str | None,
        typer.Option(
            help="A hash kept elsewhere, of a record of the run or an entry of the ledger."
        ),
    ] = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept", help="Enter intact files that the ledger lacks, and files that are gone."
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
        from warehouse.store.checks import check_warehouse
        from warehouse.store.warehouse_audit import accept as enter_found
        from warehouse.store.warehouse_audit import audit_all

        check_warehouse(warehouse)
        show = get_progress().count("auditing", "runs")
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
    from warehouse.store.verdicts import describe_finding

    print_result(asdict(finding), describe_finding(finding, names_run=all_runs), as_json)


def _print_run(audited: "Audit", as_json: bool) -> None:
    from warehouse.store.verdicts import describe_run

    row = {"run": audited.run, "findings": len(audited.findings)}
    row |= {name: getattr(audited, name) for name in FIELDS}
    print_result(row, describe_run(audited), as_json)


def _print_all(warehouse: Path, result: "WarehouseAudit", as_json: bool) -> None:
    from warehouse.store.verdicts import describe_warehouse

    rounds = sum(audited.rounds for audited in result.runs)
    files = sum(audited.files for audited in result.runs) + result.files
    row = {"findings": len(result.findings), "runs": len(result.runs), "rounds": rounds}
    row |= {"files": files, "entries": len(result.ledger.entries)}
    text = describe_warehouse(warehouse, result)
    print_result(row | {"last_hash": result.last_hash}, text, as_json)


def replay(
    run: RunId,
    number: Annotated[int | None, typer.Option("--round", help="One round only.")] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Repeat the predictions and plans of recorded rounds."""
    from flows.explain.replay import replay as replay_run

    show = get_progress().count("replaying", "rounds")
    comparison = replay_run(run, warehouse, only=number, progress=show)
    for remark in () if as_json else comparison.remarks:
        say(f"{run}: {remark}")
    for difference in comparison.differences:
        text = f"round {difference.round}: {difference.field} differs"
        print_result(asdict(difference), text, as_json)
    rounds = counted(comparison.rounds, "round")
    different = len({difference.round for difference in comparison.differences})
    if as_json:
        summary = {"run": run, "rounds": comparison.rounds, "different": different}
        summary |= {"complete": comparison.complete, "remarks": comparison.remarks}
        print_rows([summary], as_json)
    elif not different:
        ended = "" if number is not None or comparison.complete else "; the run has not ended"
        say(f"{run}: {rounds} replayed, all identical byte for byte{ended}")
    else:
        say(f"{run}: {different} of {comparison.rounds} rounds differ")
    if different:
        raise typer.Exit(1)


def whatif(
    run: RunId,
    number: Annotated[int, typer.Option("--round", help="First round to decide anew.")],
    policy: Annotated[str | None, typer.Option(help="Another policy.")] = None,
    parameters: SetOption = None,
    without: Annotated[list[int] | None, typer.Option(help="A job to withdraw.")] = None,
    with_: Annotated[list[Path] | None, typer.Option("--with", help="A job to add (TOML).")] = None,
    gpus: Gpus = None,
    pools: Annotated[str | None, make_option(POOLS)] = None,
    keep: Annotated[Path | None, typer.Option(help="A new folder to keep the fork in.")] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Fork a run at a round, change something, and compare."""
    from flows.explain.whatif import Change
    from flows.explain.whatif import whatif as run_whatif
    from flows.runs.pools import parse_pools

    change = Change(
        policy=policy,
        parameters=parse_parameters(parameters),
        gpus=gpus,
        pools=() if pools is None else parse_pools(pools),
        without=tuple(without or ()),
        jobs=tuple(with_ or ()),
    )
    outcome = run_whatif(run, warehouse, number, change, keep, watch=get_progress().count_jobs)
    for remark in outcome.remarks:
        say(f"{run}: {remark}", err=True)
    recorded = "recorded"
    if outcome.rounds_so_far is not None:
        recorded = recorded if as_json else "unchanged"
        so_far = f"has not ended, with {counted(outcome.rounds_so_far, 'round')} recorded"
        meaning = f"{recorded} means continued from round {number} without the change"
        say(f"{run} {so_far}: {meaning}", err=as_json)
    figures = [
        {"figure": name, recorded: before, "whatif": after, "difference": subtract(after, before)}
        for name, before, after in outcome.figures
    ]
    jobs = [
        {"job_id": job_id, "jct_seconds": before, "jct_seconds_whatif": after}
        | {"difference_seconds": subtract(after, before), "rho": rho, "rho_whatif": rho_whatif}
        for job_id, before, after, rho, rho_whatif in outcome.jobs
    ]
    if as_json:
        print_rows([*figures, *jobs], as_json)
        return
    print_rows(figures, as_json)
    if gpus is not None or pools:
        say("\neach rho is relative to an even share of its own cluster")
    changed = [job for job in jobs if job["jct_seconds"] != job["jct_seconds_whatif"]]
    changed.sort(key=lambda job: -abs(job["difference_seconds"] or math.inf))
    say(f"\n{len(changed)} of {counted(len(jobs), 'job')} end at another time")
    print_rows(changed[:MOST_JOBS], as_json)
    if keep is not None:
        say(f"\nkept as run {outcome.run} in the warehouse {keep}")
