"""Comparisons: campaigns of one workload on one cluster under several policies."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from flows.campaigns.plan import Campaign
from flows.runs.settings import ClusterSize, SimulationSettings
from flows.runs.workload_source import Source
from predictor.errors import InputError
from solver.policies import POLICIES
from solver.policies import parameters as parameters_in
from tasks.record import Parameter


def parameters_of(policy: str, asked: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """The given parameters that a policy has; empty for an unknown policy."""
    known = parameters_in(POLICIES[policy]) if policy in POLICIES else {}
    return tuple(parameter for parameter in asked if parameter.name in known)


def check_parameters(policies: Sequence[str], asked: Iterable[Parameter]) -> None:
    """Refuse a parameter that none of the policies has.

    Raises:
        InputError: A parameter belongs to none of the policies.
    """
    for parameter in asked:
        if not any(parameters_of(policy, [parameter]) for policy in policies):
            raise InputError(
                f"parameters.{parameter.name}",
                f"is a parameter of none of {', '.join(policies)}",
                "shockwave policies lists those that there are",
            )


def comparison(
    title: str,
    source: Source,
    size: ClusterSize,
    settings: SimulationSettings,
    policies: Sequence[str],
    parameters: Sequence[Parameter] = (),
    history: tuple[str, ...] = (),
) -> Campaign:
    """The campaign that runs one workload under several policies.

    Args:
        title: Description of the comparison.
        source: The workload.
        size: The cluster.
        settings: Settings of every run.
        policies: The policies, one for each run.
        parameters: Parameters; each is set for the policies that have it.
        history: Earlier runs whose finished jobs are learned from.
    """
    times = Counter[str]()
    plans = []
    for policy in policies:
        times[policy] += 1
        values = {given.name: given.value for given in parameters_of(policy, parameters)}
        name = policy if times[policy] == 1 else f"{policy}-{times[policy]}"
        plans.append({"policy": policy, "name": name, "parameters": values})
    jobs = asdict(source)
    seed = jobs.pop("seed")
    return Campaign.model_validate(
        {
            "name": "compare",
            "description": title[:500],
            "policies": plans,
            "workloads": [{"name": "workload", **jobs}],
            "clusters": [{"name": "cluster", **asdict(size)}],
            "seeds": [seed],
            "settings": asdict(settings),
            "history": history,
        }
    )
