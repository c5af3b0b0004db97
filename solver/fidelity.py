"""How faithfully policies from the literature follow the published simulator."""

from enum import StrEnum


class Fidelity(StrEnum):
    """How a policy from the literature runs."""

    FAIR = "fair"
    """Like all other policies: allocations are recomputed on every change."""
    REFERENCE = "reference"
    """Like the published simulator, with its limits."""
