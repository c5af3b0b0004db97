"""What forecasts can be made from."""

from enum import StrEnum


class Basis(StrEnum):
    """What forecasts are made from."""

    POSTERIOR = "posterior"
    """What was seen of the job and of jobs that finished."""
    REACTIVE = "reactive"
    """The present batch size, to the end."""
    ORACLE = "oracle"
    """The job's true schedule: for experiments, as nobody knows it."""
