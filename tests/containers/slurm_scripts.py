"""A folder of Slurm's commands that print what a test writes, as no real Slurm does to order."""

from pathlib import Path

from containers.clock import RunClock
from containers.runtime import ResumePoint, Terms
from containers.slurm.brain import END_SECONDS, SlurmBrain
from containers.slurm.commands import Commands
from predictor.job import JobSpec
from solver.inventory import Inventory, Pool

INVENTORY = Inventory((Pool("a100", 8, 4),))

SCRIPT = """#!/bin/sh
cd {folder}
[ {name} = squeue ] || echo {name} "$@" >>orders
[ -e {name}.fails ] && {{ cat {name}.fails >&2; exit 1; }}
cat {name}.says 2>/dev/null
exit 0
"""


class Scripts:
    """The commands of a Slurm that says what it is told to.

    Args:
        folder: Where the commands and their answers are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.commands = folder, Commands(folder)
        for name in ("squeue", "scontrol", "scancel", "sacct", "sacctmgr", "sinfo"):
            program = folder / name
            program.write_text(SCRIPT.format(folder=folder, name=name))
            program.chmod(0o755)

    def say(self, **answers: str) -> None:
        """Set what commands print; they succeed."""
        for name, text in answers.items():
            (self.folder / f"{name}.says").write_text(text)
            (self.folder / f"{name}.fails").unlink(missing_ok=True)

    def fail(self, **errors: str) -> None:
        """Let commands fail with errors."""
        for name, text in errors.items():
            (self.folder / f"{name}.fails").write_text(f"{text}\n")

    def orders(self) -> list[str]:
        """Return and forget the commands that were called, other than `squeue`."""
        path = self.folder / "orders"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def brain(self, *jobs: JobSpec) -> SlurmBrain:
        """A runtime of a partition of two nodes, with jobs; it does not wait for their ends."""
        terms = Terms("run", 1.0, inventory=INVENTORY)
        clock, names = RunClock(), ("n1", "n2")
        runtime = SlurmBrain(
            self.commands, "gpu", names, clock, terms, ResumePoint(), kill_wait=-END_SECONDS
        )
        runtime.admit(jobs)
        return runtime
