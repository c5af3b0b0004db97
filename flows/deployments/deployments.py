"""Deployments in Prefect's UI; `prefect.yaml` beside this module declares them."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

FILE = Path(__file__).with_name("prefect.yaml")


@dataclass(frozen=True)
class Deployment:
    """A deployment of a flow.

    Attributes:
        entrypoint: `module.function` of its flow.
        description: Text above its form in the UI.
        parameters: Defaults of its form.
    """

    name: str
    entrypoint: str
    description: str
    tags: tuple[str, ...]
    parameters: Mapping[str, Any]

    def serve(self, warehouse: Path) -> "RunnerDeployment":
        """Return the deployment as Prefect's type; its runs import the flow's module.

        The warehouse is the default of the form's field.
        """
        from prefect.types.entrypoint import EntrypointType

        module, _, function = self.entrypoint.rpartition(".")
        flow = getattr(import_module(module), function)
        deployment: RunnerDeployment = flow.to_deployment(
            self.name,
            description=self.description,
            tags=[*self.tags],
            parameters={**self.parameters, "warehouse": str(warehouse)},
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
        return deployment


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
        )
        for row in declared
    )
