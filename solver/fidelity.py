"""Fidelity to the published simulator, for policies from the literature."""

from enum import StrEnum


class Fidelity(StrEnum):
    """Fidelity to the published simulator, for policies from the literature."""

    FAIR = "fair"
    """All policies alike: allocations are recomputed on every change."""
    REFERENCE = "reference"
    """As in the published simulator, with its limits."""
