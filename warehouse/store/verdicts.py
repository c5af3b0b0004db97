"""Results of audits in words, for the command line and Prefect's UI."""

from pathlib import Path

from warehouse.store.audit import Audit, AuditFinding
from warehouse.store.warehouse_audit import WarehouseAudit
from warehouse.wording import counted


def describe_finding(finding: AuditFinding, *, names_run: bool = False) -> str:
    """Return the place and the problem of a finding; with `names_run`, after its run."""
    of = f"{finding.run}, " if names_run and finding.run else ""
    place = f"round {finding.round}, " if finding.round is not None else ""
    return f"{of}{place}{finding.place}: {finding.problem}"


def describe_run(audited: Audit) -> str:
    """Return the verdict on a run, with what was audited."""
    what = (audited.rounds, "round"), (audited.jobs, "job"), (audited.files, "file")
    held = f"{audited.run}: {', '.join(counted(*count) for count in what)}"
    open_ends = f", {counted(audited.unended, 'job')} unfinished" if audited.unended else ""
    verdict = "chain and rounds are intact"
    if audited.findings:
        first = audited.first_broken
        where = "" if first is None else f", the first broken record is round {first}"
        verdict = f"{counted(len(audited.findings), 'finding')}{where}"
    entered = "; not in the ledger" if audited.entered is None else ""
    if audited.entered is not None and audited.entered < audited.rounds:
        entered = f"; {audited.entered} of the rounds are in the ledger"
    return f"{held}{open_ends}: {verdict}{entered}"


def describe_warehouse(warehouse: Path, found: WarehouseAudit) -> str:
    """Return the verdict on a warehouse, and on a second line the ledger's last hash."""
    rounds = sum(audited.rounds for audited in found.runs)
    files = sum(audited.files for audited in found.runs) + found.files
    what = (len(found.runs), "run"), (rounds, "round"), (files, "file")
    verdict = "intact and as in the ledger"
    if found.findings:
        verdict = counted(len(found.findings), "finding")
    return (
        f"{warehouse}: {', '.join(counted(*count) for count in what)}: {verdict}\n"
        f"ledger: {len(found.ledger.entries)} entries, last hash {found.last_hash}"
    )
