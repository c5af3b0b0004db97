"""Flow runs of deployments, started and waited for."""

from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun

from harness.waiting import wait_for


def started(client: SyncPrefectClient, deployment: str, form: dict[str, Any]) -> FlowRun:
    """Start a deployment and wait until its flow run has ended."""
    found = client.read_deployment_by_name(f"{deployment}/{deployment}")
    flow_run = client.create_flow_run_from_deployment(
        found.id, parameters={**found.parameters, "form": form}
    )
    return wait_for(
        lambda: client.read_flow_run(flow_run.id),
        lambda now: bool(now.state and now.state.is_final()),
        every=0.2,
    )


def outcome(flow_run: FlowRun) -> tuple[str | None, str | None]:
    assert flow_run.state
    return flow_run.state_name, flow_run.state.message
