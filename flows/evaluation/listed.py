"""The list of policies, including those of other distributions."""

from collections.abc import Iterator
from dataclasses import dataclass

from predictor.errors import ShockwaveError
from solver.policies import parameters, policy_class, policy_names, policy_plugin


@dataclass(frozen=True, slots=True)
class ListedPolicy:
    """A policy's description of itself.

    Attributes:
        summary: A line on its objective, or the error if it cannot be imported.
        parameters: Parameters with their defaults.
        package: Name and version of the distribution that provides it; empty for ours.
    """

    policy: str
    summary: str
    source: str
    parameters: dict[str, float]
    package: str


def list_policies() -> Iterator[ListedPolicy]:
    """Yield all policies, ours first; a policy that cannot be imported has its error as summary."""
    for name in policy_names():
        package = ""
        try:
            if plugin := policy_plugin(name):
                package = f"{plugin.distribution} {plugin.version}"
            policy = policy_class(name)
        except ShockwaveError as error:
            yield ListedPolicy(name, str(error), "", {}, package)
        else:
            yield ListedPolicy(name, policy.summary, policy.source, parameters(policy), package)
