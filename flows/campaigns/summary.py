"""A campaign's figures: means over seeds with confidence intervals."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

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

CONFIDENCE = 0.95
"""Level of the confidence intervals over seeds, a convention."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over runs.

    Attributes:
        mean: Their arithmetic mean.
        half_width: Half the width of its 95 % confidence interval; None for a single run.
    """

    mean: float
    half_width: float | None

    def __str__(self) -> str:
        """The mean, and ± half the interval's width."""
        mean = _shown(self.mean)
        return mean if self.half_width is None else f"{mean} ± {_shown(self.half_width)}"


def interval(values: Sequence[float]) -> Interval:
    """The mean with its confidence interval, after Student's t distribution.

    Args:
        values: The sample; at least one value.
    """
    if len(values) < 2:
        return Interval(fmean(values), None)
    from scipy.stats import t  # costs half a second to import

    quantile = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
    return Interval(fmean(values), quantile * stdev(values) / math.sqrt(len(values)))


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


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
