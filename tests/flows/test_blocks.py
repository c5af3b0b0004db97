"""Blocks of Prefect that Shockwave reads: the warehouse's folder, and where alerts are sent."""

from pathlib import Path

import pytest
from prefect.automations import Automation, DoNothing, SendNotification
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas import State
from prefect.filesystems import LocalFileSystem

from flows.api.alerts import AlertKind
from flows.deployments.alerting import AUTOMATIONS, make_automations
from flows.deployments.forms import ReplayForm
from flows.deployments.replaying import replay
from flows.prefect_server.blocks import (
    ALERTS_BLOCK,
    WAREHOUSE_BLOCK,
    find_warehouse,
    save_warehouse,
)
from flows.runs.simulation import simulate
from tests.runs import tiny
from warehouse import DEFAULT_WAREHOUSE

pytestmark = pytest.mark.prefect


def test_a_flow_without_a_warehouse_uses_that_of_the_block(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    assert find_warehouse(None) == DEFAULT_WAREHOUSE
    save_warehouse(tmp_path / "before")
    save_warehouse(tmp_path)  # as the service's next start does
    assert find_warehouse(None) == tmp_path
    assert find_warehouse(Path("given")) == Path("given")

    run = simulate(tiny("fifo", jobs=1), tmp_path)
    state = replay(ReplayForm(run=run), return_state=True)
    assert isinstance(state, State)
    assert state.is_completed(), state.message
    LocalFileSystem.delete(WAREHOUSE_BLOCK)


def test_automations_that_do_nothing_notify_the_block_of_alerts(client: SyncPrefectClient) -> None:
    def actions(kind: AlertKind) -> list[object]:
        return [*Automation.read(name=AUTOMATIONS[kind][0]).actions]

    make_automations()
    for kind in AlertKind:  # other tests may have set some
        own = Automation.read(name=AUTOMATIONS[kind][0])
        own.actions = [DoNothing()]
        own.update()
    make_automations()
    assert actions(AlertKind.LATE) == [DoNothing()]

    webhook = CustomWebhookNotificationBlock(name="chat", url="http://127.0.0.1:9/")
    others = webhook.save("others")
    own = Automation.read(name=AUTOMATIONS[AlertKind.DOWN][0])
    own.actions = [SendNotification(block_document_id=others, body="of the user")]
    own.update()
    mine = webhook.save(ALERTS_BLOCK)
    for _ in range(2):
        make_automations()
    for kind in set(AlertKind) - {AlertKind.DOWN}:
        assert actions(kind) == [
            SendNotification(
                block_document_id=mine, subject="Shockwave", body="{{ event.payload.text }}"
            )
        ]
    assert actions(AlertKind.DOWN) == own.actions
    for name in ("others", ALERTS_BLOCK):
        CustomWebhookNotificationBlock.delete(name)
    names = {name for name, _ in AUTOMATIONS.values()}
    for name in names:
        for automation in client.read_automations_by_name(name):
            client.delete_automation(automation.id)
