"""The contents of a report: chapters of questions, each with its figure and its table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from altair.utils.schemapi import debug_mode

from warehouse.analytics.paired import reference
from warehouse.analytics.questions import Analytics
from warehouse.report import accounts
from warehouse.report.comparison import front, paired, policies
from warehouse.report.distributions import DISTRIBUTIONS, distributions
from warehouse.report.fairness import fairness
from warehouse.report.figure import Figure, Row, thinned
from warehouse.report.forecasts import ERRORS, errors, forecasts, regimes
from warehouse.report.gantt import HELD, gantt
from warehouse.report.jobs import OF_JOBS, RunJobs, jobs_of
from warehouse.report.matrix import RECIPE, matrix
from warehouse.report.metrics import HEADLINES
from warehouse.report.selection import (
    ReportedRun,
    by_run,
    detailed,
    entries_of,
    firsts,
    grouped,
    labels_of,
)
from warehouse.report.table import Table
from warehouse.report.tiles import COST, Tile, of_policies, of_run, published_beside
from warehouse.report.timeline import LOAD, PRICES, SOLVES, load, market, solver

FIGURE_ROWS = 24
"""Most rows of a figure's table; the rest is in the warehouse. An engineering choice."""


@dataclass(frozen=True)
class Section:
    """A question with its figure, its table, or both.

    Attributes:
        key: Its name in links.
        question: Its heading.
        figure: The answer at a glance.
        table: The answer in full.
        folded: Whether its reader has to open it.
    """

    key: str
    question: str
    figure: Figure | None = None
    table: Table | None = None
    folded: bool = False

    @property
    def rows(self) -> Table | None:
        """The data of a figure that has no table, evenly thinned where there are many rows."""
        if self.figure is None or self.table is not None or not self.figure.rows:
            return None
        rows = self.figure.rows
        few = thinned(rows, FIGURE_ROWS)
        cut = f": {len(few)} of {len(rows)} rows, evenly spread" if len(few) < len(rows) else ""
        return Table(self.question + cut, few)


@dataclass(frozen=True)
class Chapter:
    """Tiles and sections, of all runs or of one.

    Attributes:
        key: Its name in links.
        title: Its heading.
        tiles: The figures at its head.
        sections: Its questions.
        jobs: The jobs of its run, if it is about one.
        folded: Whether its reader has to open it.
    """

    key: str
    title: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    jobs: RunJobs | None = None
    folded: bool = False


@dataclass(frozen=True)
class Report:
    """The contents of a report.

    Attributes:
        entries: The runs, one for each cell of a campaign.
        shown: The runs with a chapter of their own.
        chapters: That of all runs first, if there are several.
    """

    entries: Sequence[ReportedRun]
    shown: Sequence[ReportedRun]
    chapters: Sequence[Chapter]

    @property
    def runs(self) -> list[str]:
        """The runs, each once."""
        return list(dict.fromkeys(entry.run for entry in self.entries))

    @property
    def sections(self) -> list[Section]:
        """All sections, in order."""
        return [section for chapter in self.chapters for section in chapter.sections]

    @property
    def figures(self) -> list[Figure]:
        """All figures, in order."""
        return [section.figure for section in self.sections if section.figure is not None]


@debug_mode(False)  # or Altair validates each part of a chart when it is made
def report_of(
    analytics: Analytics, about: str | Sequence[str], against: str | None = None
) -> Report:
    """Read the contents of a report.

    Args:
        analytics: The warehouse.
        about: A run, runs separated by commas, a campaign, or a list of runs. Of a campaign the
            report uses its own names of policies, workloads, clusters and options.
        against: The policy that paired differences are taken from; by default the first.

    Raises:
        InputError: There is no such run, campaign or policy, or it has no rounds yet.
        WarehouseError: A file is damaged.
    """
    entries = entries_of(analytics, about)
    reference([entry.policy for entry in entries], against)
    shown = detailed(entries)
    drawn = firsts(entries)
    asked = by_run(analytics, (DISTRIBUTIONS, LOAD), [entry.run for entry in drawn])
    runs = [entry.run for entry in shown]
    asked |= by_run(analytics, (HELD, SOLVES, PRICES, ERRORS, COST, *OF_JOBS), runs)
    jobs = {run: jobs_of(run, *(asked[sql][run] for sql in OF_JOBS)) for run in runs}
    alone = len(entries) == 1
    chapters = [] if alone else [_all(entries, drawn, asked, against)]
    apart = len(grouped(entries)) > 1  # workloads
    for entry in shown:
        where = f" in {entry.group}" if apart else ""
        title = entry.label if alone else f"{entry.label}{where}: {entry.run}"
        chapters.append(_run(analytics, entry, jobs[entry.run], asked, title, alone=alone))
    return Report(entries, shown, chapters)


Asked = Mapping[str, Mapping[str, Sequence[Row]]]


def _all(
    entries: Sequence[ReportedRun], drawn: Sequence[ReportedRun], asked: Asked, against: str | None
) -> Chapter:
    """The chapter of all runs: what they have in common, and how they differ."""
    compared = policies(entries)
    found = [
        Section(compared.key, compared.title, compared, _by_policy(entries)),
        _section(paired(entries, against)),
        _section(front(entries)),
        _section(distributions(drawn, asked[DISTRIBUTIONS])),
        _section(load(drawn, asked[LOAD])),
        Section("runs", "Which runs are these?", table=_by_run(entries)),
    ]
    sections = [section for section in found if section is not None]
    return Chapter("all", f"All {len(entries)} runs", of_policies(entries), sections)


def _by_policy(entries: Sequence[ReportedRun]) -> Table:
    """Means over seeds with their intervals, by workload and label."""
    groups = grouped(entries)
    rows: list[Row] = [
        {
            "workload": group,
            "policy": label,
            "runs": len(alike),
            **{metric.title: metric.over(alike) for metric in HEADLINES},
        }
        for group, members in groups.items()
        for label in labels_of(members)
        for alike in [[entry for entry in members if entry.label == label]]
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
    """What happened in one run."""
    run = entry.run
    explorer = accounts.table(jobs)
    solves = asked[SOLVES][run]
    found = [
        Section(f"jobs-{run}", "How did each job fare, and why?", table=explorer),
        _section(fairness(list(jobs.rows.values()), f"fairness-{run}")),
        _section(
            gantt(
                asked[HELD][run],
                jobs.rows,
                entry.settings["gpus"],
                f"gantt-{run}",
                entry.settings["pools"],
            )
        ),
    ]
    columns, used = analytics.recipe(RECIPE, run)
    found.append(
        _section(matrix([dict(zip(columns, row, strict=True)) for row in used], f"types-{run}"))
    )
    if alone:
        found += [
            _section(load([entry], asked[LOAD])),
            _section(distributions([entry], asked[DISTRIBUTIONS])),
        ]
    found += [
        _section(market(solves, asked[PRICES][run], f"market-{run}")),
        _section(errors(asked[ERRORS][run], f"errors-{run}")),
        _section(forecasts(jobs, f"forecasts-{run}")),
        _section(regimes(jobs, f"regimes-{run}"), folded=True),
        _section(solver(solves, f"solver-{run}"), folded=True),
    ]
    ended = [job for job in jobs.rows.values() if job["ftf"] is not None]
    worst = min(ended, key=lambda job: (-job["ftf"], job["job_id"]))["job_id"] if ended else None
    return Chapter(
        f"run-{run}",
        title,
        of_run(
            entry, worst, published_beside(analytics, entry) if alone else None, asked[COST][run]
        ),
        [section for section in found if section is not None],
        jobs,
        folded=not alone,
    )


def _section(figure: Figure | None, *, folded: bool = False) -> Section | None:
    if figure is None:
        return None
    return Section(figure.key, figure.title, figure, folded=folded)
