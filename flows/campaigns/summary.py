"""A campaign's figures: means over seeds with confidence intervals."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from warehouse.analytics.intervals import Interval, interval
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


@dataclass(frozen=True, slots=True)
class Group:
    """The finished cells that differ in their seed only.

    Attributes:
        policy: Name of the policy.
        workload: Name of the workload.
        cluster: Name of the cluster.
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
        """The group as plain numbers: mean and bounds of the interval of each figure."""
        row: dict[str, object] = {
            "policy": self.policy,
            "workload": self.workload,
            "cluster": self.cluster,
            "options": self.options,
            "seeds": self.seeds,
        }
        for name, figure in self.figures.items():
            half = None if figure is None else figure.half_width
            row[name] = None if figure is None else figure.mean
            row[f"{name}_low"] = None if figure is None or half is None else figure.mean - half
            row[f"{name}_high"] = None if figure is None or half is None else figure.mean + half
        return row

    def shown(self) -> dict[str, object]:
        """The group as formatted for a table."""
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


def summarize(warehouse: Path, cells: Iterable[CellRow]) -> list[Group]:
    """Means over the seeds of a campaign, in the order of its cells.

    Args:
        warehouse: The warehouse with the runs.
        cells: The cells; unfinished cells are left out.

    Raises:
        WarehouseError: A run is damaged.
    """
    done = [cell for cell in cells if cell.status is CellStatus.FINISHED]
    if not done:
        return []
    runs = sorted({cell.run for cell in done})
    names = ", ".join(FIGURES)
    _, rows = Analytics(warehouse).query(f"SELECT run, {names} FROM run_summary", runs)
    found = {run: dict(zip(FIGURES, figures, strict=True)) for run, *figures in rows}
    groups: defaultdict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for cell in done:
        groups[cell.policy, cell.workload, cell.cluster, cell.options].append(cell.run)
    return [
        Group(
            *key, len(group), {name: _of([found[run][name] for run in group]) for name in FIGURES}
        )
        for key, group in groups.items()
    ]


def _of(values: Sequence[float | None]) -> Interval | None:
    known = [float(value) for value in values if value is not None]
    return interval(known) if known else None
