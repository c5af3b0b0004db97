"""What `shockwave cluster check` finds."""

from collections.abc import Callable
from dataclasses import dataclass

from predictor.errors import InputError


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check.

    Attributes:
        node: Name of the node; `storage` for the shared storage.
        remedy: Remedy; empty if the check passed.
    """

    node: str
    check: str
    sound: bool
    found: str
    remedy: str = ""


def find(node: str, check: str, call: Callable[[], str]) -> Finding:
    """Call a check, which returns what it found and raises `InputError` if that is not sound."""
    try:
        return Finding(node, check, True, call())
    except InputError as error:
        return Finding(node, check, False, error.problem, error.remedy)
