"""The deployments `audit` and `maintenance`."""

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas import State
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.states import Completed

from flows.deployments.auditing import audit
from flows.deployments.forms import AuditForm, Form, MaintenanceForm
from flows.deployments.maintaining import maintenance
from flows.explain.replay import replay
from flows.prefect_server.prefect_driver import TAG
from tests.contents import contents
from tests.runs import as_service, ended, tiny, write
from tests.ui.flow_runs import artifacts, outcome, rows_of
from warehouse.analytics.copies import read_copies
from warehouse.store.audit import audit as audit_run
from warehouse.store.folder import place_of
from warehouse.store.parts import WHOLE, part_names

pytestmark = pytest.mark.prefect


def called(client: SyncPrefectClient, flow: Flow[..., Any], form: Form, warehouse: Path) -> FlowRun:
    state = flow(form, warehouse, return_state=True)
    assert isinstance(state, State)
    assert state.state_details.flow_run_id
    return client.read_flow_run(state.state_details.flow_run_id)


def test_an_audit_shows_what_it_verified(client: SyncPrefectClient, tmp_path: Path) -> None:
    made = ended("srtf")
    run = write(tmp_path, made.start, made.rounds)
    flow_run = called(client, audit, AuditForm(run=run, expect=made.rounds[3][1]), tmp_path)
    said = f"{run}: {len(made.rounds)} rounds, 8 jobs, 3 files: chain and rounds are intact"
    assert (outcome(flow_run), flow_run.name) == (("Completed", said), f"audit of {run}")
    assert rows_of(artifacts(client, flow_run.id)[f"audit-{run}"]) == [{"findings": "none"}]

    whole = called(client, audit, AuditForm(), tmp_path)
    said = rf"{tmp_path}: 1 run, {len(made.rounds)} rounds, \d files: intact and as in the ledger"
    assert (whole.name, whole.state_name) == ("audit of all runs", "Completed")
    assert re.fullmatch(said, str(outcome(whole)[1]))


def test_an_audit_with_findings_fails_and_lists_them(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    made = ended("srtf")
    run = write(tmp_path, made.start, made.rounds)
    changed = place_of(tmp_path, run) / WHOLE
    changed.write_bytes(changed.read_bytes()[:-1] + b"?")
    flow_run = called(client, audit, AuditForm(), tmp_path)
    state, said = outcome(flow_run)
    rows = rows_of(artifacts(client, flow_run.id)["audit"])
    assert (state, str(said).endswith(f": {len(rows)} findings")) == ("Failed", True)
    assert {row["run"] for row in rows} == {run}
    assert WHOLE in {row["place"] for row in rows}

    unknown = called(client, audit, AuditForm(run="nobody-1"), tmp_path)
    assert outcome(unknown)[0] == "Failed"
    assert str(outcome(unknown)[1]).startswith("run 'nobody-1': not in the warehouse")


def test_maintenance_compacts_copies_and_deletes(
    client: SyncPrefectClient, home_of_server: Path, tmp_path: Path
) -> None:
    made = ended("srtf")
    whole = write(tmp_path, made.start, made.rounds)
    left = write(tmp_path, made.start, made.rounds, compact=False)  # its process was killed
    half = write(tmp_path, made.start, made.rounds[:5], compact=False)
    service = as_service(tiny(jobs=1).workload, tiny(jobs=1).header.settings)
    serving = write(tmp_path, service, [], compact=False)
    before, parts = contents(tmp_path), part_names(place_of(tmp_path, half))
    old, new, other = (
        ended_ago(client, home_of_server, days, tags)
        for days, tags in ((9, [TAG]), (2, [TAG]), (9, ["other"]))
    )

    flow_run = called(client, maintenance, MaintenanceForm(days=7), tmp_path)
    done = [
        "1 flow run deleted, 0 set to Crashed",
        "1 run compacted",
        "figures of 2 ended runs copied",
    ]
    assert outcome(flow_run) == ("Completed", "; ".join(done))
    shown = rows_of(artifacts(client, flow_run.id)["maintenance"])
    assert shown == [{"done": each} for each in done]
    assert part_names(place_of(tmp_path, left)) == [WHOLE]
    assert part_names(place_of(tmp_path, half)) == parts
    assert part_names(place_of(tmp_path, serving)) == []
    assert {*read_copies(tmp_path).runs} == {whole, left}
    assert contents(tmp_path) == before
    assert audit_run(tmp_path, left).findings == ()
    assert replay(left, tmp_path).differences == []
    with pytest.raises(ObjectNotFound):
        client.read_flow_run(old)
    assert {client.read_flow_run(kept).id for kept in (new, other)} == {new, other}


def ended_ago(client: SyncPrefectClient, home: Path, days: float, tags: list[str]) -> UUID:
    """A flow run that ended some days ago."""
    made = client.create_flow_run(maintenance, parameters={}, tags=tags, state=Completed())
    at = datetime.now(UTC) - timedelta(days=days)
    with closing(sqlite3.connect(home / "prefect.db", timeout=60)) as database, database:
        asked = (f"{at:%Y-%m-%d %H:%M:%S.000000}", str(made.id))
        database.execute("UPDATE flow_run SET end_time = ? WHERE id = ?", asked)
    return made.id
