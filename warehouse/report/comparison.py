"""Runs side by side: the paper's four bars, and the distributions of ρ and JCT."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import altair as alt

from warehouse.analytics.questions import Analytics
from warehouse.report.figure import Figure, Row, colour, dash, data, thinned
from warehouse.report.selection import Entry, rows_of

BARS = (
    ("makespan_s", "makespan (h)", 3600.0, ".1f"),
    ("mean_jct_s", "mean JCT (h)", 3600.0, ".2f"),
    ("worst_ftf", "worst ρ", 1.0, ".2f"),
    ("unfair_fraction", "unfair jobs (%)", 0.01, ".1f"),
)
"""Column of `run_summary`, its title, divisor and number format."""

POINTS = 200
"""Most points of a distribution; more would not be visible. An engineering choice."""

DISTRIBUTIONS = """
SELECT run, metric, value, share FROM distributions
WHERE metric IN ('ftf', 'jct_seconds') ORDER BY run, metric, share, job_id
"""


def labels_of(entries: Sequence[Entry]) -> list[str]:
    """The distinct labels in the order of the runs, which determine the colours."""
    return list(dict.fromkeys(entry.label for entry in entries))


def four_bars(entries: Sequence[Entry], key: str = "comparison") -> Figure:
    """Makespan, mean JCT, worst ρ and unfair fraction by policy (NSDI '23, section 8).

    Args:
        entries: Runs of a single workload; runs of the same label, which differ in their seed,
            become a bar for their mean, with a line from the least to the largest.
        key: The figure's name.
    """
    labels = labels_of(entries)
    rows = [row for bar in BARS for row in _bar_rows(entries, labels, *bar[:3])]
    about = (
        "Makespan, mean job completion time, worst finish-time fairness ρ and share of jobs "
        "with ρ above 1.05, by policy; less is better in all four."
    )
    if len(entries) > len(labels):
        about += " Bars are means over seeds, lines reach from the least to the largest."
    title = "Policies compared" if len(labels) > 1 else "Headline figures"
    if not rows:
        return Figure(key, title, about, missing="No job has ended yet.")
    panels = [
        _panel([r for r in rows if r["metric"] == bar[1]], labels, *bar[1::2]) for bar in BARS
    ]
    return Figure(key, title, about, alt.concat(*panels, columns=4, spacing=24), rows)


def _bar_rows(
    entries: Sequence[Entry], labels: Sequence[str], column: str, name: str, unit: float
) -> list[Row]:
    rows: list[Row] = []
    for label in labels:
        values = [
            entry.figures[column] / unit
            for entry in entries
            if entry.label == label and entry.figures[column] is not None
        ]
        if values:
            spread = {"least": round(min(values), 5), "largest": round(max(values), 5)}
            mean = {"mean": round(fmean(values), 5), "runs": len(values)}
            rows.append({"metric": name, "label": label, **mean, **spread})
    return rows


def _panel(
    rows: Sequence[Row], labels: Sequence[str], name: str, form: str
) -> alt.LayerChart | alt.FacetChart:
    base = alt.Chart(data(rows), width=130, height=190, title=name).encode(
        x=alt.X("label:N", sort=None, title=None, axis=alt.Axis(labelAngle=-40))
    )
    value = alt.Y("mean:Q", title=None, axis=alt.Axis(tickCount=5), scale=alt.Scale(zero=True))
    tips = [
        alt.Tooltip("label:N", title="policy"),
        alt.Tooltip("mean:Q", title=name, format=form),
        alt.Tooltip("least:Q", format=form),
        alt.Tooltip("largest:Q", format=form),
        alt.Tooltip("runs:Q"),
    ]
    bars = base.mark_bar().encode(y=value, color=colour(labels, legend=False), tooltip=tips)
    spread = base.mark_rule(strokeWidth=1.5).encode(y="least:Q", y2="largest:Q")
    text = base.mark_text(dy=-7, fontSize=10).encode(
        y=alt.Y("largest:Q"), text=alt.Text("mean:Q", format=form)
    )
    return alt.layer(bars, spread, text)


def distributions(
    analytics: Analytics, entries: Sequence[Entry], key: str = "distributions"
) -> Figure:
    """Cumulative distributions of ρ and JCT over jobs, with a line per run."""
    labels = labels_of(entries)
    names = {entry.run: entry.label for entry in entries}
    asked: dict[tuple[str, str], list[Row]] = {}
    for row in rows_of(analytics, DISTRIBUTIONS, list(names)):
        asked.setdefault((row["run"], row["metric"]), []).append(row)
    rows = [
        {
            "run": row["run"],
            "label": names[row["run"]],
            "metric": row["metric"],
            "value": round(row["value"] / (3600 if row["metric"] == "jct_seconds" else 1), 4),
            "share": round(row["share"], 4),
        }
        for run in names
        for metric in ("ftf", "jct_seconds")
        for row in thinned(asked.get((run, metric), []), POINTS)
    ]
    about = (
        "Share of the finished jobs with at most so large a ρ (left; the dashed line is 1.05, "
        "above which a job is unfairly treated) and job completion time (right). "
        "A line further left is better."
    )
    title = "Distributions of ρ and JCT"
    if not rows:
        return Figure(key, title, about, missing="No job has ended yet.")
    fair = alt.Chart(data([{"ftf": 1.05}])).mark_rule(strokeDash=[4, 4]).encode(x="ftf:Q")
    ftf = _steps([r for r in rows if r["metric"] == "ftf"], labels, "finish-time fairness ρ")
    jct = _steps([r for r in rows if r["metric"] == "jct_seconds"], labels, "JCT (h)")
    chart = alt.concat(alt.layer(ftf, fair), jct, columns=2, spacing=30)
    return Figure(key, title, about, chart, rows)


def _steps(rows: Sequence[dict[str, Any]], labels: Sequence[str], name: str) -> alt.Chart:
    chart: alt.Chart = (
        alt.Chart(data(rows), width=310, height=230)
        .mark_line(interpolate="step-after", strokeWidth=2, clip=True)
        .encode(
            x=alt.X("value:Q", title=name, scale=alt.Scale(zero=True)),
            y=alt.Y("share:Q", title="share of jobs", axis=alt.Axis(format="%")),
            color=colour(labels),
            strokeDash=dash(labels),
            detail="run:N",
            tooltip=[
                alt.Tooltip("label:N", title="policy"),
                alt.Tooltip("run:N"),
                alt.Tooltip("value:Q", title=name, format=".3f"),
                alt.Tooltip("share:Q", title="share of jobs", format=".1%"),
            ],
        )
    )
    return chart
