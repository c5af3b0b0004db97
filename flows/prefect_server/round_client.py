"""The client of rounds: what the driver of rounds knows of its flow runs costs no request."""

from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas import State
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import OrchestrationResult
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_KEY, PREFECT_API_URL


class RoundClient(SyncPrefectClient):
    """A client of the configured server.

    Prefect's engine updates and reads a flow run before it runs it. The driver has just written the
    flow run, so both requests are left out.
    """

    def __init__(self) -> None:
        url, secret = PREFECT_API_URL.value(), PREFECT_API_AUTH_STRING.value()
        assert url
        super().__init__(url, auth_string=secret, api_key=PREFECT_API_KEY.value())
        self._own: FlowRun | None = None

    def own(self, flow_run: FlowRun) -> None:
        """Take a flow run, as the server has it, for the next round."""
        self._own = flow_run

    def _owns(self, flow_run_id: UUID | str) -> bool:
        return self._own is not None and str(self._own.id) == str(flow_run_id)

    def read_flow_run(self, flow_run_id: UUID) -> FlowRun:
        """Return a flow run; that of the next round as the driver wrote it."""
        if self._own and self._owns(flow_run_id):
            return self._own
        return super().read_flow_run(flow_run_id)

    def update_flow_run(self, flow_run_id: UUID, *args: Any, **fields: Any) -> httpx.Response:
        """Update a flow run, unless it is the next round's."""
        if self._owns(flow_run_id):
            return httpx.Response(httpx.codes.NO_CONTENT)
        return super().update_flow_run(flow_run_id, *args, **fields)

    def set_flow_run_state(
        self, flow_run_id: UUID | str, state: State[Any], force: bool = False
    ) -> OrchestrationResult[Any]:
        """Set a flow run's state, by force if it is the next round's.

        The service's clock says when a round begins, not the schedule; and a limit of one must not
        block a service that was killed in a round.
        """
        return super().set_flow_run_state(flow_run_id, state, force or self._owns(flow_run_id))
