"""The contents of the page: figures, gains, and what the log cannot say."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from altair.utils.schemapi import debug_mode

from warehouse.analytics.intervals import in_three_digits
from warehouse.hindsight.caveats import list_caveats
from warehouse.hindsight.charts import draw_gains, draw_headlines, draw_spread, draw_use
from warehouse.hindsight.gains import (
    Gain,
    group_by_account,
    group_by_size,
    group_by_user,
    measure_gains,
)
from warehouse.hindsight.jobs import LoggedJobs
from warehouse.hindsight.schedules import WEEK_SECONDS, Schedule
from warehouse.report.contents import Chapter, PageContents, Section
from warehouse.report.figure import Row
from warehouse.report.table import Table
from warehouse.report.tiles import Tile

SHOWN = {
    "mean wait (h)": ("mean_wait_s", 3600.0),
    "median wait (h)": ("wait_p50_s", 3600.0),
    "p95 wait (h)": ("wait_p95_s", 3600.0),
    "p99 wait (h)": ("wait_p99_s", 3600.0),
    "mean JCT (h)": ("mean_jct_s", 3600.0),
    "p95 JCT (h)": ("jct_p95_s", 3600.0),
    "p99 JCT (h)": ("jct_p99_s", 3600.0),
    "makespan (h)": ("makespan_s", 3600.0),
    "utilisation (%)": ("utilization", 0.01),
    "mean ρ": ("mean_rho", 1.0),
    "p95 ρ": ("rho_p95", 1.0),
    "worst ρ": ("worst_rho", 1.0),
    "unfair jobs (%)": ("unfair_fraction", 0.01),
}
"""Figures of the page's table, and their divisors."""

TILES = {
    "Mean wait": ("mean_wait_s", 3600.0, "h"),
    "95th percentile of the waits": ("wait_p95_s", 3600.0, "h"),
    "Mean JCT": ("mean_jct_s", 3600.0, "h"),
    "Unfairly treated jobs": ("unfair_fraction", 0.01, "%"),
}

Groups = tuple[str, str, str, Callable[[LoggedJobs], list[str]]]
GROUPS: Sequence[Groups] = (
    ("accounts", "Which accounts would gain, and which would lose?", "account", group_by_account),
    ("users", "Which users would gain, and which would lose?", "user", group_by_user),
    ("sizes", "Which sizes of jobs would gain, and which would lose?", "size", group_by_size),
)

DATED = 10**9
"""Seconds from which a log's clock counts since 1970; smaller ones count from a day unknown."""


@dataclass(frozen=True)
class Hindsight(PageContents):
    """The contents of the page.

    Attributes:
        schedules: The actual schedule, then those of the policies.
        about: What was compared, in a sentence.
        verdict: What the best policy would have changed, in a sentence.
    """

    schedules: Sequence[Schedule]
    about: str
    verdict: str

    def rows(self) -> list[dict[str, Any]]:
        """Return the headline figures of each schedule; times are in seconds."""
        return [schedule.summarize() | {"run": schedule.run} for schedule in self.schedules]


@debug_mode(False)  # otherwise Altair validates each part of a chart when it is made
def read_hindsight(schedules: Sequence[Schedule], cluster: str, zone: tzinfo = UTC) -> Hindsight:
    """Make the contents of the page.

    Args:
        schedules: The actual schedule, then those of the policies.
        cluster: The cluster, and how it is known.
        zone: Time zone of dates.
    """
    actual, *policies = schedules
    jobs = actual.jobs
    found = []
    for key, title, group, of in GROUPS:
        names = of(jobs)
        gains = [measure_gains(names, actual, policy) for policy in policies]
        if key != "users" or any(job.user for job in jobs.log.jobs):
            figure = draw_gains(gains, key, title, group)
            found.append(Section(key, title, figure, _tabulate(gains, group)))
    headlines, weeks = draw_headlines(schedules), _tabulate_weeks(schedules, zone)
    drawn = draw_spread(schedules), draw_use(schedules)
    sections = [
        Section(headlines.key, headlines.title, headlines, _tabulate_figures(schedules)),
        *found,
        *(Section(figure.key, figure.title, figure) for figure in drawn),
        Section("weeks", "How long did each week's jobs take?", table=weeks),
    ]
    caveats = [
        Section("unknown", "What can the log not say?", notes=list_caveats(jobs, cluster)),
        Section("left-out", "Which lines are not compared?", table=_tabulate_left_out(jobs)),
    ]
    chapters = [
        Chapter("all", "The log and the policies", _make_tiles(schedules), sections),
        Chapter("caveats", "How far can this be trusted?", [], caveats),
    ]
    count = f"{len(jobs.log.jobs):,} jobs of {jobs.log.source}"
    about = f"{count}, on {_describe_gpus(jobs)}"
    return Hindsight(chapters, schedules, about, _judge(schedules))


def _judge(schedules: Sequence[Schedule]) -> str:
    """Return a sentence on the policy with the least mean JCT."""
    actual, *policies = schedules
    best = min(policies, key=lambda policy: float(policy.jcts.mean()))
    (gain,) = measure_gains(["all"] * len(actual.ends), actual, best)
    saved, wait, actual_wait = (
        f"{in_three_digits(seconds / 3600)} h"
        for seconds in (abs(gain.saved), gain.wait, gain.actual_wait)
    )
    return (
        f"Under {best.label} jobs would have ended {saved} "
        f"{'sooner' if gain.saved >= 0 else 'later'} on average, after a wait of {wait} in place "
        f"of {actual_wait}: {gain.sooner:.0%} of them more than a round sooner, {gain.later:.0%} "
        "more than a round later."
    )


def _describe_gpus(jobs: LoggedJobs) -> str:
    return f"{jobs.capacity:,.0f} GPU{'s' * (jobs.capacity != 1)}"


def _make_tiles(schedules: Sequence[Schedule]) -> list[Tile]:
    """Return the actual figures, with those of the policies below, the best first."""
    figures = [schedule.summarize() for schedule in schedules]
    tiles = []
    for title, (name, divisor, unit) in TILES.items():
        values = [(row[name] / divisor, str(row["schedule"])) for row in figures]
        (actual, _), *others = values
        notes = [f"{label} {_write(value, unit)}" for value, label in sorted(others)]
        tiles.append(Tile(title, _write(actual, unit), ["actual", *notes]))
    return tiles


def _write(value: float, unit: str) -> str:
    return f"{in_three_digits(value)}\N{NO-BREAK SPACE}{unit}"


def _tabulate_figures(schedules: Sequence[Schedule]) -> Table:
    rows: list[Row] = []
    for schedule in schedules:
        figures = schedule.summarize()
        cells = {title: figures[name] / unit for title, (name, unit) in SHOWN.items()}
        rows.append({"schedule": schedule.label, **cells})
    return Table("Waits, JCT and ρ over all jobs; utilisation without restarts", rows)


def _tabulate(gains: Sequence[Sequence[Gain]], group: str) -> Table:
    rows: list[Row] = [
        {
            group: gain.group,
            "policy": gain.policy,
            "jobs": gain.jobs,
            "GPU-hours": gain.gpu_hours,
            "actual mean wait (h)": gain.actual_wait / 3600,
            "mean wait (h)": gain.wait / 3600,
            "sooner by (h)": gain.saved / 3600,
            "jobs sooner (%)": gain.sooner * 100,
            "jobs later (%)": gain.later * 100,
        }
        for alike in zip(*gains, strict=True)
        for gain in alike
    ]
    caption = "Means over jobs; sooner or later means by more than a round"
    return Table(caption, rows, filters=("policy", group))


def _tabulate_weeks(schedules: Sequence[Schedule], zone: tzinfo) -> Table:
    jobs = schedules[0].jobs
    weeks = sorted({int(week) for week in jobs.arrivals // WEEK_SECONDS})
    spans = [schedule.measure_weeks() for schedule in schedules]
    rows: list[Row] = [
        {
            "week from": _name_week(jobs.begin + week * WEEK_SECONDS, week, zone),
            "jobs": int((jobs.arrivals // WEEK_SECONDS == week).sum()),
            **{f"{s.label} (h)": of[at] / 3600 for s, of in zip(schedules, spans, strict=True)},
        }
        for at, week in enumerate(weeks)
    ]
    caption = "Makespan of the jobs that came in a week: from its first arrival to their last end"
    return Table(caption, rows)


def _name_week(seconds: float, week: int, zone: tzinfo) -> str:
    if seconds < DATED:
        return f"day {7 * week + 1}"
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M")


def _tabulate_left_out(jobs: LoggedJobs) -> Table:
    rows: list[Row] = [
        {"reason": reason, "lines": number} for reason, number in jobs.log.left_out.items()
    ]
    return Table(
        "Lines of the log that are not compared, by reason",
        rows or [{"reason": "none", "lines": 0}],
    )
