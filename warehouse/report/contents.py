"""The contents of a report: sections of figures, and tables of runs, in order."""

from collections.abc import Sequence
from dataclasses import dataclass

from warehouse.analytics.questions import Analytics
from warehouse.report.comparison import distributions, four_bars
from warehouse.report.figure import Figure, Row
from warehouse.report.gantt import gantt
from warehouse.report.jobs import errors, forecasts, notable, regimes
from warehouse.report.selection import Entry, detailed, entries_of, rows_of
from warehouse.report.timeline import load, market, solver

TENANTS = """
SELECT tenant, jobs, mean_jct_s / 3600 AS mean_jct_hours, worst_ftf, unfair_fraction,
    envy_violations, gpu_hours, gpu_share, budget_share
FROM tenant_summary ORDER BY worst_ftf DESC NULLS LAST, tenant LIMIT 40
"""


@dataclass(frozen=True)
class Section:
    """A section of figures.

    Attributes:
        key: Its name in links.
        title: Its heading.
        figures: In order.
        tables: Captions and rows.
    """

    key: str
    title: str
    figures: Sequence[Figure]
    tables: Sequence[tuple[str, Sequence[Row]]] = ()


@dataclass(frozen=True)
class Report:
    """The contents of a report.

    Attributes:
        entries: The runs.
        shown: The runs with sections of their own.
        sections: Comparisons by workload first, then the runs.
    """

    entries: Sequence[Entry]
    shown: Sequence[Entry]
    sections: Sequence[Section]

    @property
    def figures(self) -> list[Figure]:
        """All figures, in order."""
        return [figure for section in self.sections for figure in section.figures]


def report_of(analytics: Analytics, runs: Sequence[str]) -> Report:
    """Read the contents of a report on some runs.

    Raises:
        InputError: A run is unknown.
        WarehouseError: A file is damaged.
    """
    entries = entries_of(analytics, runs)
    shown = detailed(entries)
    groups = list(dict.fromkeys(entry.group for entry in entries))
    sections = [
        _comparison(analytics, entries, shown, group, f"-{number}" if len(groups) > 1 else "")
        for number, group in enumerate(groups, 1)
    ]
    sections += [_run(analytics, entry) for entry in shown]
    return Report(entries, shown, sections)


def _comparison(
    analytics: Analytics, entries: Sequence[Entry], shown: Sequence[Entry], group: str, suffix: str
) -> Section:
    ours = [entry for entry in entries if entry.group == group]
    drawn = [entry for entry in shown if entry.group == group] or detailed(ours)
    figures = [
        four_bars(ours, f"comparison{suffix}"),
        distributions(analytics, ours, f"distributions{suffix}"),
        load(analytics, drawn, f"load{suffix}"),
    ]
    return Section(f"workload{suffix}", group[0].upper() + group[1:], figures)


def _run(analytics: Analytics, entry: Entry) -> Section:
    run = entry.run
    jobs = notable(analytics, run)
    figures = [
        gantt(analytics, run, entry.settings["gpus"], f"gantt-{run}"),
        market(analytics, run, f"market-{run}"),
        forecasts(analytics, run, jobs, f"forecasts-{run}"),
        errors(analytics, run, f"errors-{run}"),
        regimes(analytics, run, jobs, f"regimes-{run}"),
        solver(analytics, run, f"solver-{run}"),
    ]
    tables = [
        ("Notable jobs", jobs),
        ("Tenants, the 40 with the worst ρ", rows_of(analytics, TENANTS, [run])),
    ]
    return Section(f"run-{run}", f"{entry.label}: {run}", figures, tables)
