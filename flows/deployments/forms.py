"""Forms of the deployed flows, with titles, bounds and choices.

Prefect renders and validates a form before it creates a flow run. Other invalid input is an
`InputError` of the flow.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from flows.runs.settings import (
    DEFAULT_POLICY,
    GPUS,
    POLICY,
    SEED,
    ClusterSize,
    SimulationSettings,
    make_settings,
)
from flows.runs.workload_source import Source, WorkloadSettings
from predictor.errors import InputError, ShockwaveError
from tasks.record import Settings
from warehouse.wording import counted

MOST_ROUNDS = 10_000
"""Most rounds of a flow run; each is five task runs. An engineering bound."""

MOST_SHOWN = 500
"""Most rows of a result's table, which the UI shows on one page. An engineering bound."""

RunId = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\w.-]+$")]
"""A run's id, as `SELECT run FROM runs` lists it."""


class Form(BaseModel, extra="forbid", frozen=True):
    """Base of all forms: immutable, refuses unknown fields."""

    def named(self, error: ShockwaveError) -> ShockwaveError:
        """Return the error; if it is about a field, with the field's title as its place."""
        field = self.model_json_schema()["properties"].get(error.place)
        if field is None:
            return error
        title = field.get("title", error.place.capitalize())  # a choice has its title in its type
        return type(error)(title, error.problem, error.remedy)


class RoundForm(Form):
    """The run to step and the number of rounds."""

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


class AuditForm(Form):
    """What to verify, and a hash that was kept elsewhere."""

    run: RunId | None = Field(
        default=None, title="Run", description="A recorded run; all runs if left empty."
    )
    expect: str = Field(
        default="",
        max_length=64,
        title="Expected hash",
        description="Kept elsewhere, of a record of the run or an entry of the ledger.",
    )

    @property
    def about(self) -> str:
        """What is verified, in words."""
        return self.run or "all runs"


class MaintenanceForm(Form):
    """How long flow runs are kept."""

    days: float = Field(
        default=30.0,
        ge=1.0,
        le=3_650.0,
        title="Days",
        description="For how long ended flow runs of Shockwave's deployments are kept.",
    )


@dataclass(frozen=True)
class PolicyChoice:
    """The policy; `make_policy` refuses unknown names."""

    policy: Annotated[str, POLICY] = DEFAULT_POLICY


def trace_folder(warehouse: Path) -> Path:
    """Return the warehouse's folder of traces that forms name."""
    return warehouse / "traces"


class SimulationForm(Form, SimulationSettings, ClusterSize, WorkloadSettings, PolicyChoice):
    """A workload, from a file or generated, and the settings of its run."""

    trace: Path | None = Field(
        default=None,
        title="Trace",
        description="A file in the warehouse's folder traces; without it, jobs are generated.",
    )
    profile: Path | None = Field(
        default=None,
        title="Profile",
        description="Throughput table (JSON) of a public trace, in the same folder.",
    )
    throughputs: Path | None = Field(
        default=None,
        title="Throughputs",
        description="In its place: Gavel's table (CSV, may be .gz), in the same folder.",
    )
    regimes: Path | None = Field(
        default=None,
        title="Regimes",
        description="Regimes (CSV) of a public trace, in the same folder.",
    )
    gpus: Annotated[int, GPUS] = 16
    seed: Annotated[int, SEED] = 0
    rounds: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        title="Rounds",
        description="How many to run now, for `step` to go on from; to the end if left empty.",
    )

    @property
    def about(self) -> str:
        """The workload, in words."""
        return counted(self.jobs, "job") if self.trace is None else self.trace.name

    @property
    def machines(self) -> str:
        """The cluster, in words."""
        return self.pools or counted(self.gpus, "GPU")

    def source(self, warehouse: Path) -> Source:
        """Return the workload, with files from the warehouse's folder of traces.

        Raises:
            InputError: There is no such file.
        """
        asked = {field.name: getattr(self, field.name) for field in fields(WorkloadSettings)}
        folder = trace_folder(warehouse)
        for name in ("trace", "profile", "throughputs", "applications", "regimes"):
            file = asked[name]
            if file is not None:
                asked[name] = folder / file.name
                if file.name != str(file) or not asked[name].exists():
                    problem = f"{str(file)!r} is not in the folder traces of the warehouse"
                    raise InputError(name, problem, "copy it there")
        return Source(**asked, seed=self.seed)

    @property
    def settings(self) -> Settings:
        """Settings of the run."""
        size: ClusterSize = self
        if self.pools:
            size = ClusterSize(pools=self.pools, cells=self.cells, levels=self.levels)
        return make_settings(self.policy, size, self, seed=self.seed)


class ReportForm(Form):
    """The runs of a report, the policy that others are compared with, and its title."""

    about: str = Field(
        min_length=1,
        max_length=2_000,
        title="Runs or campaign",
        description="A run, several as RUN,RUN, or the id of a campaign.",
    )
    against: str = Field(
        default="",
        max_length=200,
        title="Against",
        description="Policy to compare the others with; the first if empty.",
    )
    title: str = Field(
        default="", max_length=200, title="Title", description="Of the page; made up if empty."
    )
