"""Scheduling policies, one file each, and the registry that lists them."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from predictor.errors import InputError, meant
from predictor.plugins import Kind, Plugin, find_plugin, plugins
from solver.backends.choice import check_backend
from solver.fidelity import Fidelity
from solver.plan import Policy
from solver.policies.plugged import load_policy


class _Policies(Mapping[str, type[Any]]):
    """Policies by name; the module of one is imported when it is looked up."""

    def __init__(self, **places: str) -> None:
        self._places = {name.replace("_", "-"): place for name, place in places.items()}

    def __getitem__(self, name: str) -> type[Any]:
        module, _, policy = self._places[name].partition(":")
        found: type[Any] = getattr(import_module(f"solver.policies.{module}"), policy)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


POLICIES = _Policies(
    shockwave="shockwave:Shockwave",
    shockwave_published="shockwave_published:PublishedShockwave",
    slack="slack:Slack",
    ossp="ossp:OpenShop",
    optimus="optimus:Optimus",
    pollux="pollux:Pollux",
    sia="sia:Sia",
    themis="themis:Themis",
    gavel="gavel:Gavel",
    allox="allox:AlloX",
    mst="mst:MaxSumThroughput",
    gandiva="gandiva:Gandiva",
    gandiva_fair="gandiva_fair:GandivaFair",
    antman="antman:AntMan",
    slaq="slaq:Slaq",
    tiresias="tiresias:Tiresias",
    tiresias_las="tiresias_las:TiresiasLas",
    tiresias_gittins="tiresias_gittins:TiresiasGittins",
    isolated="isolated:Isolated",
    fifo="fifo:Fifo",
    sjf="sjf:Sjf",
    srtf="srtf:Srtf",
    srtf_gpu="srtf_gpu:SrtfGpu",
)
"""Our policies by name, frozen dataclasses; policies of other distributions are plugins."""


PACKED = "packed"
"""Parameter of policies that can pair jobs on the same GPUs: whether they do."""

COSTED = "costed"
"""Parameter of policies that can divide by prices of GPU types: whether they do."""

SWITCHES = frozenset({"aware", "backfill", COSTED, "deadlines", PACKED})
"""Parameters of our policies that are 0 or 1."""

LARGEST = 1e12
"""Upper bound on parameters, an engineering bound that keeps bids finite."""


def policy_names() -> list[str]:
    """Return the names of all policies, ours first, without importing plugins."""
    return [*POLICIES, *(name for name in plugins(Kind.POLICY) if name not in POLICIES)]


def for_several_pools() -> list[str]:
    """Return the names of our policies that schedule clusters of several pools."""
    return [name for name, policy in POLICIES.items() if policy.several_pools]


def policy_plugin(name: str) -> Plugin | None:
    """Return the plugin that provides a policy; None for ours and for unknown ones.

    Raises:
        InputError: Several distributions provide a policy of that name.
    """
    return None if name in POLICIES else find_plugin(Kind.POLICY, name)


def policy_class(name: str) -> type[Any]:
    """Return a policy by name: a frozen dataclass.

    Raises:
        InputError: The policy is unknown.
        PluginError: A plugin cannot be imported, or provides no policy.
    """
    if name in POLICIES:
        return POLICIES[name]
    plugin = policy_plugin(name)
    if plugin is None:
        raise InputError("policy", f"unknown policy {name!r}", meant(name, policy_names()))
    return load_policy(plugin)


def parameters(policy: type[Any]) -> dict[str, float]:
    """Return the numeric parameters of a policy, with their defaults."""
    return {
        field.name: field.default
        for field in fields(policy)
        if isinstance(field.default, float | int) and not isinstance(field.default, bool)
    }


def check_switches(name: str, values: Mapping[str, float]) -> None:
    """Check that `SWITCHES` are 0 or 1 in the settings of a new run.

    Raises:
        InputError: A switch is neither 0 nor 1.
    """
    for parameter, value in values.items():
        if name in POLICIES and parameter in SWITCHES and value not in (0.0, 1.0):
            raise InputError(
                f"parameters.{parameter}", f"{value:g} is neither 0 nor 1", "give one of these"
            )


def make_policy(
    name: str,
    backend: str = "auto",
    fidelity: Fidelity = Fidelity.FAIR,
    values: Mapping[str, float] | None = None,
) -> Policy:
    """Make a policy, one of `policy_names`, with `values` in place of its parameters' defaults.

    Raises:
        InputError: The policy, back end or parameter is unknown, or a value is out of range.
        PluginError: A policy of another distribution failed.
    """
    policy = policy_class(name)
    check_backend(backend)  # for policies without a solver too: the header records the back end
    known = parameters(policy)
    for parameter, value in (values or {}).items():
        if parameter not in known:
            raise InputError(
                f"parameters.{parameter}",
                f"policy {name} has no parameter {parameter!r}",
                meant(parameter, known) if known else "this policy has no parameters",
            )
        if not 0.0 <= value <= LARGEST:
            raise InputError(
                f"parameters.{parameter}", f"{value:g} is out of range", f"give 0 to {LARGEST:g}"
            )
    chosen: dict[str, Any] = {"backend": backend, "fidelity": fidelity, **(values or {})}
    plugin = policy_plugin(name)
    made: Policy = (
        _make(policy, chosen)
        if plugin is None
        else plugin.call("take its parameters", lambda: _make(policy, chosen))
    )
    return made


def _make(policy: type[Any], chosen: Mapping[str, Any]) -> Any:
    """Make a policy with the values that it has parameters for."""
    known = {field.name for field in fields(policy)}
    return policy(**{name: value for name, value in chosen.items() if name in known})
