"""The figures that compare runs, in the units of reports."""

from collections.abc import Sequence
from dataclasses import dataclass

from warehouse.analytics.intervals import Interval, interval_of
from warehouse.report.selection import ReportedRun


@dataclass(frozen=True)
class Metric:
    """A column of `run_summary` as a report shows it.

    Attributes:
        title: Name of the figure, with its unit in reports.
        divisor: The report's unit, in the column's unit.
    """

    column: str
    title: str
    divisor: float = 1.0

    def of(self, entry: ReportedRun) -> float | None:
        """Return a run's value; None if it has none yet."""
        value = entry.figures[self.column]
        return None if value is None else value / self.divisor

    def over(self, entries: Sequence[ReportedRun]) -> Interval | None:
        """Return the mean over runs with its confidence interval; None without a value."""
        return interval_of(map(self.of, entries))


MAKESPAN = Metric("makespan_s", "makespan (h)", 3600.0)
MEAN_JCT = Metric("mean_jct_s", "mean JCT (h)", 3600.0)
WORST_RHO = Metric("worst_rho", "worst ρ")
UNFAIR = Metric("unfair_fraction", "unfair jobs (%)", 0.01)
RESTARTS = Metric("restart_share", "restarts (% of leased GPU time)", 0.01)

COMPARED = (MAKESPAN, MEAN_JCT, WORST_RHO, UNFAIR)
"""The paper's four figures (NSDI '23, section 8); lower is better in all."""

HEADLINES = (
    MAKESPAN,
    MEAN_JCT,
    Metric("jct_p99_s", "p99 JCT (h)", 3600.0),
    WORST_RHO,
    UNFAIR,
    Metric("utilization", "utilisation (%)", 0.01),
    RESTARTS,
    Metric("preemptions", "preemptions"),
    Metric("nash_welfare", "Nash welfare"),
)
"""Columns of the tables of policies and of runs."""
