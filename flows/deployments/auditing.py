"""Audit as a flow: shows findings in a table, and fails if there are any."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.states import Completed, Failed

from flows.deployments.forms import MOST_SHOWN, AuditForm
from flows.prefect_server.blocks import WarehouseField, find_warehouse
from flows.prefect_server.crashes import claim
from flows.prefect_server.failures import make_failed_state
from predictor.errors import ShockwaveError
from tasks.prefect_tasks import RETRIED
from warehouse.store.audit import AuditFinding
from warehouse.store.audit import audit as audit_run
from warehouse.store.checks import check_warehouse
from warehouse.store.verdicts import describe_run, describe_warehouse
from warehouse.store.warehouse_audit import audit_all

Verdict = tuple[str, Sequence[AuditFinding]]
"""The result in words, and the findings."""


@task(
    name="verify",
    task_run_name="verify {form.about}",
    tags=["shockwave", "audit"],
    cache_policy=NO_CACHE,
    persist_result=False,
    **RETRIED,
)
def verify(form: AuditForm, warehouse: Path) -> Verdict:
    """Verify a run or the whole warehouse."""
    if form.run is not None:
        audited = audit_run(warehouse, form.run, form.expect or None)
        return describe_run(audited), audited.findings
    check_warehouse(warehouse)
    found = audit_all(warehouse, form.expect or None)
    return describe_warehouse(warehouse, found), found.findings


@flow(
    name="audit",
    description="Verify bytes, hash chain, completeness and ledger; fails if anything is amiss.",
    flow_run_name="audit of {form.about}",
    on_running=[claim],
)
def audit(form: AuditForm, warehouse: WarehouseField = None) -> State[Any]:
    """Audit a run or all runs and show the findings.

    Args:
        form: The run or all runs, and a hash kept elsewhere.
        warehouse: Folder that keeps all runs; by default that of a block.

    Returns:
        Completed if there are no findings, else failed.
    """
    warehouse = find_warehouse(warehouse)
    try:
        verdict, findings = verify(form, warehouse)
    except ShockwaveError as error:
        return make_failed_state(form.named(error))
    key = f"audit-{form.run}" if form.run else "audit"
    summary = verdict.partition("\n")[0]
    rows = [asdict(finding) for finding in findings[:MOST_SHOWN]] or [{"findings": "none"}]
    create_table_artifact(table=rows, key=key, description=f"Findings. {summary}")
    text = "\n\n".join(["# Audit", *verdict.splitlines()])
    create_markdown_artifact(f"{text}\n", key=f"{key}-in-words", description=summary)
    return Failed(message=summary) if findings else Completed(message=summary)
