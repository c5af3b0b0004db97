"""Bodies of requests to a service: nodes, tenants' terms, hypothetical changes."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from flows.runs.job_file import JobFile
from predictor.errors import InputError, check_plain, first_line
from solver.inventory import MOST_GPUS
from tasks.commands import CommandKind
from warehouse.workloads.moments import Moments

MOST_WINDOWS, MOST_WINDOW_HOURS = 100, 10_000.0
"""Most windows of a rule, and most hours of a window. Engineering bounds."""


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


class WindowRequest(BaseModel):
    """A time for which a node is set aside.

    Attributes:
        start: Its start; by default now.
        rrule: Rule of RFC 5545 that repeats it, with COUNT or UNTIL.
        zone: Time zone, such as Europe/Berlin, in which the rule repeats the time of day; by
            default the offset of `start`, whether or not it is summer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    hours: Annotated[float, Field(gt=0, le=MOST_WINDOW_HOURS, allow_inf_nan=False)]
    start: AwareDatetime | None = None
    rrule: Annotated[str, Field(max_length=500)] = ""
    zone: Annotated[str, Field(max_length=100)] = ""

    def list_starts(self, now: datetime) -> list[datetime]:
        """Return the start of each window, ascending.

        Raises:
            InputError: The windows are over, overlap or are too many, or the rule or the zone is
                invalid.
        """
        start, length = self.start or now, timedelta(hours=self.hours)
        try:
            if self.zone:
                start = start.astimezone(Moments.of(self.zone).zone)
            starts = self._repeat(start) if self.rrule else [start]
            over = not starts or starts[-1] + length <= now
        except OverflowError:
            raise InputError("start", "is out of bounds", "give another year") from None
        if over:
            raise InputError("start", "the window is over before it begins", "give a later one")
        if any(later - earlier < length for earlier, later in pairwise(starts)):
            raise InputError("rrule", "the windows overlap", "give fewer hours")
        return [at for at in starts if at + length > now]

    def _repeat(self, start: datetime) -> list[datetime]:
        from dateutil.rrule import rrulestr  # type: ignore[import-untyped]

        parts = {name: text for name, _, text in (p.partition("=") for p in self.rrule.split(";"))}
        if not {"COUNT", "UNTIL"} & parts.keys():
            raise InputError("rrule", "never ends", "add COUNT=10 or UNTIL=20270101T000000Z")
        if not parts.get("UNTIL", "Z").endswith("Z"):
            remedy = "give date, time and a Z, as in UNTIL=20270101T000000Z"
            raise InputError("rrule", "UNTIL is not a time in UTC", remedy)
        try:
            rule = islice(rrulestr(self.rrule, dtstart=start), MOST_WINDOWS + 1)
            starts = [at.astimezone(UTC) for at in rule]
        except (ValueError, TypeError, OverflowError) as error:
            remedy = "give one such as 'FREQ=WEEKLY;COUNT=10'"
            raise InputError("rrule", f"is not valid ({first_line(error)})", remedy) from None
        if len(starts) > MOST_WINDOWS:
            remedy = "give an earlier UNTIL or a lower COUNT"
            raise InputError("rrule", f"has more than {MOST_WINDOWS} windows", remedy)
        return starts


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
