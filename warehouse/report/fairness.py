"""Fairness by tenant, model, job size and load of the cluster."""

from collections.abc import Sequence

import altair as alt

from warehouse.analytics.definitions import UNFAIR_RHO
from warehouse.report.figure import (
    COLOURS,
    LABEL,
    STEP,
    Figure,
    Row,
    beside_labels,
    data,
    make_scale,
    offer_choice,
)

MOST = 12
"""Most groups in a chart, those with the worst ρ. An engineering choice."""

TITLES = {
    "tenant": "tenant",
    "size": "GPUs of the job",
    "model": "model",
    "load": "active jobs per GPU when it came",
}
"""Title by the property that groups jobs."""


def draw_fairness(groups: Sequence[Row], key: str = "fairness") -> Figure:
    """Draw finish-time fairness by property, from a run's rows of the query `fairness`."""
    about = (
        "ρ of the finished jobs: the line goes from the least to the worst, the bar holds the "
        f"middle half, the tick is the median. The dashed line is {UNFAIR_RHO}, above which a job "
        "is unfairly treated."
    )
    title = "Who was treated unfairly?"
    if not groups:
        return Figure(key, title, about, missing="No job has ended yet.")
    found = {by: [row for row in groups if row["by"] == by] for by in TITLES}
    several = {by: rows for by, rows in found.items() if len(rows) > 1}
    charts = {by: _chart(rows, TITLES[by]) for by, rows in (several or found).items()}
    if not several:
        charts = dict(list(charts.items())[:1])
    return offer_choice(
        key, title, about, charts, [row for rows in found.values() for row in rows], "By"
    )


def _chart(rows: Sequence[Row], title: str) -> alt.LayerChart | alt.FacetChart:
    """Draw a line, a bar and a tick for each of the groups with the worst ρ."""
    if len(rows) > MOST:
        title = f"{title}, the {MOST} with the worst ρ"
        worst = sorted(rows, key=lambda row: -row["worst_rho"])[:MOST]
        rows = [row for row in rows if row in worst]
    base = alt.Chart(data(rows), width=520, height=STEP * len(rows) + 8).encode(
        y=alt.Y("kind:N", sort=None, title=None, axis=alt.Axis(labelLimit=LABEL))
    )
    figures = {
        "median_rho": "median ρ",
        "worst_rho": "worst ρ",
        "unfair_percent": "unfair (%)",
        "mean_jct_hours": "mean JCT (h)",
        "gpu_hours": "GPU-hours",
    }
    tips = [
        alt.Tooltip("kind:N", title=title),
        alt.Tooltip("jobs:Q"),
        *(alt.Tooltip(f"{name}:Q", title=figures[name], format=",.3~r") for name in figures),
    ]
    axis = alt.Axis(tickCount=8)
    scale = make_scale([row[end] for row in rows for end in ("least_rho", "worst_rho")], zero=True)
    least = alt.X("least_rho:Q", title=f"ρ by {title}", scale=scale, axis=axis)
    whole = base.mark_rule(strokeWidth=1.5).encode(x=least, x2="worst_rho:Q")
    half = base.mark_bar(size=12, color=COLOURS[4]).encode(
        x="quarter:Q", x2="three_quarters:Q", tooltip=tips
    )
    middle = base.mark_tick(thickness=2, size=14, color=COLOURS[5]).encode(x="median_rho:Q")
    fair = alt.Chart(data([{"fair": UNFAIR_RHO}])).mark_rule(strokeDash=[4, 4]).encode(x="fair:Q")
    return alt.layer(whole, half, middle, fair).properties(
        usermeta=beside_labels([row["kind"] for row in rows])
    )
