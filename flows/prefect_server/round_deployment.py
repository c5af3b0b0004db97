"""The deployment `round/round`: a service's rounds are its flow runs.

Rounds follow the service's clock. The schedule announces the next round in the UI. Users pause it,
resume it, and run a round while it is paused.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from httpx import HTTPStatusError, codes
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.exceptions import ObjectNotFound

NAME = "round"

SHORTEST_SECONDS = 1.0
"""Shortest interval of the schedule. An engineering bound."""

MOST_READ = 200
"""Most scheduled flow runs per request; the server's limit."""


@dataclass(frozen=True)
class RoundRequest:
    """What users ask of a service's rounds in Prefect's UI.

    Attributes:
        paused: Whether the deployment or each of its schedules is paused.
        run_once: Whether a flow run was started by hand and waits for its round.
    """

    paused: bool
    run_once: bool


class RoundDeployment:
    """The deployment of the rounds of a service, which take `seconds` of wall time.

    It is created if the server has none; otherwise its interval is updated and it stays paused or
    active. All methods raise what the client raises if the server does not answer.
    """

    def __init__(self, client: SyncPrefectClient, flow_id: UUID, seconds: float) -> None:
        self._client, self._flow_id = client, flow_id
        self._interval = timedelta(seconds=max(seconds, SHORTEST_SECONDS))
        self._candidates = list[FlowRun]()
        self.id = self._declare()

    def _declare(self) -> UUID:
        with suppress(ObjectNotFound):
            found = self._client.read_deployment_by_name(f"{NAME}/{NAME}")
            for schedule in found.schedules:
                plan = schedule.schedule
                if isinstance(plan, IntervalSchedule) and plan.interval != self._interval:
                    plan = IntervalSchedule(interval=self._interval)
                    self._client.update_deployment_schedule(found.id, schedule.id, schedule=plan)
            return found.id
        return self._client.create_deployment(
            self._flow_id,
            NAME,
            description="The rounds of this service. Pause its schedule to pause the service: "
            "running jobs continue. Run starts one round while it is paused.",
            schedules=[
                DeploymentScheduleCreate(schedule=IntervalSchedule(interval=self._interval))
            ],
            concurrency_limit=1,
            tags=["shockwave", "service"],
            parameter_openapi_schema={"type": "object", "properties": {}},
            enforce_parameter_schema=False,
        )

    def read_request(self) -> RoundRequest:
        """Return what users ask for; drop announced flow runs whose time has passed.

        A pause deletes the announced flow runs, so the deployment is read only if none is to come.
        """
        by_hand, announced = self._read_scheduled()
        self._candidates = by_hand or announced[:1]
        for flow_run in announced:
            if _is_due(flow_run) and flow_run not in self._candidates:
                with suppress(ObjectNotFound):
                    self._client.delete_flow_run(flow_run.id)
        paused = all(map(_is_due, announced)) and self._is_paused()
        return RoundRequest(paused, bool(by_hand))

    def _is_paused(self) -> bool:
        try:
            found = self._client.read_deployment(self.id)
        except ObjectNotFound:  # a user deleted it
            self.id = self._declare()
            found = self._client.read_deployment(self.id)
        return found.paused or not any(schedule.active for schedule in found.schedules)

    def adopt(self, fields: dict[str, Any], labels: dict[str, Any]) -> FlowRun | None:
        """Return the flow run of the next round, started by hand or announced; None without one.

        It is one of those that the last request was read from.

        Args:
            fields: Its name, parameters and tags.
            labels: Its labels.
        """
        while self._candidates:
            flow_run = self._candidates.pop(0)
            path = {"id": flow_run.id}
            try:
                self._client.request("PATCH", "/flow_runs/{id}", path_params=path, json=fields)
                self._client.update_flow_run_labels(flow_run.id, labels)
            except HTTPStatusError as error:
                if error.response.status_code != codes.NOT_FOUND:
                    raise
                continue  # a user deleted it
            return flow_run.model_copy(update=fields)
        return None

    def _read_scheduled(self) -> tuple[list[FlowRun], list[FlowRun]]:
        """Return the flow runs that were started by hand and are due, and the announced ones."""
        asked = {"deployment_ids": [str(self.id)], "limit": MOST_READ}
        answer = self._client.request("POST", "/deployments/get_scheduled_flow_runs", json=asked)
        found = [FlowRun.model_validate(row) for row in answer.json()]
        by_hand = [run for run in found if not run.auto_scheduled and _is_due(run)]
        return by_hand, [run for run in found if run.auto_scheduled]


def _is_due(flow_run: FlowRun) -> bool:
    at = flow_run.next_scheduled_start_time or flow_run.expected_start_time
    return at is None or at <= datetime.now(UTC)
