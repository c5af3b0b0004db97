"""Solve the recorded window problems and compare with the published system.

    python benchmarks/solve_windows.py [WINDOWS] [--backend NAME] [--json]

WINDOWS is a file of recorded problems, by default `shockwave/windows_jobs120.jsonl` in
the folder that the environment variable SHOCKWAVE_DATA names. Times are wall times of
one process, and CPU times, with the model built anew for each problem. The published system's times
were recorded with it, on another machine; the full model, with one binary per job and
round, is solved here and now by HiGHS for a sample of the problems, at the published
relative gap. Weights of up to 10^21 leave the full model little precision for the other
jobs, so it ends early, and with losses that are printed too.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array

from benchmarks.windows import WindowProblem, read_windows
from solver.backends.choice import BACKENDS, relative_gap
from solver.window.counts import solve_counts
from solver.window.market import WindowMarket
from solver.window.timetable import clear_window

GAP = 1e-3
"""Relative gap of the full model, as the published system had it."""

ROUNDING = 1e-12
"""Relative difference that sums in another order make."""


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    problems = list(read_windows(options.windows))
    solve_counts(problems[len(problems) // 2].market, options.backend)  # imports, licence
    figures = measure(options.windows, problems, options.backend)
    if options.sample:
        figures |= against_full_model(problems, options)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:<32} {value if isinstance(value, str) else format(value, '.6g')}")
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    folder = os.environ.get("SHOCKWAVE_DATA")
    default = folder and Path(folder) / "shockwave" / "windows_jobs120.jsonl"
    parser.add_argument("windows", type=Path, nargs="?" if default else None, default=default)
    parser.add_argument("--backend", choices=BACKENDS, default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--sample", type=int, default=10, help="problems solved with the full model too"
    )
    parser.add_argument("--time-limit", type=float, default=15.0, help="seconds for each of those")
    return parser.parse_args(arguments)


def measure(path: Path, problems: list[WindowProblem], backend: str) -> dict[str, float | str]:
    """Build, solve and lay out every problem, one after another."""
    solved: list[dict[str, Any]] = []
    cpu, before = [], process_time()
    for row in solve_windows(path, backend):
        cpu.append(1e3 * (process_time() - before))
        solved.append(row)
        before = process_time()
    figures: dict[str, float | str] = {"backend": backend, "problems": len(problems)}
    build, solve = (np.array([row[name] for row in solved]) for name in ("build_ms", "solve_ms"))
    for name, times in (
        ("build", build),
        ("solve and lay out", solve),
        ("all", build + solve),
        ("all, CPU", cpu),
    ):
        for quantile in (0.5, 0.95, 1.0):
            figures[f"{name} p{100 * quantile:.0f} (ms)"] = float(np.quantile(times, quantile))
    figures["all (s)"] = float((build + solve).sum()) / 1e3
    figures["all, CPU (s)"] = sum(cpu) / 1e3
    figures["largest gap as laid out"] = max(row["gap"] for row in solved)
    for who in sorted({str(row["backend"]) for row in solved}):
        figures[f"solved by {who}"] = sum(row["backend"] == who for row in solved)
    against = [
        (row["objective"] - problem.reference_objective) / max(abs(row["objective"]), 1e-300)
        for row, problem in zip(solved, problems, strict=True)
        if problem.reference_objective is not None
    ]
    recorded = sum(problem.reference_seconds or 0.0 for problem in problems)
    return figures | {
        "published, recorded (s)": recorded,
        "published over ours": recorded / (float((build + solve).sum()) / 1e3),
        "plans better than published": sum(gain > ROUNDING for gain in against),
        "plans worse than published": sum(gain < -ROUNDING for gain in against),
        "least relative gain on published": min(against, default=0.0),
    }


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


def against_full_model(
    problems: list[WindowProblem], options: argparse.Namespace
) -> dict[str, float | str]:
    """The same problems, ours against the full model, in this process."""
    contended = [p for p in problems if solve_counts(p.market, options.backend).backend != "none"]
    picked = np.linspace(0, len(contended) - 1, min(options.sample, len(contended))).astype(int)
    ours, full, unsolved, lost = [], [], 0, 0.0
    for index in picked:
        market = contended[index].market
        started = perf_counter()
        counts = solve_counts(market, options.backend)
        ours.append(perf_counter() - started)
        started = perf_counter()
        objective = full_model(market, options.time_limit)
        full.append(perf_counter() - started)
        unsolved += objective is None
        best = market.objective(counts.counts)
        if objective is not None:
            lost = max(lost, (best - objective) / max(abs(best), 1e-12))
        print(f"problem {contended[index].seq}: {full[-1]:.2f} s", file=sys.stderr)
    return {
        "sample": len(picked),
        "ours on the sample (s)": sum(ours),
        "full model on the sample (s)": sum(full),
        "full model over ours": sum(full) / sum(ours),
        "full model without a plan": unsolved,
        "full model loses at most": lost,
    }


def full_model(market: WindowMarket, time_limit: float) -> float | None:
    """The best objective that HiGHS finds with one binary per job and round.

    Utilities must be concave: each is an upper envelope of its lines, as are the
    remaining times of the makespan. Columns: y[j, t], then u[j], then z.
    """
    jobs, window = len(market.job_ids), market.window
    scale = max(float(np.ptp(market.utility, axis=1).max()), 1e-12)
    lines: list[tuple[int, int, float, float]] = []  # job, sign, slope, intercept
    for table, sign in ((market.utility / scale, 1), (market.remaining, -1)):
        for job, row in enumerate(table):
            slopes, kept = np.diff(row), np.inf
            for n, slope in enumerate(sign * slopes):
                if slope < kept - 1e-12:
                    lines.append((job, sign, sign * slope, row[n] - sign * slope * n))
                    kept = slope
    runs = jobs * window
    rows, columns, values, upper = [], [], [], []
    for number, (job, sign, slope, intercept) in enumerate(lines):
        # u ≤ intercept + slope n, and z ≥ intercept + slope n
        rows += [number] * (window + 1)
        columns += [
            *range(job * window, (job + 1) * window),
            runs + job if sign > 0 else runs + jobs,
        ]
        values += [-sign * slope] * window + [float(sign)]
        upper.append(sign * intercept)
    capacity = np.hstack([np.kron(market.gangs, np.eye(window)), np.zeros((window, jobs + 1))])
    shape = (len(lines), runs + jobs + 1)
    result = milp(
        np.concatenate([np.zeros(runs), -np.ones(jobs), [market.regularizer / scale]]),
        integrality=np.append(np.ones(runs), np.zeros(jobs + 1)),
        bounds=Bounds(
            np.append(np.zeros(runs), np.full(jobs + 1, -np.inf)),
            np.append(np.ones(runs), np.full(jobs + 1, np.inf)),
        ),
        constraints=[
            LinearConstraint(csr_array(coo_array((values, (rows, columns)), shape)), ub=upper),
            LinearConstraint(csr_array(capacity), ub=np.full(window, market.gpus)),
        ],
        options={"mip_rel_gap": GAP, "time_limit": time_limit},
    )
    if result.x is None:
        return None
    counts = np.rint(result.x[:runs]).reshape(jobs, window).sum(axis=1)
    return market.objective(counts.astype(np.int64))


if __name__ == "__main__":
    sys.exit(main())
