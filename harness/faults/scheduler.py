"""A scheduler in a process of its own, that dies on request.

python -m harness.faults.scheduler FOLDER
"""

import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.runs.cluster_file import describe_machines
from flows.runs.live import resume_live, run_live
from flows.runs.start import make_start
from tasks.record import Settings
from tasks.round import ROUND, Round, Step, StepResult, call_step, run_round
from tasks.run import Run
from warehouse.store.folder import name_of, records_folder, run_folders
from warehouse.store.reader import Reader

ROUND_SECONDS = 3.0
SILENT_SECONDS = 120.0
"""Time without a record after which a scheduler hangs."""
BOUNDARIES = ("before collect", *(f"after {step.__name__}" for step in ROUND[:-1]))


class Stuck(Exception):
    """The run cannot go on; the text says why."""


@dataclass
class Scheduler:
    """A scheduler in a process of its own, to be killed and started again.

    Attributes:
        folder: Warehouse, nodes and requests to the scheduler.
        process: The process started last, if the run has not ended.
        since: When the run under way began, in seconds since 1970.
    """

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    since: float = 0.0

    @property
    def order(self) -> Path:
        """Names the boundary at which it is to die."""
        return self.folder / "die"

    def ensure(self) -> None:
        """Start it if it does not run."""
        if self.process is None or self.process.poll() is not None:
            with (self.folder / "log").open("ab") as log:
                command = [sys.executable, "-m", "harness.faults.scheduler", self.folder]
                self.process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def ended(self) -> bool:
        """Whether the run has ended; starts the scheduler again if it died before.

        Raises:
            Stuck: It failed, or made no record for a long time.
        """
        code = None if self.process is None else self.process.poll()
        if code == 0:
            self.process = None
            return True
        if code not in (None, -signal.SIGKILL):
            raise Stuck(f"the scheduler failed: {(self.folder / 'log').read_text()[-2000:]}")
        newest = max((path.stat().st_mtime for path in runs(self.folder)), default=0.0)
        if time.time() - max(newest, self.since) > SILENT_SECONDS:
            raise Stuck(f"the scheduler made no record for {SILENT_SECONDS:g} s")
        self.ensure()
        return False

    def kill(self) -> bool:
        """Kill it now; returns whether it was running."""
        if not self.alive:
            return False
        self.process.kill()
        return self.process.wait() == -signal.SIGKILL

    def die_at(self, boundary: str) -> bool:
        """Let it die at a boundary, and wait for that; returns whether it got there.

        Raises:
            Stuck: It neither dies nor ends.
        """
        if not self.alive:
            return False
        self.order.write_text(boundary)
        try:
            return self.process.wait(SILENT_SECONDS) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            raise Stuck(f"the scheduler never came to {boundary!r}") from None
        finally:
            self.order.unlink(missing_ok=True)


def runs(folder: Path) -> list[Path]:
    """The folders of the runs' records, the most recently written one last."""
    return sorted(
        records_folder(folder / "warehouse").glob("run=shockwave-*"), key=os.path.getmtime
    )


def schedule(folder: Path) -> None:
    """The scheduler's process: begin the run or resume it."""

    def boundary(name: str) -> None:
        with suppress(FileNotFoundError):
            if (folder / "die").read_text() == name:
                os.kill(os.getpid(), signal.SIGKILL)

    def call(step: Step, run: Run, *inputs: StepResult[Any]) -> StepResult[Any]:
        result = call_step(step, run, *inputs)
        boundary(f"after {step.__name__}")
        return result

    def driver(run: Run) -> Round:
        boundary("before collect")
        return run_round(run, call)

    nodes, workload, number = pickle.loads((folder / "given").read_bytes())
    warehouse = folder / "warehouse"
    machines, kind = describe_machines(nodes)
    settings = Settings(
        "shockwave",
        machines.pools,
        round_seconds=ROUND_SECONDS,
        restart_seconds=1.0,
        window=5,
        seed=number,
        runtime=kind,
    )
    start = make_start(workload, settings)
    begun = [name_of(folder) for folder in run_folders(warehouse)]
    mine = [name for name in begun if Reader(warehouse).header(name) == start.header]
    if mine:
        resume_live(mine[-1], nodes, warehouse, driver=driver)
    else:
        run_live(start, nodes, warehouse, driver=driver)


if __name__ == "__main__":
    schedule(Path(sys.argv[1]))
