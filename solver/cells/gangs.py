"""Requests of gangs for cells, and the answers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from predictor.errors import InputError

if TYPE_CHECKING:
    from solver.cells.tree import Physical, Promised

OPPORTUNISTIC = -1
"""Priority of a gang on idle GPUs, which any guaranteed gang preempts."""
HIGHEST = 1000
"""The highest priority of a guaranteed gang, within its tenant; the lowest is 0. A convention."""


@dataclass(frozen=True, slots=True)
class Request:
    """A gang that asks for GPUs, all or none.

    Attributes:
        name: Name of the gang.
        tenant: Its tenant.
        priority: 0 to `HIGHEST`: guaranteed, and before lower ones of its tenant;
            `OPPORTUNISTIC`: not guaranteed.
        members: GPUs of each member; each has them on one node.
        gpu_type: GPU type; empty for any.
        pin: The tenant's pinned cell that it has to lie in; empty for none.
        lazy: Whether a higher priority of its tenant demotes it to opportunistic first, where it
            is, rather than preempt it (HiveD's lazy preemption).

    Raises:
        InputError: The priority or a member is out of range, or an opportunistic gang is pinned.
    """

    name: str
    tenant: str
    priority: int
    members: tuple[int, ...]
    gpu_type: str = ""
    pin: str = ""
    lazy: bool = True

    def __post_init__(self) -> None:
        if not OPPORTUNISTIC <= self.priority <= HIGHEST:
            raise InputError(
                f"{self.name}.priority",
                f"{self.priority} is out of range",
                f"give 0 to {HIGHEST}, or {OPPORTUNISTIC} for an opportunistic gang",
            )
        if not self.members or min(self.members) < 1:
            raise InputError(f"{self.name}.members", "a member has no GPUs", "give at least 1 each")
        if self.pin and not self.guaranteed:
            raise InputError(
                f"{self.name}.pin",
                "opportunistic gangs have no cells",
                "give a priority, or no pin",
            )

    @property
    def guaranteed(self) -> bool:
        """Whether it runs in its tenant's cells."""
        return self.priority > OPPORTUNISTIC


@dataclass(frozen=True, slots=True)
class Slot:
    """A GPU by its node's name and its index there."""

    node: str
    gpu: int


@dataclass(frozen=True, slots=True)
class Placed:
    """The gang runs from now on.

    Attributes:
        slots: The GPUs of each member.
    """

    slots: tuple[tuple[Slot, ...], ...]


@dataclass(frozen=True, slots=True)
class Preempts:
    """The gang has reserved its GPUs; it runs once its victims on them have ended.

    Attributes:
        victims: Names of these gangs.
    """

    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waits:
    """There is no place for the gang; nothing changed.

    Attributes:
        reason: Why, in words.
    """

    reason: str


Answer = Placed | Preempts | Waits


@dataclass(frozen=True, slots=True)
class PromisedCell:
    """State of a cell that is promised to a tenant.

    Attributes:
        pool: Its pool.
        level: Name of its level.
        pin: Name of the pin; empty for any cell of its level.
        slots: The GPUs that serve it; empty while no gang has taken it.
        healthy: Whether it is served, or can be served, by healthy nodes only.
    """

    pool: str
    level: str
    pin: str
    slots: frozenset[Slot]
    healthy: bool


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A running gang as it is kept while the cells are made anew.

    Attributes:
        request: Its request.
        slots: The GPUs of each member.
        levels: Name of the level of the promised cell that each GPU was placed in; empty where
            the gang is opportunistic, or was demoted.
    """

    request: Request
    slots: tuple[tuple[Slot, ...], ...]
    levels: tuple[tuple[str, ...], ...]


@dataclass(eq=False, slots=True)
class Gang:
    """A gang that has GPUs.

    Attributes:
        request: Its request.
        placed: Its first placement.
        gpus: Its GPUs, without those that were removed.
        claims: The promised GPU that each of them serves; None while it is opportunistic.
        waiting: Whether it waits for the end of its victims.
    """

    request: Request
    placed: RunningGang
    gpus: list[Physical]
    claims: list[Promised] | None
    waiting: bool = False
    position: dict[Physical, int] = field(init=False)

    def __post_init__(self) -> None:
        self.position = {gpu: place for place, gpu in enumerate(self.gpus)}

    @property
    def priority(self) -> int:
        """The priority that it runs by."""
        return OPPORTUNISTIC if self.claims is None else self.request.priority

    @property
    def running(self) -> RunningGang:
        """The gang as it is kept: a demotion lasts."""
        if self.claims is not None:
            return self.placed
        return replace(
            self.placed, levels=tuple(tuple("" for _ in member) for member in self.placed.levels)
        )

    def claim(self, gpu: Physical) -> Promised | None:
        """The promised GPU that one of its GPUs serves."""
        return None if self.claims is None else self.claims[self.position[gpu]]
