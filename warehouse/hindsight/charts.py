"""Figures that compare the actual schedule with those of policies."""

from collections.abc import Sequence

import altair as alt
import numpy as np

from warehouse.analytics.definitions import UNFAIR_RHO
from warehouse.hindsight.gains import Gain
from warehouse.hindsight.jobs import Array
from warehouse.hindsight.schedules import Schedule
from warehouse.report.distributions import draw_steps
from warehouse.report.figure import (
    COLOURS,
    LABEL,
    STEP,
    WIDTH,
    Figure,
    Row,
    beside_labels,
    colour,
    data,
    offer_choice,
)
from warehouse.report.timeline import draw_busy

BARS = {
    "mean wait (h)": ("mean_wait_s", 3600.0),
    "95th percentile of the waits (h)": ("wait_p95_s", 3600.0),
    "mean JCT (h)": ("mean_jct_s", 3600.0),
    "unfairly treated jobs (%)": ("unfair_fraction", 0.01),
}
"""Figures at the head, and their divisors."""

POINTS = 200
"""Most points of a distribution. An engineering choice."""

MOST_BARS = 20
"""Most groups in a chart: those with the most GPU-hours. A choice of layout."""


def draw_headlines(schedules: Sequence[Schedule]) -> Figure:
    """Draw waits, JCT and unfair jobs by schedule."""
    labels = [schedule.label for schedule in schedules]
    figures = {schedule.label: schedule.summarize() for schedule in schedules}
    rows: list[Row] = [
        {"figure": title, "label": label, "value": round(figures[label][name] / unit, 4)}
        for title, (name, unit) in BARS.items()
        for label in labels
    ]
    panels = [_draw_bars([r for r in rows if r["figure"] == t], labels, t) for t in BARS]
    chart = alt.concat(*panels, columns=2, spacing=20)
    about = (
        "A wait is the time, from when a job could start to its end, without GPUs; JCT is all "
        "of that time. Less is better."
    )
    title = "How long would jobs have waited?"
    chart = chart.properties(usermeta=beside_labels(labels))
    return Figure("headlines", title, about, chart, rows)


def _draw_bars(
    rows: Sequence[Row], labels: Sequence[str], title: str
) -> alt.LayerChart | alt.FacetChart:
    base = alt.Chart(data(rows), width=190, height=STEP * len(labels) + 8, title=title).encode(
        y=alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=LABEL)),
        x=alt.X("value:Q", title=None, axis=alt.Axis(tickCount=4)),
    )
    tips = [alt.Tooltip("label:N"), alt.Tooltip("value:Q", title=title, format=",.3~r")]
    bars = base.mark_bar().encode(color=colour(labels, legend=False), tooltip=tips)
    text = base.mark_text(align="left", dx=4, fontSize=10)
    return alt.layer(bars, text.encode(text=alt.Text("value:Q", format=",.3~r")))


def draw_spread(schedules: Sequence[Schedule]) -> Figure:
    """Draw the cumulative distributions of waits and of ρ."""
    labels = [schedule.label for schedule in schedules]
    waits = [row for s in schedules for row in _list_points(s.label, s.waits / 3600)]
    rhos = [row for s in schedules for row in _list_points(s.label, s.rhos)]
    fair = alt.Chart(data([{"rho": UNFAIR_RHO}])).mark_rule(strokeDash=[4, 4]).encode(x="rho:Q")
    charts = (
        draw_steps(waits, labels, "wait (h)"),
        alt.layer(draw_steps(rhos, labels, "ρ"), fair),
    )
    about = (
        "Share of the jobs that wait at most so long, and with at most so large a ρ. The dashed "
        f"line is ρ {UNFAIR_RHO}, above which a job is unfairly treated. Further left is better."
    )
    named = (("wait (h)", waits), ("ρ", rhos))
    rows = [{"figure": name, **row} for name, of in named for row in of]
    chart = alt.concat(*charts, columns=2, spacing=30)
    return Figure("spread", "How are waits and ρ spread over the jobs?", about, chart, rows)


def _list_points(label: str, values: Array) -> list[Row]:
    shares = np.linspace(0.0, 1.0, POINTS + 1)[1:]
    points = np.quantile(values, shares, method="inverted_cdf")
    return [
        {"run": label, "label": label, "value": round(float(value), 4), "share": round(share, 4)}
        for value, share in zip(points, shares.tolist(), strict=True)
    ]


def draw_use(schedules: Sequence[Schedule]) -> Figure:
    """Draw how many GPUs were held, and how many jobs waited, over time."""
    rows = [{"label": s.label, **row} for s in schedules for row in s.load]
    about = (
        "Share of the GPUs that jobs hold (above) and jobs that hold none (below), in hours since "
        "the first job came."
    )
    chart = draw_busy(rows, [schedule.label for schedule in schedules])
    return Figure("load", "How busy was the cluster?", about, chart, rows)


def draw_gains(gains: Sequence[Sequence[Gain]], key: str, title: str, group: str) -> Figure:
    """Draw by how much sooner the jobs of each group end, with a chart for each policy."""
    about = (
        f"Mean time by which the jobs of each {group} end sooner than they did; left of the line "
        "they end later."
    )
    if len(gains[0]) > MOST_BARS:
        about += f" Of {len(gains[0])}, the {MOST_BARS} with the most GPU-hours."
    charts, rows = {}, []
    for of_policy in gains:
        found: list[Row] = [
            {"group": gain.group, "jobs": gain.jobs, "hours": round(gain.saved / 3600, 4)}
            for gain in of_policy[:MOST_BARS]
        ]
        charts[of_policy[0].policy] = _draw_changes(found, group)
        rows += [{"policy": of_policy[0].policy, **row} for row in found]
    return offer_choice(key, title, about, charts, rows, choose="Policy")


def _draw_changes(rows: Sequence[Row], group: str) -> alt.Chart:
    names = [str(row["group"]) for row in rows]
    chart: alt.Chart = (
        alt.Chart(data(rows), width=WIDTH - 200, height=STEP * len(rows) + 8)
        .mark_bar()
        .encode(
            y=alt.Y("group:N", sort=None, title=None, axis=alt.Axis(labelLimit=LABEL)),
            x=alt.X("hours:Q", title="sooner by (h)", axis=alt.Axis(tickCount=8)),
            color=alt.condition("datum.hours < 0", alt.value(COLOURS[5]), alt.value(COLOURS[0])),
            tooltip=[
                alt.Tooltip("group:N", title=group),
                alt.Tooltip("jobs:Q", format=","),
                alt.Tooltip("hours:Q", title="sooner by (h)", format=",.3~r"),
            ],
        )
        .properties(usermeta=beside_labels(names))
    )
    return chart
