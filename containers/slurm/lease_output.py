"""The output of a job's leases: one file, in which each lease begins with its name."""

from contextlib import suppress
from pathlib import Path

from containers.leasing.telemetry import read_end

MOST_LOG = 2**25
"""Bytes of a job's output that are kept once it is twice as long. An engineering bound."""


def bound_log(path: Path, lease: str) -> None:
    """Keep the end of the output of a lease, and nothing before, once it is too long.

    Slurm goes on at the file's end, as it appends.

    Raises:
        OSError: It is not there, or cannot be written.
    """
    if path.stat().st_size <= 2 * MOST_LOG:
        return
    heading = f"\n--- {lease}\n".encode()
    *_, end = read_end(path, MOST_LOG).split(heading)
    with path.open("ab") as file:
        file.truncate(0)
        file.write(heading + end)


def read_last_words(path: Path, lease: str) -> str:
    """Return the last line that a lease's program printed, truncated; empty if there is none."""
    with suppress(OSError):
        end = read_end(path, 4096)
        *_, text = f"\n{end.decode(errors='replace')}".split(f"\n--- {lease}\n")
        # Not the lines of Slurm itself.
        said = [
            line.strip()
            for line in text.split("\n")
            if line.strip() and not line.startswith(("slurmstepd", "srun: "))
        ]
        return said[-1][:300] if said else ""
    return ""
