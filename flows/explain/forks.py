"""What a fork takes over from its parent run."""

from dataclasses import replace

from predictor.errors import InputError
from solver.policies import policy_class
from tasks.record import RunHeader, Settings
from tasks.state import RunState


def check_own(name: str, header: RunHeader, number: int | None) -> None:
    """Refuse a round that a fork took over from its parent run.

    Raises:
        InputError: The parent run decided the round.
    """
    settings = header.settings
    if number is not None and number < settings.first_own_round:
        raise InputError(
            "round",
            f"run {name!r} is a fork that took over round {number} from its parent run",
            f"name run {settings.forked[-1].run!r}, or a round from {settings.first_own_round} on",
        )


def take_over(state: RunState, settings: Settings) -> RunState:
    """Return the state with which a fork begins; at any other round, the state unchanged.

    If the policy or its parameters change, the policy's memory is dropped. If only one of both
    policies reads forecasts or looks ahead, forecasts are dropped: they are old or too short.
    """
    if not settings.forked or state.round != settings.first_own_round:
        return state
    fork = settings.forked[-1]
    policies = settings.policy, fork.policy
    if (settings.policy, settings.parameters) != (fork.policy, fork.parameters):
        state = replace(state, memory="")
    reads = [(p.reads_forecasts, p.looks_ahead) for p in map(policy_class, policies)]
    if reads[0] != reads[1]:
        state = replace(state, forecasts={})
    return state
