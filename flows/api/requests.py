"""Bodies of requests to a service: nodes, tenants' terms, hypothetical changes."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from flows.runs.job_file import JobFile
from predictor.errors import InputError, check_plain
from solver.inventory import MOST_GPUS
from tasks.commands import CommandKind


class TenantUpdate(BaseModel):
    """Fields of `TenantTerms` to change; the others keep their values."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1.0
    gpu_hours: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    window_hours: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = 24.0
    rollover: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    images: Annotated[
        tuple[Annotated[str, Field(max_length=255)], ...], Field(max_length=1000)
    ] = ()


class NodeRequest(BaseModel):
    """A node to add to the cluster; see `NewNode`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(min_length=1, max_length=60)] = ""
    gpu_type: Annotated[str, Field(min_length=1, max_length=60)] = ""
    gpus: Annotated[int, Field(ge=1, le=MOST_GPUS)] = 1
    price: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0


Names = Annotated[list[str], Field(max_length=100)]
"""Jobs by id or name, or nodes by index or name."""


class WhatIf(BaseModel):
    """A hypothetical change, which is forecast but not made; `budget` has factors by tenant."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    submit: list[JobFile] = Field(default_factory=list, max_length=100)
    cancel: Names = Field(default_factory=list)
    hold: Names = Field(default_factory=list)
    release: Names = Field(default_factory=list)
    drain: Names = Field(default_factory=list)
    cordon: Names = Field(default_factory=list)
    uncordon: Names = Field(default_factory=list)
    budget: dict[str, Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]] = Field(
        default_factory=dict, max_length=100
    )

    @property
    def commands(self) -> list[tuple[CommandKind, str]]:
        """The commands about jobs and nodes, with their targets."""
        kinds = (
            *(CommandKind.CANCEL, CommandKind.HOLD, CommandKind.RELEASE),
            *(CommandKind.DRAIN, CommandKind.CORDON, CommandKind.UNCORDON),
        )
        return [(kind, target) for kind in kinds for target in getattr(self, kind.value)]

    @property
    def changes(self) -> bool:
        """Whether anything changes."""
        return bool(self.submit or self.commands or self.budget)


def parse_budget_factor(text: str) -> tuple[str, float]:
    """Parse TENANT=FACTOR: a tenant and the factor on its budgets.

    Raises:
        InputError: The text is not of that form.
    """
    tenant, _, number = text.rpartition("=")
    try:
        value = float(check_plain(number))
    except ValueError:
        value = 0.0
    if not tenant or not 0.0 < value <= 1e6:
        raise InputError("budget", f"{text[:80]!r} is not TENANT=FACTOR", "give one like team-a=2")
    return tenant, value
