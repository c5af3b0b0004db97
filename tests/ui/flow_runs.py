"""Flow runs: those of deployments, started and waited for, and artifacts."""

import json
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.client.schemas.objects import Artifact, FlowRun

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


def artifacts(client: SyncPrefectClient, flow_run: UUID) -> dict[str, Artifact]:
    found = client.read_artifacts(
        artifact_filter=ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run]))
    )
    return {artifact.key: artifact for artifact in found if artifact.key is not None}


def rows_of(artifact: Artifact) -> list[dict[str, Any]]:
    """A table artifact's rows."""
    assert artifact.type == "table"
    assert isinstance(artifact.data, str)
    rows: list[dict[str, Any]] = json.loads(artifact.data)
    return rows
