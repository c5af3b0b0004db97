"""What the deployed flows ask for: forms with titles, bounds and choices.

Prefect draws them and checks them before a flow run is made; whatever else is wrong is an
`InputError` of the flow.
"""

from dataclasses import dataclass, fields
from typing import Annotated

from pydantic import BaseModel, Field

from flows.runs.settings import (
    DEFAULT_POLICY,
    GPUS,
    POLICY,
    SEED,
    ClusterSize,
    SimulationSettings,
    recorded,
)
from flows.runs.workload_source import Generated, Source
from predictor.errors import ShockwaveError
from tasks.record import Settings

MOST_ROUNDS = 10_000
"""Rounds that one flow run may be asked for; each is five task runs."""

RunId = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\w.-]+$")]
"""The id of a run, as `SELECT run FROM runs` lists it."""


class Form(BaseModel, extra="forbid", frozen=True):
    """What all forms share: a field that is not known is a mistake."""

    def named(self, error: ShockwaveError) -> ShockwaveError:
        """An error with the title of the field at fault as its place, if it is a field's."""
        field = self.model_json_schema()["properties"].get(error.place)
        if field is None:
            return error
        title = field.get("title", error.place.capitalize())  # of a choice, its type has it
        return type(error)(title, error.problem, error.remedy)


class RoundForm(Form):
    """A step of an unfinished run."""

    run: RunId = Field(title="Run", description="An unfinished run of the warehouse.")
    rounds: int = Field(
        default=1,
        ge=1,
        le=MOST_ROUNDS,
        title="Rounds",
        description="How many rounds to run now; fewer if the run ends before.",
    )


class ReplayForm(Form):
    """Which recorded rounds to predict and solve again."""

    run: RunId = Field(title="Run", description="A recorded run, finished or not.")
    round: int | None = Field(
        default=None, ge=0, title="Round", description="One round, from 0; all if left empty."
    )


@dataclass(frozen=True)
class PolicyChoice:
    """Who schedules; `make_policy` refuses others than those shown."""

    policy: Annotated[str, POLICY] = DEFAULT_POLICY


class SimulationForm(Form, SimulationSettings, ClusterSize, Generated, PolicyChoice):
    """A generated workload and how to run it."""

    gpus: Annotated[int, GPUS] = 16
    seed: Annotated[int, SEED] = 0
    rounds: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        title="Rounds",
        description="How many to run now, for `round` to go on from; to the end if left empty.",
    )

    @property
    def source(self) -> Source:
        """The workload."""
        asked = {field.name: getattr(self, field.name) for field in fields(Generated)}
        return Source(**asked, seed=self.seed)

    @property
    def settings(self) -> Settings:
        """What the run is asked to do."""
        return recorded(self.policy, self, self, seed=self.seed)


class ReportForm(Form):
    """What a report is about."""

    about: str = Field(
        min_length=1,
        max_length=2_000,
        title="Runs or campaign",
        description="A run, several as RUN,RUN, or the id of a campaign.",
    )
    title: str = Field(
        default="", max_length=200, title="Title", description="Of the page; made up if empty."
    )
