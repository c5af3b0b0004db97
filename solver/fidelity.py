"""How policies from the literature are run."""

from enum import StrEnum


class Fidelity(StrEnum):
    """How policies from the literature are run."""

    FAIR = "fair"
    """All alike: an allocation is computed again whenever something changed."""
    REFERENCE = "reference"
    """As the published simulator runs them, with its limits."""
