"""What a campaign is asked to do, as a form: policies × workloads × clusters × seeds × options.

The same models read a TOML file and draw the form of the Prefect deployment, so each field
has a title, bounds and a line that says what it means.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from flows.runs.workload_source import MOST_SEED, Source
from predictor.basis import Basis
from solver.fidelity import Fidelity
from solver.policies import POLICIES
from warehouse.workloads.workload import Arrivals, Format

Name = Annotated[
    str, Field(title="Name", pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=60)
]
"""Lower-case letters, digits, dots and dashes: part of file names and of Prefect's keys."""

NameOrEmpty = Annotated[str, Field(pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$", max_length=60)]
"""The same, or empty, as Prefect's form sends what is not filled in."""

Seed = Annotated[int, Field(ge=0, le=MOST_SEED, strict=True)]


class Part(BaseModel):
    """What all parts of a plan share: unknown fields are refused, nothing is changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PolicyPlan(Part):
    """A policy, with the parameters that are not its defaults."""

    policy: str = Field(
        title="Policy",
        description="One that `shockwave policies` lists.",
        examples=["shockwave"],
        json_schema_extra={"enum": list(POLICIES)},  # a choice in Prefect's form
    )
    name: NameOrEmpty = Field(
        default="", title="Name", description="Told in results; the policy's own by default."
    )
    parameters: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(
        default_factory=dict, title="Parameters", description="By name, as --set takes them."
    )
    workloads: tuple[str, ...] = Field(
        default=(), title="Workloads", description="Names of those it runs; all by default."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: Any) -> Any:
        given = {"policy": given} if isinstance(given, str) else given
        if isinstance(given, dict) and "policy" in given:
            return {**given, "name": given.get("name") or given["policy"]}
        return given

    @field_validator("policy")
    @classmethod
    def _known(cls, policy: str) -> str:
        if policy not in POLICIES:
            raise ValueError(f"unknown policy {policy!r}; known are {', '.join(POLICIES)}")
        return policy


class WorkloadPlan(Part):
    """A trace with its tables, or what to generate; fields are those of the command line."""

    name: Name = Field(title="Name", description="Told in results.")
    clusters: tuple[str, ...] = Field(
        default=(), title="Clusters", description="Names of those it runs on; all by default."
    )
    seeds: tuple[Seed, ...] | None = Field(
        default=None,
        min_length=1,
        title="Seeds",
        description="Its own, in place of the campaign's.",
    )
    trace: Path | None = Field(
        default=None, title="Trace", description="Job trace; without it, jobs are generated."
    )
    format: Format = Field(default=Format.PUBLIC, title="Format", description="Of the trace.")
    profile: Path | None = Field(
        default=None, title="Profile", description="Throughput table (JSON) of a public trace."
    )
    regimes: Path | None = Field(
        default=None, title="Regimes", description="Regimes (CSV) of a public trace."
    )
    columns: str = Field(
        default="", title="Columns", description="Of a table: ROLE=COLUMN,… by their meaning."
    )
    only: str = Field(
        default="", title="Only", description="Lines of a table to read: COLUMN=VALUE,…"
    )
    skip_unusable: bool = Field(
        default=False,
        strict=True,
        title="Skip unusable lines",
        description="Leave out lines of a table that can be no jobs.",
    )
    jobs: int = Field(
        default=60, ge=1, le=1_000_000, strict=True, title="Jobs", description="To generate."
    )
    arrivals: Arrivals = Field(
        default=Arrivals.POISSON, title="Arrivals", description="How generated jobs arrive."
    )
    mean_interarrival_seconds: float | None = Field(
        default=None, gt=0, title="Mean gap (s)", description="Between generated jobs; 90 s."
    )
    contention_factor: float | None = Field(
        default=None,
        gt=0,
        title="Contention factor",
        description="In its place: work that arrives over what the GPUs can do.",
    )
    shortest_seconds: float = Field(
        default=720.0, gt=0, title="Shortest (s)", description="Least isolated run time."
    )
    longest_seconds: float = Field(
        default=18_000.0, gt=0, title="Longest (s)", description="Largest isolated run time."
    )
    scale_factors: str = Field(
        default="1=0.6,2=0.3,4=0.09,8=0.01",
        title="Scale factors",
        description="Weights of generated scale factors: GPUS=WEIGHT,…",
    )
    modes: str = Field(
        default="gns=0.5,accordion=0.5",
        title="Adaptation modes",
        description="Weights of drawn modes: MODE=WEIGHT,…",
    )

    @property
    def draws(self) -> bool:
        """Whether its jobs depend on a seed."""
        return self.trace is None or self.format in (Format.PHILLY, Format.TABLE)

    def source(self, seed: int) -> Source:
        """Where its jobs come from, for one seed; forecasts draw from it in any case."""
        own = self.model_dump(exclude={"name", "clusters", "seeds"})
        return Source(**own, seed=seed if self.draws else 0)


class ClusterPlan(Part):
    """A cluster of equal nodes."""

    name: Name = Field(title="Name", description="Told in results.")
    gpus: int = Field(ge=1, le=1_000_000, strict=True, title="GPUs", description="In all.")
    gpus_per_node: int = Field(
        default=1, ge=1, strict=True, title="GPUs per node", description="Must divide the GPUs."
    )


class SettingsPlan(Part):
    """How runs are made, where it is not the default."""

    fidelity: Fidelity = Field(
        default=Fidelity.FAIR,
        title="Fidelity",
        description="Policies all alike, or with the limits of the published simulator.",
    )
    backend: str = Field(
        default="auto", title="Back end", description="auto, lagrangian, gurobi or highs."
    )
    round_seconds: float = Field(
        default=120.0, ge=1, title="Round (s)", description="Length of a round."
    )
    restart_seconds: float = Field(
        default=20.0, ge=0, title="Restart (s)", description="What a restart costs a job."
    )
    window: int = Field(
        default=20, ge=1, le=1_000, strict=True, title="Window", description="Rounds planned ahead."
    )
    forecasts: Basis = Field(
        default=Basis.POSTERIOR, title="Forecasts", description="What forecasts are made from."
    )


class OptionsPlan(SettingsPlan):
    """A variant: settings that differ from the campaign's, under a name."""

    name: Name = Field(title="Name", description="Told in results.")

    def over(self, settings: SettingsPlan) -> SettingsPlan:
        """The campaign's settings with those that are given here in their place."""
        given = {name: getattr(self, name) for name in self.model_fields_set - {"name"}}
        return settings.model_copy(update=given)


class Campaign(Part):
    """Policies × workloads × clusters × seeds × options; a run of the simulator for each."""

    name: Name = Field(title="Name", description="The first part of the campaign's id.")
    description: str = Field(
        default="", max_length=500, title="Description", description="What it is to find out."
    )
    policies: tuple[PolicyPlan, ...] = Field(
        min_length=1, title="Policies", description="Names, or tables with parameters."
    )
    workloads: tuple[WorkloadPlan, ...] = Field(
        min_length=1, title="Workloads", description="Traces, or what to generate."
    )
    clusters: tuple[ClusterPlan, ...] = Field(
        min_length=1, title="Clusters", description="Where the workloads run."
    )
    seeds: tuple[Seed, ...] = Field(
        default=(0,),
        min_length=1,
        title="Seeds",
        description="Of generated workloads and of all that is drawn in a run.",
    )
    options: tuple[OptionsPlan, ...] = Field(
        default=(), title="Options", description="Variants of the settings; none by default."
    )
    settings: SettingsPlan = Field(
        default_factory=SettingsPlan, title="Settings", description="Of all runs."
    )
    history: tuple[str, ...] = Field(
        default=(),
        title="History",
        description="Earlier runs of the warehouse whose finished jobs to learn from.",
    )

    @model_validator(mode="after")
    def _names_fit(self) -> "Campaign":
        workloads = _unique("workloads", self.workloads)
        clusters = _unique("clusters", self.clusters)
        _unique("policies", self.policies)
        _unique("options", self.options)
        for seeds in (self.seeds, *(workload.seeds or () for workload in self.workloads)):
            if len(set(seeds)) < len(seeds):
                raise ValueError("seeds: one is there twice; leave one out")
        for policy in self.policies:
            _known(f"policy {policy.name!r}", "workload", policy.workloads, workloads)
        for workload in self.workloads:
            _known(f"workload {workload.name!r}", "cluster", workload.clusters, clusters)
        return self


def _unique(field: str, parts: Sequence[Any]) -> list[str]:
    names = [part.name for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{field}: the name {name!r} is there twice; give each its own")
    return names


def _known(place: str, kind: str, asked: Iterable[str], names: Sequence[str]) -> None:
    for name in asked:
        if name not in names:
            raise ValueError(f"{place}: no {kind} is named {name!r}; there are {', '.join(names)}")
