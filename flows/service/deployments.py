"""What can be started from Prefect's UI; `prefect.yaml` says the same for work pools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment


@dataclass(frozen=True)
class Deployment:
    """A flow that is offered.

    Attributes:
        name: Of the deployment.
        entrypoint: `module:function` of its flow.
        description: What a run of it does, in the UI above its form.
        tags: Beside `shockwave`.
        parameters: What its form begins with, beside the warehouse.
    """

    name: str
    entrypoint: str
    description: str
    tags: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def served(self, warehouse: Path) -> "RunnerDeployment":
        """As a process serves it; runs import the flow's module.

        Args:
            warehouse: What the form's warehouse is to begin with.
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
"""What the form of a campaign begins with, so that there is something to start at once."""

DEPLOYMENTS: Sequence[Deployment] = (
    Deployment(
        "simulate",
        "flows.service.stepping:simulate",
        "Runs a generated workload on the virtual cluster, to its end or for some rounds.",
        ("virtual",),
    ),
    Deployment(
        "round",
        "flows.service.stepping:step",
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
        "flows.service.replaying:replay",
        "Predicts and solves recorded rounds again; fails if anything comes out otherwise.",
        ("audit",),
    ),
    Deployment(
        "report",
        "flows.service.reporting:report",
        "Writes one self-contained page about runs or a campaign, and links to it.",
        ("report",),
    ),
)
"""In the order in which they are served."""
