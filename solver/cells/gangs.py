"""Requests of gangs for cells, and the answers to them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CellRequest:
    """A gang's request for GPUs, all or none.

    Attributes:
        members: GPUs of each member, which are on one node.
        gpu_type: GPU type; empty for any.
        guaranteed: Whether it runs in its tenant's cells. Other gangs are opportunistic: they are
            placed elsewhere, only restored here, and end where a guaranteed gang needs their GPUs.
    """

    name: str
    tenant: str
    members: tuple[int, ...]
    gpu_type: str = ""
    guaranteed: bool = True


@dataclass(frozen=True, slots=True)
class Slot:
    """A GPU, by its node's name and its index on the node."""

    node: str
    gpu: int


@dataclass(frozen=True, slots=True)
class Granted:
    """The gang runs from now on.

    Attributes:
        victims: Names of the opportunistic gangs that were ended for it.
    """

    slots: tuple[tuple[Slot, ...], ...]
    victims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Waits:
    """The gang has no place, and nothing changed; `reason` says why, in words."""

    reason: str


Answer = Granted | Waits


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A running gang, from which the cells can be rebuilt.

    Attributes:
        levels: Level name of the promised cell of each GPU; empty if the gang is opportunistic or
            was demoted.
    """

    request: CellRequest
    slots: tuple[tuple[Slot, ...], ...]
    levels: tuple[tuple[str, ...], ...]
