"""A campaign's figures: means over seeds and paired differences, with confidence intervals."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from warehouse.analytics.intervals import FigureRow, interval_of
from warehouse.analytics.listing import figures_of_jobs
from warehouse.analytics.paired import ALL, PairedDifference, difference, reference
from warehouse.analytics.questions import Analytics
from warehouse.store.files import CellRow, CellStatus

FIGURES = (
    "makespan_s",
    "mean_jct_s",
    "jct_p99_s",
    "worst_rho",
    "unfair_fraction",
    "utilization",
    "preemptions",
    "nash_welfare",
)
"""Columns of the view `run_summary` that are averaged over seeds."""

GROUPED = ("policy", "workload", "cluster", "options", "seeds")
"""Labels of the means over cells that differ only in their seed."""

PAIRED = {
    "makespan_difference_s": ("makespan_s", 1.0),
    "makespan_percent": ("makespan_s", 1.0),
    "mean_jct_difference_s": ("mean_jct_s", 1.0),
    "mean_jct_percent": ("mean_jct_s", 1.0),
    "jct_p99_difference_s": ("jct_p99_s", 1.0),
    "jct_p99_percent": ("jct_p99_s", 1.0),
    "worst_rho_difference": ("worst_rho", 1.0),
    "worst_rho_percent": ("worst_rho", 1.0),
    "unfair_points": ("unfair_fraction", 100.0),
}
"""Column of each paired difference, and its factor unless the difference is in percent."""


def summarize(
    warehouse: Path, cells: Iterable[CellRow], of_jobs: str | None = None
) -> list[FigureRow]:
    """Return means over the seeds of a campaign, in the order of its cells.

    Args:
        warehouse: The warehouse with the runs.
        cells: The cells; unfinished cells are left out.
        of_jobs: A condition on the columns of `job_outcomes` (SQL), which restricts the figures to
            matching jobs. The figures are then `OF_JOBS` and the number of these jobs.

    Raises:
        InputError: The condition is wrong.
        WarehouseError: A run is damaged.
    """
    done, names, rows_by_run = _finished(warehouse, cells, of_jobs)
    groups: defaultdict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for cell in done:
        groups[cell.policy, cell.workload, cell.cluster, cell.options].append(cell.run)
    return [
        FigureRow(
            dict(zip(GROUPED, (*key, len(group)), strict=True)),
            {name: interval_of(rows_by_run[run][name] for run in group) for name in names},
        )
        for key, group in groups.items()
    ]


def compare_policies(
    warehouse: Path,
    cells: Iterable[CellRow],
    of_jobs: str | None = None,
    against: str | None = None,
) -> list[FigureRow]:
    """Compare policies with one of them, over pairs of cells that differ only in the policy.

    If a campaign has several workloads, the pairs of all workloads precede those of each.

    Args:
        warehouse: The warehouse with the runs.
        cells: The cells, in the order of the campaign; unfinished cells are left out.
        of_jobs: See `summarize`; figures that exist only for all jobs have no differences.
        against: The policy to compare the others with; by default the first.

    Raises:
        InputError: The condition is wrong, or no cell of `against` is finished.
        WarehouseError: A run is damaged.
    """
    done, figures, rows_by_run = _finished(warehouse, cells, of_jobs)
    if not done:
        return []
    names = list(dict.fromkeys(cell.policy for cell in done))
    base = reference(names, against)
    workloads = list(dict.fromkeys(cell.workload for cell in done))
    views = [ALL, *workloads] if len(workloads) > 1 else workloads
    paired = [key for key, (column, _) in PAIRED.items() if column in figures]
    by_policy: defaultdict[str, dict[tuple[str, str, str, int], str]] = defaultdict(dict)
    for cell in done:
        by_policy[cell.policy][cell.workload, cell.cluster, cell.options, cell.seed] = cell.run

    def compare(policy: str, workload: str) -> FigureRow:
        found = {key: find_difference(policy, workload, key) for key in paired}
        pairs = max((each.pairs for each in found.values() if each), default=0)
        labels = {"policy": policy, "against": base, "workload": workload, "pairs": pairs}
        return FigureRow(
            labels, {key: each.change if each else None for key, each in found.items()}
        )

    def find_difference(policy: str, workload: str, key: str) -> PairedDifference | None:
        column, scale = PAIRED[key]

        def value(run: str | None) -> float | None:
            number = rows_by_run[run][column] if run else None
            return None if number is None else scale * number

        pairs = (
            (value(run), value(by_policy[base].get(where)))
            for where, run in by_policy[policy].items()
            if workload in (ALL, where[0])
        )
        return difference(pairs, percent=key.endswith("_percent"))

    return [compare(policy, view) for view in views for policy in names if policy != base]


def _finished(
    warehouse: Path, cells: Iterable[CellRow], of_jobs: str | None
) -> tuple[list[CellRow], Sequence[str], dict[str, dict[str, float | None]]]:
    """Return the finished cells, the names of the figures, and the figures by run."""
    done = [cell for cell in cells if cell.status is CellStatus.FINISHED]
    if not done:
        return [], FIGURES, {}
    runs = sorted({cell.run for cell in done})
    analytics = Analytics(warehouse)
    if of_jobs is None:
        asked = f"SELECT run, {', '.join(FIGURES)} FROM run_summary"
        (_, *names), rows = analytics.query(asked, runs)
    else:
        (_, *names), rows = figures_of_jobs(analytics, runs, of_jobs)
    without = dict.fromkeys(names) | {"jobs": 0}
    rows_by_run: dict[str, dict[str, float | None]] = {run: without for run in runs}
    rows_by_run |= {run: dict(zip(names, figures, strict=True)) for run, *figures in rows}
    return done, names, rows_by_run
