"""Errors of the trainer, with the exit codes that the scheduler interprets.

TrainerError
├── InvalidInput    2    the job, the data set or the environment is wrong
├── StorageError   74    the job's folder cannot be written or read
├── LeaseLost      75    the job runs under another lease
└── GangLost        1    another worker of the gang is gone
"""

from typing import ClassVar

DONE = 0
"""Exit code: every epoch is trained."""

PREEMPTED = 75
"""Exit code: preempted and stopped with a checkpoint (EX_TEMPFAIL)."""


class TrainerError(Exception):
    """A failure, explained by a line on stderr."""

    exit_code: ClassVar[int] = 1


class InvalidInput(TrainerError):
    """Wrong input, for which a retry does not help."""

    exit_code = 2

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem}; {remedy}")


class StorageError(TrainerError):
    """The job's folder cannot be written or read (EX_IOERR); its previous content is unharmed."""

    exit_code = 74

    def __init__(self, path: object, error: OSError) -> None:
        super().__init__(
            f"{path}: {error.strerror or error}; "
            "make room or give permission, then start the job again"
        )


class LeaseLost(TrainerError):
    """The job runs under another lease, so this container must not write."""

    exit_code = PREEMPTED


class GangLost(TrainerError):
    """Another worker of the gang died, so this one cannot continue."""
