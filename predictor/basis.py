"""The information on which forecasts are based; apart, since commands read it without NumPy."""

from enum import StrEnum


class Basis(StrEnum):
    """The information on which forecasts are based."""

    POSTERIOR = "posterior"
    """The posterior over regime sequences, given the job's trajectory and finished jobs."""
    REACTIVE = "reactive"
    """Extrapolation: the current batch size holds to the end."""
    ORACLE = "oracle"
    """The job's true schedule: an upper bound for experiments."""
