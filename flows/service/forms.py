"""What the deployed flows ask for: forms with titles, bounds and choices.

Prefect draws them and checks them before a flow run is made; whatever else is wrong is an
`InputError` of the flow.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from flows.runs.workload_source import MOST_SEED, Source
from predictor.basis import Basis
from solver.fidelity import Fidelity
from solver.policies import POLICIES
from tasks.record import Settings
from warehouse.workloads.generator import MOST_JOBS
from warehouse.workloads.workload import Arrivals

MOST_ROUNDS = 10_000
"""Rounds that one flow run may be asked for; each is five task runs."""

PolicyName = Annotated[str, Field(json_schema_extra={"enum": list(POLICIES)})]
"""Shown as a choice; `make_policy` refuses others."""

RunId = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\w.-]+$")]
"""The id of a run, as `SELECT run FROM runs` lists it."""


class Form(BaseModel):
    """What all forms share: a field that is not known is a mistake."""

    model_config = ConfigDict(extra="forbid")


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


class SimulationForm(Form):
    """A generated workload and how to run it."""

    policy: PolicyName = Field(
        default="shockwave", title="Policy", description="Who schedules; see shockwave policies."
    )
    jobs: int = Field(default=60, ge=1, le=MOST_JOBS, title="Jobs", description="How many.")
    gpus: int = Field(
        default=16, ge=1, le=1_000_000, title="GPUs", description="GPUs in the cluster."
    )
    gpus_per_node: int = Field(
        default=1, ge=1, le=1_000, title="GPUs per node", description="Must divide the GPUs."
    )
    seed: int = Field(
        default=0, ge=0, le=MOST_SEED, title="Seed", description="Of all that is drawn."
    )
    arrivals: Arrivals = Field(
        default=Arrivals.POISSON, title="Arrivals", description="When the jobs arrive."
    )
    mean_interarrival_seconds: float | None = Field(
        default=None,
        gt=0,
        le=1e9,
        title="Mean gap between arrivals (s)",
        description="For Poisson arrivals; 90 if left empty.",
    )
    round_seconds: float = Field(
        default=120.0, ge=1, le=1e6, title="Round (s)", description="Length of a round."
    )
    restart_seconds: float = Field(
        default=20.0,
        ge=0,
        le=1e6,
        title="Restart (s)",
        description="What a restart costs a job; less than a round.",
    )
    window: int = Field(
        default=20, ge=1, le=1_000, title="Window (rounds)", description="Rounds to plan ahead."
    )
    fidelity: Fidelity = Field(
        default=Fidelity.FAIR,
        title="Fidelity",
        description="Policies all alike, or with the published simulator's limits.",
    )
    forecasts: Basis = Field(
        default=Basis.POSTERIOR,
        title="Forecasts",
        description="From what was seen and learned, the present batch size, or the truth.",
    )
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
        return Source(
            jobs=self.jobs,
            arrivals=self.arrivals,
            mean_interarrival_seconds=self.mean_interarrival_seconds,
            seed=self.seed,
        )

    @property
    def settings(self) -> Settings:
        """What the run is asked to do."""
        return Settings(
            policy=self.policy,
            gpus=self.gpus,
            gpus_per_node=self.gpus_per_node,
            fidelity=self.fidelity,
            round_seconds=self.round_seconds,
            restart_seconds=self.restart_seconds,
            window=self.window,
            forecasts=self.forecasts,
            seed=self.seed,
        )


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
