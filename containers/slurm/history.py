"""Jobs that Slurm's controller has forgotten, as its accounting knows them."""

from dataclasses import dataclass

from containers.slurm.commands import Commands

COLUMNS = ("JobID", "JobIDRaw", "User", "Submit", "State", "ExitCode", "JobName")
"""Columns of `sacct`."""


@dataclass(frozen=True, slots=True)
class SlurmEnd:
    """A job of the accounting; a requeued job is there once for each time that it was queued.

    Attributes:
        id: Its id for commands, such as `4_1`.
        raw_id: Its id as a number.
        submitted: When it was submitted or requeued, in Unix seconds.
        state: Slurm's word, without who cancelled it.
        code: Its exit code, 128 + n after signal n.
    """

    id: str
    raw_id: str
    user: str
    submitted: int
    state: str
    code: int
    name: str


def list_history(commands: Commands, job_id: str, *options: str) -> list[SlurmEnd]:
    """Return what the accounting says of a job, the first first.

    Raises:
        Refused: The accounting refuses to tell.
        SlurmAway: It does not answer.
    """
    columns = ("--parsable2", "--noheader", "--delimiter=\x1f", f"--format={','.join(COLUMNS)}")
    text = commands.call("sacct", "--allocations", *columns, f"--jobs={job_id}", *options)
    found = []
    for line in text.splitlines():
        try:
            number, raw, user, submitted, state, said, name = line.split("\x1f")
            code, signal = map(int, said.split(":"))
            ended = code or (128 + signal if signal else 0)
            found.append(SlurmEnd(number, raw, user, int(submitted), state.split()[0], ended, name))
        except (ValueError, IndexError):
            continue  # no row: a part of a name with line breaks
    return sorted(found, key=lambda job: job.submitted)
