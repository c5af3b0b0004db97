"""Deployments in Prefect's UI; `prefect.yaml` beside this module declares them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.deployments.runner import RunnerDeployment

FILE = Path(__file__).with_name("prefect.yaml")


@dataclass(frozen=True)
class Deployment:
    """A deployment of a flow.

    Attributes:
        entrypoint: `module.function` of its flow.
        description: Text above its form in the UI.
        parameters: Defaults of its form.
        schedules: Those that it begins with, as `prefect deploy` reads them.
    """

    name: str
    entrypoint: str
    description: str
    tags: tuple[str, ...]
    parameters: Mapping[str, Any]
    schedules: Sequence[Mapping[str, Any]]

    def serve(self, warehouse: Path) -> "RunnerDeployment":
        """Return the deployment as Prefect's type; its runs import the flow's module.

        The warehouse is the default of the form's field. If the server has the deployment, users
        may have paused it and changed its schedules; both then stay.

        Raises:
            InputError: A declared schedule is invalid.
        """
        from prefect import get_client
        from prefect.exceptions import ObjectNotFound
        from prefect.types.entrypoint import EntrypointType

        module, _, function = self.entrypoint.rpartition(".")
        flow = getattr(import_module(module), function)
        deployment: RunnerDeployment = flow.to_deployment(
            self.name,
            description=self.description,
            tags=[*self.tags],
            parameters={**self.parameters, "warehouse": str(warehouse)},
            schedules=[_make_schedule(declared) for declared in self.schedules],
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
        with get_client(sync_client=True) as client, suppress(ObjectNotFound):
            client.read_deployment_by_name(deployment.full_name)
            deployment.schedules = None
            deployment.model_fields_set.difference_update({"schedules", "paused"})
        return deployment


def _make_schedule(declared: Mapping[str, Any]) -> "DeploymentScheduleCreate":
    from prefect.client.schemas.actions import DeploymentScheduleCreate

    from flows.deployments.schedules import make_plan

    plan = make_plan(*map(declared.get, ("cron", "interval", "rrule", "timezone")))
    active, name = declared.get("active", True), declared.get("slug")
    parameters = declared.get("parameters", {})
    return DeploymentScheduleCreate(schedule=plan, active=active, slug=name, parameters=parameters)


def read_deployments() -> tuple[Deployment, ...]:
    """Return the declared deployments in order."""
    declared = yaml.safe_load(FILE.read_text(encoding="utf-8"))["deployments"]
    return tuple(
        Deployment(
            row["name"],
            row["entrypoint"],
            row["description"],
            tuple(row["tags"]),
            row.get("parameters", {}),
            row.get("schedules", []),
        )
        for row in declared
    )
