"""A comparison is a small campaign: one workload, one cluster, several policies."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from flows.campaigns.plan import Campaign, SettingsPlan
from flows.runs.workload_source import Source
from predictor.errors import InputError
from solver.policies import POLICIES, parameters
from tasks.record import Parameter, Settings


def parameters_of(policy: str, asked: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """Those of the parameters that a policy has; none of an unknown policy."""
    known = parameters(POLICIES[policy]) if policy in POLICIES else {}
    return tuple(parameter for parameter in asked if parameter.name in known)


def check_parameters(policies: Sequence[str], asked: Iterable[Parameter]) -> None:
    """Refuse a parameter that none of the policies has.

    Raises:
        InputError: There is one.
    """
    for parameter in asked:
        if not any(parameters_of(policy, [parameter]) for policy in policies):
            raise InputError(
                "--set",
                f"none of {', '.join(policies)} has a parameter {parameter.name!r}",
                "shockwave policies lists those that there are",
            )


def comparison(
    title: str, source: Source, settings: Sequence[Settings], history: tuple[str, ...] = ()
) -> Campaign:
    """The campaign that runs one workload under several policies.

    Args:
        title: What is compared, for people.
        source: The workload.
        settings: What each run is asked to do; they differ in policy and parameters only.
        history: Earlier runs to learn from.
    """
    common, times = settings[0], Counter[str]()
    policies = []
    for asked in settings:
        times[asked.policy] += 1
        number = times[asked.policy]
        values = {parameter.name: parameter.value for parameter in asked.parameters}
        name = asked.policy if number == 1 else f"{asked.policy}-{number}"
        policies.append({"policy": asked.policy, "name": name, "parameters": values})
    jobs = asdict(source)
    seed = jobs.pop("seed")
    return Campaign.model_validate(
        {
            "name": "compare",
            "description": title[:500],
            "policies": policies,
            "workloads": [{"name": "workload", **jobs}],
            "clusters": [
                {"name": "cluster", "gpus": common.gpus, "gpus_per_node": common.gpus_per_node}
            ],
            "seeds": [seed],
            "settings": {name: getattr(common, name) for name in SettingsPlan.model_fields},
            "history": history,
        }
    )
