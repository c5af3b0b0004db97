"""Plan of a campaign, as a form: policies × workloads × clusters × seeds × options.

The models validate TOML files and render the form of the Prefect deployment. They inherit the
command line's groups of settings.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, field_validator, model_validator

from flows.runs.setting import Setting
from flows.runs.settings import (
    POLICY,
    SEED,
    ClusterSize,
    SimulationSettings,
    make_machines,
    make_settings,
    runtime_names,
)
from flows.runs.toml_file import (
    LOWER_CASE,
    LOWER_CASE_OR_EMPTY,
    read_toml,
    validate_fields,
)
from flows.runs.workload_source import Source, WorkloadSettings, format_names
from predictor.errors import InputError, meant
from predictor.plugins import Kind, plugins
from solver.policies import policy_names
from tasks.record import Parameter, Settings
from warehouse.workloads.kinds import Format

Name = Annotated[str, Field(pattern=LOWER_CASE, max_length=60)]
"""Lower-case letters, digits, dots and dashes: part of file names and of Prefect's keys."""

NameOrEmpty = Annotated[str, Field(pattern=LOWER_CASE_OR_EMPTY, max_length=60)]
"""A `Name` or empty, since Prefect's form sends empty text for an unfilled field."""

Seed = Annotated[int, SEED]


class _Part(BaseModel, extra="forbid", frozen=True):
    """Base of all parts of a plan: immutable; refuses unknown fields."""


@dataclass(frozen=True)
class Named:
    """The name of a workload, a cluster or a variant of the settings."""

    name: Annotated[Name, Setting("Name", "What results call it.")]


class PolicyPlan(_Part):
    """A policy, with the parameters that differ from its defaults."""

    policy: Annotated[str, POLICY]
    name: NameOrEmpty = Field(
        default="", title="Name", description="What results call it; by default as the policy."
    )
    parameters: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(
        default_factory=dict, title="Parameters", description="Of the policy, by name."
    )
    workloads: tuple[str, ...] = Field(
        default=(), title="Workloads", description="Names of those it runs; all by default."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, entry: Any) -> Any:
        entry = {"policy": entry} if isinstance(entry, str) else entry
        if isinstance(entry, dict) and "policy" in entry:
            return {**entry, "name": entry.get("name") or entry["policy"]}
        return entry

    @field_validator("policy")
    @classmethod
    def _known(cls, policy: str) -> str:
        if policy not in (names := policy_names()):
            raise ValueError(f"unknown policy {policy!r}; {meant(policy, names)}")
        return policy


class WorkloadPlan(_Part, WorkloadSettings, Named):
    """A workload: a trace with its tables, or parameters of the generator."""

    clusters: tuple[str, ...] = Field(
        default=(), title="Clusters", description="Names of those it runs on; all by default."
    )
    seeds: tuple[Seed, ...] | None = Field(
        default=None,
        min_length=1,
        title="Seeds",
        description="Its own, in place of the campaign's.",
    )

    @field_validator("format")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in (names := format_names()):
            raise ValueError(f"unknown format {name!r}; {meant(name, names)}")
        return name

    @property
    def draws(self) -> bool:
        """Whether its jobs depend on a seed."""
        return self.trace is None or self.format not in (
            Format.PUBLIC,
            Format.TIRESIAS,
            Format.JOBS,
        )

    def source(self, seed: int) -> Source:
        """Return the source of its jobs under a seed, or under 0 if no job depends on the seed."""
        own = {field.name: getattr(self, field.name) for field in fields(WorkloadSettings)}
        return Source(**own, seed=seed if self.draws else 0)


class ClusterPlan(_Part, ClusterSize, Named):
    """A cluster of equal nodes, or of several pools."""

    @model_validator(mode="after")
    def _sized(self) -> "ClusterPlan":
        try:
            make_machines(self)
        except InputError as error:
            raise ValueError(f"{error.place}: {error.problem}; {error.remedy}") from None
        return self


class SettingsPlan(_Part, SimulationSettings):
    """Settings of runs that differ from the defaults."""

    @field_validator("runtime")
    @classmethod
    def _known(cls, runtime: str) -> str:
        if runtime not in (names := runtime_names()):
            raise ValueError(f"unknown runtime {runtime!r}; {meant(runtime, names)}")
        return runtime

    def settings(self, policy: PolicyPlan, cluster: ClusterPlan, seed: int) -> Settings:
        """Return the settings of a run of a policy on a cluster."""
        values = sorted(policy.parameters.items())
        parameters = (Parameter(name, value) for name, value in values)
        return make_settings(policy.policy, cluster, self, parameters=parameters, seed=seed)


class OptionsPlan(SettingsPlan, Named):
    """A variant: settings that differ from the campaign's, under a name."""

    def over(self, settings: SettingsPlan) -> SettingsPlan:
        """Return the campaign's settings, overridden by this variant's."""
        overrides = {name: getattr(self, name) for name in self.model_fields_set - {"name"}}
        return settings.model_copy(update=overrides)


class CampaignPlan(_Part):
    """Policies × workloads × clusters × seeds × options; each combination is a simulation."""

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
    def _names_fit(self) -> "CampaignPlan":
        workloads = _unique("workloads", self.workloads)
        clusters = _unique("clusters", self.clusters)
        _unique("policies", self.policies)
        _unique("options", self.options)
        for seeds in (self.seeds, *(workload.seeds or () for workload in self.workloads)):
            if len(set(seeds)) < len(seeds):
                raise ValueError("seeds: a seed is listed twice; remove the duplicate")
        for policy in self.policies:
            _known(f"policy {policy.name!r}", "workload", policy.workloads, workloads)
        for workload in self.workloads:
            _known(f"workload {workload.name!r}", "cluster", workload.clusters, clusters)
        return self


def _unique(field: str, parts: Sequence[Any]) -> list[str]:
    names = [part.name for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"{field}: the name {name!r} is used twice; give each a name of its own"
            )
    return names


def _known(place: str, kind: str, asked: Iterable[str], names: Sequence[str]) -> None:
    for name in asked:
        if name not in names:
            raise ValueError(
                f"{place}: no {kind} is named {name!r}; choose from {', '.join(names)}"
            )


FILES = ("trace", "profile", "throughputs", "applications", "regimes")
"""Fields of a workload that hold paths, relative to the campaign's file."""


def read_campaign(path: Path) -> CampaignPlan:
    """Read a campaign.

    Raises:
        InputError: The file is missing or no TOML, or a field is invalid; the error names the
            file and the field.
    """
    fields = read_toml(path, "a campaign's TOML file")
    _resolve_files(path, fields)
    return validate_fields(path, CampaignPlan, fields, "a campaign")


def _resolve_files(path: Path, fields: dict[str, Any]) -> None:
    """Resolve paths relative to the folder of the campaign's file; refuse missing files."""
    workloads = fields.get("workloads")
    for number, workload in enumerate(workloads if isinstance(workloads, list) else ()):
        for field in FILES:
            if isinstance(workload, dict) and isinstance(workload.get(field), str):
                named = field in ("profile", "throughputs")
                if named and workload[field] in plugins(Kind.THROUGHPUTS):
                    continue
                file = (path.parent / workload[field]).resolve()
                if not file.is_file():
                    raise InputError(
                        f"{path}: workloads[{number}].{field}",
                        f"there is no file {file}",
                        "paths start from the folder of the campaign's file",
                    )
                workload[field] = str(file)
