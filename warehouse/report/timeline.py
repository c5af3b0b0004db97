"""A run round by round: load, prices and solver quality."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt

from warehouse.report.figure import (
    COLOURS,
    WIDTH,
    Figure,
    Row,
    chosen,
    colour,
    dash,
    data,
    time_axis,
)
from warehouse.report.selection import ReportedRun, grouped, labels_of

COUNT = ",~f"
"""Number format of mostly integer values."""

BUCKETS = 400
"""Most points of a run's line; longer runs are averaged over time. An engineering choice."""

LOAD = f"""
WITH numbered AS (
    SELECT *, count(*) OVER (PARTITION BY run) AS of_all,
        floor(round * {BUCKETS} / greatest({BUCKETS}, of_all)) AS bucket
    FROM rounds
    WHERE seconds > 0
)
SELECT run, round(min(clock_seconds) / 3600, 4) AS hours,
    round(sum(busy_gpus * seconds) / sum((busy_gpus + idle_gpus) * seconds), 4) AS leased,
    round(sum((active_jobs - running_jobs) * seconds) / sum(seconds), 2) AS queued
FROM numbered GROUP BY run, bucket ORDER BY run, bucket
"""

SOLVES = f"""
WITH numbered AS (
    SELECT *, floor(round * {BUCKETS} / greatest({BUCKETS}, count(*) OVER (PARTITION BY run)))
        AS bucket
    FROM solves
)
SELECT run, round(min(clock_seconds) / 3600, 4) AS hours, bool_or(price IS NOT NULL) AS market,
    round(avg(price ORDER BY round), 6) AS price,
    round(avg(envious ORDER BY round), 2) AS envious,
    round(avg(below_share ORDER BY round), 2) AS below_share,
    round(100 * max(gap), 5) AS gap_percent, round(max(solve_ms), 3) AS solve_ms
FROM numbered GROUP BY run, bucket ORDER BY run, bucket
"""

PRICES = f"""
WITH numbered AS (
    SELECT *, floor(round * {BUCKETS} / greatest({BUCKETS}, max(round) OVER (PARTITION BY run)))
        AS bucket
    FROM prices
)
SELECT run, round(min(clock_seconds) / 3600, 4) AS hours, gpu_type AS label,
    round(avg(price ORDER BY round), 6) AS price
FROM numbered GROUP BY run, bucket, gpu_type ORDER BY run, gpu_type, bucket
"""
"""Query of prices by GPU type."""


def load(
    entries: Sequence[ReportedRun], asked: Mapping[str, Sequence[Row]], key: str = "load"
) -> Figure:
    """Draw the share of leased GPUs and the number of waiting jobs over time, with a line per run.

    `asked` has each run's rows of `LOAD`.
    """
    about = (
        "Share of the cluster's GPUs with a lease (above) and jobs that wait for one (below), "
        "over the run's time."
    )
    title = "How busy was the cluster?"
    rows: list[Row] = []
    charts = {}
    for group, members in grouped(entries).items():
        found = [{"label": e.label, **row} for e in members for row in asked[e.run]]
        if found:
            labels = labels_of(members)
            leased = _line(found, labels, "leased", "GPUs leased", "%", 1.0)
            queued = _line(found, labels, "queued", "jobs waiting", COUNT, None)
            charts[group] = _above(leased, queued, legends="shared")
            rows += found
    if not rows:
        return Figure(key, title, about, missing="The run has one round only so far.")
    return chosen(key, title, about, charts, rows)


def _line(
    rows: Sequence[Row], labels: Sequence[str], name: str, title: str, form: str, top: float | None
) -> alt.Chart:
    scale = alt.Scale(domain=[0, top]) if top else alt.Scale(zero=True)
    chart: alt.Chart = (
        alt.Chart(data(rows), width=WIDTH - 70, height=110)
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            x=time_axis(),
            y=alt.Y(f"{name}:Q", title=title, scale=scale, axis=alt.Axis(format=form, tickCount=5)),
            color=colour(labels),
            strokeDash=dash(labels),
            tooltip=[
                alt.Tooltip("label:N", title="policy"),
                alt.Tooltip("hours:Q", format=".3~r"),
                alt.Tooltip(f"{name}:Q", title=title, format=form),
            ],
        )
    )
    return chart


def _above(
    upper: alt.Chart, lower: alt.Chart, legends: Literal["shared", "independent"] = "independent"
) -> alt.VConcatChart:
    chart: alt.VConcatChart = alt.vconcat(upper, lower, spacing=14)
    chart = chart.resolve_scale(color=legends, strokeDash=legends)
    return chart


def market(rows: Sequence[Row], prices: Sequence[Row], key: str = "market") -> Figure:
    """Draw the price of a GPU-round over time, and violations of the market's guarantees.

    `rows` and `prices` are the run's rows of `SOLVES` and `PRICES`; each GPU type has a line.
    """
    about = (
        "Price of a GPU-round in each round's market, in units of welfare (above), and how many "
        "jobs would rather have had another's share of it, or an even one (below)."
    )
    title = "What did a GPU cost, and who was left wanting?"
    if not any(row["market"] for row in rows):
        reason = "This policy clears no market, so it has no prices."
        return Figure(key, title, about, missing=reason)
    kinds = list(dict.fromkeys(row["label"] for row in prices))
    if len(kinds) > 1:
        about += (
            " On several GPU types a round's prices are those of its bound, at which no job envies:"
            " that line is 0 by construction."
        )
    price = (
        _line(prices, kinds, "price", "price", COUNT, None)
        if len(kinds) > 1
        else _trace(rows, "price", "price", ".3~r", COLOURS[5])
    )
    counts = [
        {"hours": row["hours"], "jobs": row[column], "label": label}
        for column, label in (("envious", "envious"), ("below_share", "below an even share"))
        for row in rows
    ]
    labels = ["envious", "below an even share"]
    fairness = _line(counts, labels, "jobs", "jobs", COUNT, None)
    kept = [{k: row[k] for k in ("hours", "price", "envious", "below_share")} for row in rows]
    return Figure(key, title, about, _above(price, fairness), kept)


def solver(rows: Sequence[Row], key: str = "solver") -> Figure:
    """Draw the gap and solve time of each plan, from a run's rows of `SOLVES`."""
    about = (
        "Largest relative gap between a plan's objective and its proven bound, in percent (above), "
        "and wall time of planning, in milliseconds on a logarithmic scale (below), by round."
    )
    title = "How good were the plans, and how long did they take?"
    if not rows:
        return Figure(key, title, about, missing="No round had a job to plan for.")
    kept = [{k: row[k] for k in ("hours", "gap_percent", "solve_ms")} for row in rows]
    time = _trace(kept, "solve_ms", "solve time (ms)", ".3~r", COLOURS[2], "log")
    if not any(row["market"] for row in rows):
        about = (
            "Wall time of planning, in milliseconds on a logarithmic scale, by round. The policy "
            "clears no market: there is no bound, and so no gap."
        )
        return Figure(key, title, about, time, kept)
    gap = _trace(kept, "gap_percent", "gap (%)", ".3~r", COLOURS[5])
    return Figure(key, title, about, _above(gap, time), kept)


def _trace(
    rows: Sequence[Row], name: str, title: str, form: str, line: str, kind: Any = "linear"
) -> alt.Chart:
    scale = alt.Scale(type=kind) if kind == "log" else alt.Scale(zero=True)
    shown = [{"hours": row["hours"], name: row[name]} for row in rows]
    chart: alt.Chart = (
        alt.Chart(data(shown), width=WIDTH - 70, height=110)
        .mark_line(interpolate="step-after", strokeWidth=1.5, color=line)
        .encode(
            x=time_axis(),
            y=alt.Y(
                f"{name}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=5, format=COUNT)
            ),
            tooltip=[
                alt.Tooltip("hours:Q", format=".3~r"),
                alt.Tooltip(f"{name}:Q", title=title, format=form),
            ],
        )
    )
    return chart
