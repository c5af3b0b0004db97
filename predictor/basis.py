"""The information that forecasts are based on."""

from enum import StrEnum


class Basis(StrEnum):
    """The information that forecasts are based on."""

    POSTERIOR = "posterior"
    """The posterior over regime sequences, given the job's trajectory and finished jobs."""
    REACTIVE = "reactive"
    """Extrapolation: the current batch size holds to the end."""
    ORACLE = "oracle"
    """The job's true schedule: an upper bound for experiments."""
