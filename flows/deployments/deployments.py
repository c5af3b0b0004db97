"""Deployments in Prefect's UI; `prefect.yaml` defines the same for work pools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment


@dataclass(frozen=True)
class Deployment:
    """A deployment of a flow.

    Attributes:
        name: Name of the deployment.
        entrypoint: `module:function` of its flow.
        description: Description, shown above its form in the UI.
        tags: Tags in addition to `shockwave`.
        parameters: Defaults of its form, in addition to the warehouse.
    """

    name: str
    entrypoint: str
    description: str
    tags: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def served(self, warehouse: Path) -> "RunnerDeployment":
        """The deployment as Prefect's type; its runs import the flow's module.

        Args:
            warehouse: Default of the form's warehouse.
        """
        from prefect.types.entrypoint import EntrypointType

        module, _, function = self.entrypoint.partition(":")
        flow = getattr(import_module(module), function)
        deployment: RunnerDeployment = flow.to_deployment(
            self.name,
            description=self.description,
            tags=["shockwave", *self.tags],
            parameters={"warehouse": str(warehouse), **self.parameters},
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
        return deployment


FIRST_PLAN: Mapping[str, Any] = {
    "name": "first",
    "policies": [{"policy": "shockwave"}, {"policy": "fifo"}, {"policy": "srtf"}],
    "workloads": [{"name": "generated", "jobs": 20}],
    "clusters": [{"name": "gpus16", "gpus": 16}],
    "seeds": [0],
}
"""Default plan in the form of a campaign, which can be started as it is."""

DEPLOYMENTS: Sequence[Deployment] = (
    Deployment(
        "simulate",
        "flows.deployments.stepping:simulate",
        "Runs a trace or generated jobs on the virtual cluster, to their end or for some rounds.",
        ("virtual",),
    ),
    Deployment(
        "round",
        "flows.deployments.stepping:step",
        "Steps an unfinished run by some rounds, each as five task runs with its artifacts.",
        ("virtual",),
    ),
    Deployment(
        "campaign",
        "flows.campaigns.campaign:campaign",
        "Runs policies × workloads × clusters × seeds; finished cells are found, not run again.",
        ("virtual", "comparison"),
        {"plan": FIRST_PLAN},
    ),
    Deployment(
        "replay",
        "flows.deployments.replaying:replay",
        "Predicts and solves recorded rounds again; fails if anything comes out otherwise.",
        ("audit",),
    ),
    Deployment(
        "report",
        "flows.deployments.reporting:report",
        "Writes one self-contained page about runs or a campaign, and links to it.",
        ("report",),
    ),
)
"""The deployments, in the order in which they are served."""
