"""Scheduling policies, one file each, and the registry that lists them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from predictor.errors import InputError
from solver.counts import choose_backends
from solver.fidelity import Fidelity
from solver.plan import Policy
from solver.policies.allox import AlloX
from solver.policies.fifo import Fifo
from solver.policies.gandiva_fair import GandivaFair
from solver.policies.gavel import Gavel
from solver.policies.isolated import Isolated
from solver.policies.mst import MaxSumThroughput
from solver.policies.ossp import OpenShop
from solver.policies.shockwave import Shockwave
from solver.policies.shockwave_published import PublishedShockwave
from solver.policies.sjf import Sjf
from solver.policies.slack import Slack
from solver.policies.srtf import Srtf
from solver.policies.srtf_gpu import SrtfGpu
from solver.policies.themis import Themis
from solver.policies.tiresias_gittins import TiresiasGittins
from solver.policies.tiresias_las import TiresiasLas

POLICIES: dict[str, type[Any]] = {
    policy.name: policy
    for policy in (
        Shockwave,
        PublishedShockwave,
        Slack,
        OpenShop,
        Themis,
        Gavel,
        AlloX,
        MaxSumThroughput,
        GandivaFair,
        TiresiasLas,
        TiresiasGittins,
        Isolated,
        Fifo,
        Sjf,
        Srtf,
        SrtfGpu,
    )
}
"""Policies by name: frozen dataclasses."""


LARGEST = 1e12
"""Upper bound on parameters, so that bids stay finite."""


def parameters(policy: type[Any]) -> dict[str, float]:
    """The numeric parameters of a policy, with their defaults."""
    return {
        field.name: field.default
        for field in fields(policy)
        if isinstance(field.default, float | int) and not isinstance(field.default, bool)
    }


def make_policy(
    name: str,
    backend: str = "auto",
    fidelity: Fidelity = Fidelity.FAIR,
    values: Mapping[str, float] | None = None,
) -> Policy:
    """Make a policy.

    Args:
        name: A key of `POLICIES`.
        backend: Solver back end, for policies with a solver.
        fidelity: Fidelity to the published simulator, for policies from the literature.
        values: Parameter values that replace defaults, by name.

    Raises:
        InputError: The policy, back end or parameter is unknown, or a value is out of range.
    """
    if name not in POLICIES:
        raise InputError("policy", f"unknown policy {name!r}", f"known are {', '.join(POLICIES)}")
    choose_backends(backend)  # also for policies without a solver, as the header records it
    policy = POLICIES[name]
    known = parameters(policy)
    for parameter, value in (values or {}).items():
        if parameter not in known:
            raise InputError(
                f"parameters.{parameter}",
                f"policy {name} has no parameter {parameter!r}",
                f"it has {', '.join(known) or 'none'}",
            )
        if not 0.0 <= value <= LARGEST:
            raise InputError(
                f"parameters.{parameter}", f"{value:g} is out of range", f"give 0 to {LARGEST:g}"
            )
    given: dict[str, Any] = {"backend": backend, "fidelity": fidelity}
    taken = {field.name for field in fields(policy)}
    made: Policy = policy(
        **{key: value for key, value in given.items() if key in taken}, **(values or {})
    )
    return made
