"""Distributions of ρ and JCT over the jobs of runs."""

from collections.abc import Mapping, Sequence

import altair as alt

from warehouse.analytics.definitions import UNFAIR_RHO
from warehouse.report.figure import (
    Figure,
    Row,
    colour,
    dash,
    data,
    make_scale,
    offer_choice,
    thin_out,
)
from warehouse.report.selection import ReportedRun, group_runs, list_labels

POINTS = 200
"""Most points of a distribution; more are not visible. An engineering choice."""

SHOWN = {"rho": ("ρ", 1.0), "jct_seconds": ("JCT (h)", 3600.0)}
"""Axis title and divisor by metric of the mart `distributions`."""


def draw_distributions(
    entries: Sequence[ReportedRun], asked: Mapping[str, Sequence[Row]]
) -> Figure:
    """Draw the cumulative distributions of ρ and JCT over jobs, with a line per run.

    `asked` has each run's rows of the query `distributions`.
    """
    about = (
        "Share of the finished jobs with at most so large a ρ and job completion time (JCT). The "
        f"dashed line is ρ {UNFAIR_RHO}, above which a job is unfairly treated. A line further "
        "left is better."
    )
    key, title = "distributions", "How are ρ and JCT spread over the jobs?"
    rows: list[Row] = []
    charts = {}
    for group, members in group_runs(entries).items():
        found = [row for entry in members for row in _rows(entry, asked[entry.run])]
        if found:
            charts[group] = _both(found, list_labels(members))
            rows += found
    if not rows:
        return Figure(key, title, about, missing="No job has ended yet.")
    return offer_choice(key, title, about, charts, rows)


def _rows(entry: ReportedRun, asked: Sequence[Row]) -> list[Row]:
    return [
        {
            "run": entry.run,
            "label": entry.label,
            "metric": name,
            "value": round(row["value"] / unit, 4),
            "share": round(row["share"], 4),
        }
        for metric, (name, unit) in SHOWN.items()
        for row in thin_out([row for row in asked if row["metric"] == metric], POINTS)
    ]


def _both(rows: Sequence[Row], labels: Sequence[str]) -> alt.ConcatChart:
    fair = alt.Chart(data([{"rho": UNFAIR_RHO}])).mark_rule(strokeDash=[4, 4]).encode(x="rho:Q")
    rho, jct = (
        draw_steps([row for row in rows if row["metric"] == name], labels, name)
        for name, _ in SHOWN.values()
    )
    chart: alt.ConcatChart = alt.concat(alt.layer(rho, fair), jct, columns=2, spacing=30)
    return chart


def draw_steps(rows: Sequence[Row], labels: Sequence[str], name: str) -> alt.Chart:
    """Draw the share of jobs with at most a `value`, a line per run and its `label`."""
    scale = make_scale([row["value"] for row in rows], zero=True)
    chart: alt.Chart = (
        alt.Chart(data(rows), width=310, height=200)
        .mark_line(interpolate="step-after", strokeWidth=2, clip=True)
        .encode(
            x=alt.X("value:Q", title=name, scale=scale, axis=alt.Axis(tickCount=6)),
            y=alt.Y("share:Q", title="share of jobs", axis=alt.Axis(format="%", tickCount=5)),
            color=colour(labels),
            strokeDash=dash(labels),
            detail="run:N",
            tooltip=[
                alt.Tooltip("label:N", title="policy"),
                alt.Tooltip("run:N"),
                alt.Tooltip("value:Q", title=name, format=",.3~r"),
                alt.Tooltip("share:Q", title="share of jobs", format=".1%"),
            ],
        )
    )
    return chart
