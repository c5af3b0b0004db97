"""The command about policies, ours and those of other distributions."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from textwrap import wrap

from flows.cli.options import Json
from flows.cli.output import get_terminal_width, print_rows, say
from predictor.errors import ShockwaveError


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
    from solver.policies import parameters, policy_class, policy_names, policy_plugin

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


def print_policies(as_json: Json = False) -> None:
    """List the policies, their sources and parameters."""
    if as_json:
        print_rows(map(asdict, list_policies()), as_json)
        return
    for policy in list_policies():
        settable = [f"{key}={value:g}" for key, value in policy.parameters.items()]
        lines = [policy.summary, *filter(None, [policy.source, policy.package])]
        lines += [f"parameters: {' '.join(settable)}"] if settable else []
        say(policy.policy)
        for line in lines:
            for part in wrap(line, min(90, (get_terminal_width() or 94) - 4)):
                say(f"    {part}")
