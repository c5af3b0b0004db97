"""What a fork takes over from the run that it was forked from."""

from dataclasses import replace

from predictor.errors import InputError
from solver.policies import POLICIES
from tasks.record import RunHeader, Settings
from tasks.state import RunState


def check_own(name: str, header: RunHeader, number: int | None) -> None:
    """Refuse a round of a fork that another run decided.

    Raises:
        InputError: It is one.
    """
    settings = header.settings
    if number is not None and number < settings.first_own_round:
        raise InputError(
            "round",
            f"run {name!r} is a fork, and took round {number} over",
            f"ask run {settings.forked[-1].run!r} of it, or from {settings.first_own_round} on",
        )


def taken_over(state: RunState, settings: Settings) -> RunState:
    """The state that a fork begins with; at any other round, the state as it is.

    What another policy noted means nothing to this one, and forecasts for one that does not
    look ahead do not reach far enough for one that does.
    """
    if not settings.forked or state.round != settings.first_own_round:
        return state
    fork = settings.forked[-1]
    if (settings.policy, settings.parameters) != (fork.policy, fork.parameters):
        state = replace(state, memory="")
    if POLICIES[settings.policy].looks_ahead is not POLICIES[fork.policy].looks_ahead:
        state = replace(state, forecasts={})
    return state
