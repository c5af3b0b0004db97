"""Scheduling policies, one file each, and the registry that lists them."""

from collections.abc import Callable

from predictor.errors import InputError
from solver.counts import choose_backends
from solver.plan import Policy
from solver.policies.fifo import Fifo
from solver.policies.shockwave import Shockwave
from solver.policies.srtf import Srtf

POLICIES: dict[str, Callable[[str], Policy]] = {
    "shockwave": Shockwave,
    "fifo": lambda backend: Fifo(),
    "srtf": lambda backend: Srtf(),
}
"""By name: how a policy is made, given the solver back end."""


def make_policy(name: str, backend: str = "auto") -> Policy:
    """A policy by its name.

    Args:
        name: A key of `POLICIES`.
        backend: Solver back end for policies that solve something.

    Raises:
        InputError: There is no such policy or back end.
    """
    if name not in POLICIES:
        raise InputError("--policy", f"unknown policy {name!r}", f"known are {', '.join(POLICIES)}")
    choose_backends(backend)  # also where the policy solves nothing: it is kept in the record
    return POLICIES[name](backend)
