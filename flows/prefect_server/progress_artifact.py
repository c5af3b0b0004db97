"""Progress artifacts in Prefect's UI."""

import math
import time
from collections.abc import Callable
from uuid import UUID

from prefect import get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.context import FlowRunContext

from tasks.run import Run

UPDATE_SECONDS = 3.0
"""Minimum interval between two updates, each of them a request. An engineering choice."""


class ProgressArtifact:
    """A progress artifact of the current flow run, if there is one."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._id: UUID | None = None
        self._updated_at = -math.inf

    def update(self, percent: float, description: str) -> None:
        """Show progress, unless the last update was less than `UPDATE_SECONDS` ago; 100 always."""
        if time.monotonic() - self._updated_at < UPDATE_SECONDS and percent < 100.0:
            return
        with get_client(sync_client=True) as client:
            if self._id is None:
                context = FlowRunContext.get()
                flow_run = context.flow_run.id if context and context.flow_run else None
                # `create_progress_artifact` is deprecated outside of flow runs.
                created = client.create_artifact(
                    ArtifactCreate(
                        key=self._key,
                        type="progress",
                        description=description,
                        data=percent,
                        flow_run_id=flow_run,
                    )
                )
                self._id = created.id
            else:
                client.update_artifact(
                    self._id, ArtifactUpdate(data=percent, description=description)
                )
        self._updated_at = time.monotonic()


def show_finished_jobs(jobs: int) -> Callable[[Run], None]:
    """Return a callback for a run's rounds that shows how many of its jobs have ended."""
    artifact: ProgressArtifact | None = None

    def after_round(run: Run) -> None:
        nonlocal artifact
        artifact = artifact or ProgressArtifact(f"finished-jobs-{run.name}")
        ended = run.state.arrived - len(run.state.beliefs)
        about = f"{ended} of {jobs} jobs of run {run.name} have ended (round {run.state.round})"
        artifact.update(100.0 * ended / max(jobs, 1), about)

    return after_round
