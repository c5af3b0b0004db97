"""The contents of a report: chapters of questions, each answered by a figure and a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from altair.utils.schemapi import debug_mode

from warehouse.analytics.paired import reference
from warehouse.analytics.questions import Analytics
from warehouse.report import accounts
from warehouse.report.comparison import draw_differences, draw_front, draw_policies
from warehouse.report.distributions import draw_distributions
from warehouse.report.fairness import draw_fairness
from warehouse.report.figure import Figure, Row, thin_out
from warehouse.report.forecasts import draw_errors, draw_forecasts
from warehouse.report.gantt import draw_gantt
from warehouse.report.jobs import OF_JOBS, RunJobs, collect_jobs
from warehouse.report.matrix import RECIPE, draw_types
from warehouse.report.metrics import HEADLINES
from warehouse.report.selection import (
    ReportedRun,
    group_by_label,
    group_runs,
    list_labels,
    query_by_run,
    read_entries,
    select_detailed,
    select_firsts,
)
from warehouse.report.table import Table
from warehouse.report.tiles import Tile, make_policy_tiles, make_run_tiles
from warehouse.report.timeline import draw_load, draw_market, draw_solver

OF_RUNS = ("held", "fairness", "solves", "prices", "errors", "cost")
"""Queries of the chapters of runs, besides those of their jobs."""

FIGURE_ROWS = 24
"""Most rows of a figure's table; the warehouse has all. An engineering choice."""

MOST_NAMES = 6
"""Most labels in a page's title. A choice of layout."""


@dataclass(frozen=True)
class Section:
    """A question with a figure, a table, or both.

    Attributes:
        key: Name in links.
        figure: The answer at a glance.
        table: The answer in full.
        notes: Statements by their subject.
        folded: Whether the section starts closed.
    """

    key: str
    question: str
    figure: Figure | None = None
    table: Table | None = None
    notes: Sequence[tuple[str, str]] = ()
    folded: bool = False

    @property
    def rows(self) -> Table | None:
        """Return the data of a figure without a table, evenly thinned if there are many rows."""
        if self.figure is None or self.table is not None or not self.figure.rows:
            return None
        rows = self.figure.rows
        few = thin_out(rows, FIGURE_ROWS)
        cut = f": {len(few)} of {len(rows)} rows, evenly spread" if len(few) < len(rows) else ""
        return Table(self.question + cut, few)


@dataclass(frozen=True)
class Chapter:
    """Tiles and sections about all runs or about one.

    Attributes:
        key: Name in links.
        tiles: Figures at the head.
    """

    key: str
    title: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    jobs: RunJobs | None = None
    folded: bool = False


@dataclass(frozen=True)
class PageContents:
    """The contents of a page, in chapters."""

    chapters: Sequence[Chapter]

    @property
    def sections(self) -> list[Section]:
        """All sections, in order."""
        return [section for chapter in self.chapters for section in chapter.sections]

    @property
    def figures(self) -> list[Figure]:
        """All figures, in order, with the names of their runs."""
        return [
            replace(section.figure, about_runs=chapter.title)
            for chapter in self.chapters
            for section in chapter.sections
            if section.figure is not None
        ]


@dataclass(frozen=True)
class Report(PageContents):
    """The contents of a report; with several runs, the first chapter is about all of them.

    Attributes:
        entries: The runs; of a campaign, one per cell.
        shown: The runs with their own chapters.
    """

    entries: Sequence[ReportedRun]
    shown: Sequence[ReportedRun]

    @property
    def runs(self) -> list[str]:
        """The distinct runs."""
        return list(dict.fromkeys(entry.run for entry in self.entries))

    @property
    def title(self) -> str:
        """The names of the policies and options, or their number if there are many."""
        labels = list_labels(self.entries)
        if len(labels) > MOST_NAMES:
            return f"{len(labels)} policies and options"
        return ", ".join(labels)


@debug_mode(False)  # otherwise Altair validates each part of a chart when it is made
def read_report(
    analytics: Analytics, about: str | Sequence[str], against: str | None = None
) -> Report:
    """Read the contents of a report.

    Args:
        analytics: The warehouse.
        about: A run, runs separated by commas, a campaign, or a list of runs. A campaign's report
            uses the campaign's names of policies, workloads, clusters and options.
        against: The reference policy of paired differences; by default, the first.

    Raises:
        InputError: There is no such run, campaign or policy, or it has no rounds yet.
        WarehouseError: A file is damaged.
    """
    entries = read_entries(analytics, about)
    reference([entry.policy for entry in entries], against)
    shown = select_detailed(entries)
    drawn = select_firsts(entries)
    asked = query_by_run(analytics, ("distributions", "load"), [entry.run for entry in drawn])
    runs = [entry.run for entry in shown]
    asked |= query_by_run(analytics, (*OF_RUNS, *OF_JOBS), runs)
    jobs = {run: collect_jobs(run, *(asked[sql][run] for sql in OF_JOBS)) for run in runs}
    alone = len(entries) == 1
    chapters = [] if alone else [_all(entries, drawn, asked, against)]
    apart = len(group_runs(entries)) > 1  # several workloads or clusters
    for entry in shown:
        where = f" in {entry.group}" if apart else ""
        title = f"{entry.label}{where}"
        chapters.append(_run(analytics, entry, jobs[entry.run], asked, title, alone=alone))
    return Report(chapters, entries, shown)


Asked = Mapping[str, Mapping[str, Sequence[Row]]]
"""Rows by query and run."""


def _all(
    entries: Sequence[ReportedRun], drawn: Sequence[ReportedRun], asked: Asked, against: str | None
) -> Chapter:
    """Return the chapter of all runs: what they share, and how they differ."""
    compared = draw_policies(entries)
    found = [
        Section(compared.key, compared.title, compared, _by_policy(entries)),
        _section(draw_differences(entries, against)),
        _section(draw_front(entries)),
        _section(draw_distributions(drawn, asked["distributions"])),
        _section(draw_load(drawn, asked["load"])),
        Section("runs", "Which runs are these?", table=_by_run(entries)),
    ]
    sections = [section for section in found if section is not None]
    return Chapter("all", f"All {len(entries)} runs", make_policy_tiles(entries), sections)


def _by_policy(entries: Sequence[ReportedRun]) -> Table:
    """Return means over seeds with their intervals, by workload and label."""
    groups = group_runs(entries)
    rows: list[Row] = [
        {
            "workload": group,
            "policy": label,
            "runs": len(alike),
            **{metric.title: metric.over(alike) for metric in HEADLINES},
        }
        for group, members in groups.items()
        for label, alike in group_by_label(members).items()
    ]
    caption = "Means over seeds, ± half of their 95 % confidence intervals"
    if len(entries) > len(rows):
        caption += " (of worst ρ: the mean of each run's worst)"
    if len(groups) == 1:
        caption += f": {next(iter(groups))}"
        rows = _without("workload", rows)
    return Table(caption, rows, filters=("workload", "policy"))


def _by_run(entries: Sequence[ReportedRun]) -> Table:
    rows: list[Row] = [
        {
            "run": entry.run,
            "policy": entry.policy,
            "options": entry.options,
            "workload": entry.group,
            "seed": str(entry.seed),
            "complete": bool(entry.figures["complete"]),
            **{metric.title: metric.of(entry) for metric in HEADLINES},
        }
        for entry in entries
    ]
    for name in ("options", "workload"):
        if len({row[name] for row in rows}) == 1:
            rows = _without(name, rows)
    return Table("Headline figures of each run", rows, filters=("policy", "options", "workload"))


def _without(column: str, rows: Sequence[Row]) -> list[Row]:
    return [{name: row[name] for name in row if name != column} for row in rows]


def _run(
    analytics: Analytics,
    entry: ReportedRun,
    jobs: RunJobs,
    asked: Asked,
    title: str,
    *,
    alone: bool,
) -> Chapter:
    run = entry.run
    explorer = accounts.make_table(jobs, entry.figures["jobs"])
    solves = asked["solves"][run]
    found = [
        Section(f"jobs-{run}", "How did each job fare, and why?", table=explorer),
        _section(draw_fairness(asked["fairness"][run], f"fairness-{run}")),
        _section(
            draw_gantt(
                asked["held"][run],
                entry.settings["gpus"],
                f"gantt-{run}",
                entry.settings["pools"],
            )
        ),
    ]
    columns, used = analytics.recipe(RECIPE, run)
    found.append(
        _section(draw_types([dict(zip(columns, row, strict=True)) for row in used], f"types-{run}"))
    )
    if alone:
        found += [
            _section(draw_load([entry], asked["load"])),
            _section(draw_distributions([entry], asked["distributions"])),
        ]
    found += [
        _section(draw_market(solves, asked["prices"][run], f"market-{run}")),
        _section(draw_errors(asked["errors"][run], f"errors-{run}")),
        _section(draw_forecasts(jobs, f"forecasts-{run}")),
        _section(draw_solver(solves, f"solver-{run}"), folded=True),
    ]
    ended = [job for job in jobs.rows.values() if job["rho"] is not None]
    worst = min(ended, key=lambda job: (-job["rho"], job["job_id"]))["job_id"] if ended else None
    return Chapter(
        f"run-{run}",
        title,
        make_run_tiles(entry, worst, asked["cost"][run]),
        [section for section in found if section is not None],
        jobs,
        folded=not alone,
    )


def _section(figure: Figure | None, *, folded: bool = False) -> Section | None:
    if figure is None:
        return None
    return Section(figure.key, figure.title, figure, folded=folded)
