"""Callbacks with which long calls report their progress."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.record import Start
    from tasks.run import Run

Progress = Callable[[int, int], None]
"""Receives the amount done and the total."""


def ignore_progress(done: int, total: int) -> None:
    """Ignore the progress."""


def watch_jobs(progress: Progress, runs: int = 1) -> "Callable[[Start], Callable[[Run], None]]":
    """Return the watch of `runs` consecutive runs with equally many jobs each.

    It reports the number of ended jobs, and of all jobs of all runs, to `progress`.
    """
    before = 0

    def watch(start: "Start") -> "Callable[[Run], None]":
        nonlocal before
        jobs = len(start.workload.specs)
        earlier, before = before, before + jobs

        def after_round(run: "Run") -> None:
            ended = run.state.arrived - len(run.state.beliefs)
            progress(earlier + ended, max(runs * jobs, before))

        return after_round

    return watch
