"""Recorded window problems, each solved and laid out."""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

from solver.backends.choice import relative_gap
from solver.window.timetable import clear_window
from warehouse.workloads.windows import read_windows


def solve_windows(path: Path, backend: str = "auto") -> Iterator[dict[str, object]]:
    """Solve each problem of a file.

    Args:
        path: File of recorded window problems.
        backend: Solver back end.

    Yields:
        Per problem: `seq`, `jobs`, `objective` and `bound` of the plan as laid out,
        their relative `gap`, whether the plan is `feasible`, `build_ms` to read the line and
        build the bids, `solve_ms` to solve and lay out, and the `backend` that solved it.

    Raises:
        ShockwaveError: The file is damaged, or no back end accepts a problem.
    """
    problems = read_windows(path)
    while True:
        started = perf_counter()
        problem = next(problems, None)
        if problem is None:
            return
        market = problem.market
        built = perf_counter()
        shortest_first = np.argsort(market.remaining[:, 0], kind="stable").tolist()
        table, cleared = clear_window(market, shortest_first, backend)
        solved = perf_counter()
        yield {
            "seq": problem.seq,
            "jobs": len(market.job_ids),
            "objective": cleared.objective,
            "bound": cleared.bound,
            "gap": relative_gap(cleared.bound, cleared.objective),
            "feasible": bool((market.gangs @ table <= market.gpus).all()),
            "build_ms": (built - started) * 1e3,
            "solve_ms": (solved - built) * 1e3,
            "backend": cleared.backend,
        }
