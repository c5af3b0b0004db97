"""A campaign's figures: means over seeds and paired differences, with confidence intervals."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from warehouse.analytics.intervals import Interval, as_columns, interval_of
from warehouse.analytics.listing import figures_of_jobs
from warehouse.analytics.paired import ALL, PairedDifference, difference, reference
from warehouse.analytics.questions import Analytics
from warehouse.store.files import CellRow, CellStatus

FIGURES = (
    "makespan_s",
    "mean_jct_s",
    "jct_p99_s",
    "worst_ftf",
    "unfair_fraction",
    "utilization",
    "preemptions",
    "nash_welfare",
)
"""Columns of the view `run_summary` that are averaged over seeds."""

PAIRED = {
    "makespan_difference_s": ("makespan_s", 1.0),
    "makespan_percent": ("makespan_s", 1.0),
    "mean_jct_difference_s": ("mean_jct_s", 1.0),
    "mean_jct_percent": ("mean_jct_s", 1.0),
    "jct_p99_difference_s": ("jct_p99_s", 1.0),
    "jct_p99_percent": ("jct_p99_s", 1.0),
    "worst_ftf_difference": ("worst_ftf", 1.0),
    "worst_ftf_percent": ("worst_ftf", 1.0),
    "unfair_points": ("unfair_fraction", 100.0),
}
"""Column of each paired difference, and its factor unless the difference is in percent."""


@dataclass(frozen=True, slots=True)
class Group:
    """The finished cells that differ only in their seed.

    Attributes:
        options: Name of the variant of the settings.
        seeds: Number of cells.
        figures: Interval by figure; None if no run of the group has a value.
    """

    policy: str
    workload: str
    cluster: str
    options: str
    seeds: int
    figures: dict[str, Interval | None]

    def row(self) -> dict[str, object]:
        """Return plain numbers: mean and interval bounds of each figure."""
        row: dict[str, object] = {
            "policy": self.policy,
            "workload": self.workload,
            "cluster": self.cluster,
            "options": self.options,
            "seeds": self.seeds,
        }
        for name, figure in self.figures.items():
            row |= as_columns(name, figure)
        return row

    def shown(self) -> dict[str, object]:
        """Format the group for a table."""
        row: dict[str, object] = {
            "policy": self.policy,
            "workload": self.workload,
            "cluster": self.cluster,
        }
        if self.options:
            row["options"] = self.options
        row["seeds"] = self.seeds
        for name, figure in self.figures.items():
            row[name] = "" if figure is None else str(figure)
        return row


def summarize(warehouse: Path, cells: Iterable[CellRow], of_jobs: str | None = None) -> list[Group]:
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
        Group(
            *key,
            len(group),
            {name: interval_of(rows_by_run[run][name] for run in group) for name in names},
        )
        for key, group in groups.items()
    ]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Paired differences between two policies on the same cells.

    Attributes:
        against: Name of the policy it is compared with.
        workload: Name of the workload, or `ALL` for the pairs of several workloads.
        figures: Differences by the keys of `PAIRED`; None if no pair has a value.
    """

    policy: str
    against: str
    workload: str
    figures: dict[str, PairedDifference | None]

    def row(self) -> dict[str, object]:
        """Return plain numbers: mean and interval bounds of each difference."""
        row: dict[str, object] = self._named()
        for name, paired in self.figures.items():
            row |= as_columns(name, None if paired is None else paired.change)
        return row

    def shown(self) -> dict[str, object]:
        """Format the differences for a table."""
        texts = {
            name: "" if paired is None else str(paired.change)
            for name, paired in self.figures.items()
        }
        return self._named() | texts

    def _named(self) -> dict[str, object]:
        found = [paired.pairs for paired in self.figures.values() if paired is not None]
        about = {"policy": self.policy, "against": self.against, "workload": self.workload}
        return about | {"pairs": max(found, default=0)}


def compare_policies(
    warehouse: Path,
    cells: Iterable[CellRow],
    of_jobs: str | None = None,
    against: str | None = None,
) -> list[Pairs]:
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

    def compared(policy: str, workload: str, key: str) -> PairedDifference | None:
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

    return [
        Pairs(policy, base, view, {key: compared(policy, view, key) for key in paired})
        for view in views
        for policy in names
        if policy != base
    ]


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
