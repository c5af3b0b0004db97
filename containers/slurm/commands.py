"""Slurm's commands, run without a shell and never waited for longer than a timeout of ours."""

import os
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

from containers.leasing.engine import Refused
from containers.slurm.parsing import SlurmAway, make_format, read_table

CALL_SECONDS = 10.0
"""Timeout of a command: Slurm's own commands give an absent controller up after 9 s."""

AWAY = (
    "connect failure",
    "Unable to contact",
    "Unable to connect",
    "Socket timed out",
    "Zero Bytes",
    "Protocol authentication error",
    "Connection refused",
    "Connection timed out",
    "Transport endpoint",
    "Slurm backup controller in standby mode",
    "Slurm is initializing",
)
"""What the commands say where Slurm's daemons, or munge's, do not answer them."""

CHANGING = ("SLURM_", "SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_", "SACCT_", "SALLOC_", "SRUN_")
"""Prefixes of variables that change what the commands do and print."""


def _environment() -> dict[str, str]:
    """This process's environment, with plain text, and times in Unix seconds."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "SLURM_CONF" or not name.startswith(CHANGING)
    }
    return kept | {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}


class Commands:
    """The commands of one Slurm.

    Args:
        folder: Folder of the commands; None for those of the `PATH`.
        seconds: Timeout of a call.
    """

    def __init__(self, folder: Path | None = None, seconds: float = CALL_SECONDS) -> None:
        self._folder, self._seconds = folder, seconds

    def call(self, name: str, *arguments: str, text: str = "") -> str:
        """Run a command with `text` as its input; returns what it printed.

        Raises:
            Refused: It failed; the message is what it said.
            SlurmAway: Slurm does not answer it in time. It may have been carried out.
        """
        return self._run(name, *arguments, text=text).decode(errors="replace")

    def _run(self, name: str, *arguments: str, text: str = "") -> bytes:
        program = str(self._folder / name) if self._folder else name
        try:
            done = subprocess.run(
                [program, *arguments],
                input=text.encode(errors="replace"),
                capture_output=True,
                timeout=self._seconds,
                env=_environment(),
            )
        except subprocess.TimeoutExpired:
            raise SlurmAway(f"{name} did not end within {self._seconds:g} s") from None
        except OSError as error:
            raise SlurmAway(f"{program} cannot be run: {error.strerror}") from None
        if done.returncode:
            error_text = done.stderr.decode(errors="replace")
            said = _last_line(error_text) or f"it exited with code {done.returncode}"
            if any(words in error_text for words in AWAY):
                raise SlurmAway(f"{name}: {said}")
            raise Refused(f"{name}: {said}")
        return done.stdout

    def table(
        self,
        name: str,
        columns: Mapping[str, int],
        *arguments: str,
        cut: Collection[str] = (),
    ) -> list[dict[str, str]]:
        """Run `squeue` or `sinfo` for columns, each with its width; returns its rows.

        Fields of the columns `cut` may be cut to their width.

        Raises:
            Refused: See `call`.
            SlurmAway: See `call`; or what it printed cannot be read.
        """
        data = self._run(name, "--noheader", f"--Format={make_format(columns)}", *arguments)
        return read_table(name, data.decode(errors="surrogateescape"), columns, cut)


def _last_line(text: str) -> str:
    """Return the last line of an error, without the names that precede its message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rpartition("error: ")[2][:300] if lines else ""
