"""A run round by round: load, prices and solver quality."""

from collections.abc import Mapping, Sequence
from typing import Literal

import altair as alt

from warehouse.report.figure import (
    COLOURS,
    WIDTH,
    Figure,
    Row,
    colour,
    dash,
    data,
    offer_choice,
    time_axis,
)
from warehouse.report.selection import ReportedRun, group_runs, list_labels

COUNT = ",~f"
"""Number format of mostly integer values."""


def draw_load(entries: Sequence[ReportedRun], asked: Mapping[str, Sequence[Row]]) -> Figure:
    """Draw the share of leased GPUs and the number of waiting jobs over time, with a line per run.

    `asked` has each run's rows of the query `load`.
    """
    about = (
        "Share of the cluster's GPUs with a lease (above) and jobs that wait for one (below), "
        "over the run's time."
    )
    key, title = "load", "How busy was the cluster?"
    rows: list[Row] = []
    charts = {}
    for group, members in group_runs(entries).items():
        found = [{"label": e.label, **row} for e in members for row in asked[e.run]]
        if found:
            charts[group] = draw_busy(found, list_labels(members))
            rows += found
    if not rows:
        return Figure(key, title, about, missing="The run has one round only so far.")
    return offer_choice(key, title, about, charts, rows)


def draw_busy(rows: Sequence[Row], labels: Sequence[str]) -> alt.VConcatChart:
    """Draw rows of the query `load`, a line per `label`."""
    leased = _line(
        rows, "leased", "GPUs leased", "%", labels=labels, scale=alt.Scale(domain=[0, 1])
    )
    queued = _line(rows, "queued", "jobs waiting", COUNT, labels=labels)
    return _above(leased, queued, legends="shared")


def _line(
    rows: Sequence[Row],
    name: str,
    title: str,
    form: str,
    *,
    labels: Sequence[str] = (),
    line: str = "",
    scale: alt.Scale | None = None,
) -> alt.Chart:
    """Draw a figure over time: a line per label, or a single line of a colour."""
    axis = alt.Axis(format=form if labels else COUNT, tickCount=5)
    columns = ["hours", name, *(["label"] if labels else ())]
    shown = [{column: row[column] for column in columns} for row in rows]
    tips = [
        alt.Tooltip("hours:Q", format=".3~r"),
        alt.Tooltip(f"{name}:Q", title=title, format=form),
    ]
    chart: alt.Chart = (
        alt.Chart(data(shown), width=WIDTH - 70, height=110)
        .mark_line(interpolate="step-after", strokeWidth=1.5, color=line or alt.Undefined)
        .encode(
            x=time_axis(),
            y=alt.Y(f"{name}:Q", title=title, scale=scale or alt.Scale(zero=True), axis=axis),
            tooltip=tips,
        )
    )
    if labels:
        tips.insert(0, alt.Tooltip("label:N", title="policy"))
        chart = chart.encode(color=colour(labels), strokeDash=dash(labels), tooltip=tips)
    return chart


def _above(
    upper: alt.Chart, lower: alt.Chart, legends: Literal["shared", "independent"] = "independent"
) -> alt.VConcatChart:
    chart: alt.VConcatChart = alt.vconcat(upper, lower, spacing=14)
    chart = chart.resolve_scale(color=legends, strokeDash=legends)
    return chart


def draw_market(rows: Sequence[Row], prices: Sequence[Row], key: str = "market") -> Figure:
    """Draw the price of a GPU-round over time, and violations of the market's guarantees.

    `rows` and `prices` are the run's rows of the queries `solves` and `prices`; each GPU type has
    a line.
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
        _line(prices, "price", "price", COUNT, labels=kinds)
        if len(kinds) > 1
        else _line(rows, "price", "price", ".3~r", line=COLOURS[5])
    )
    counts = [
        {"hours": row["hours"], "jobs": row[column], "label": label}
        for column, label in (("envious", "envious"), ("below_share", "below an even share"))
        for row in rows
    ]
    labels = ["envious", "below an even share"]
    fairness = _line(counts, "jobs", "jobs", COUNT, labels=labels)
    kept = [{k: row[k] for k in ("hours", "price", "envious", "below_share")} for row in rows]
    return Figure(key, title, about, _above(price, fairness), kept)


def draw_solver(rows: Sequence[Row], key: str = "solver") -> Figure:
    """Draw the gap and solve time of each plan, from a run's rows of the query `solves`."""
    about = (
        "Largest relative gap between a plan's objective and its proven bound, in percent (above), "
        "and wall time of planning, in milliseconds on a logarithmic scale (below), by round."
    )
    title = "How good were the plans, and how long did they take?"
    if not rows:
        return Figure(key, title, about, missing="No round had a job to plan for.")
    kept = [{k: row[k] for k in ("hours", "gap_percent", "solve_ms")} for row in rows]
    time = _line(
        kept, "solve_ms", "solve time (ms)", ".3~r", line=COLOURS[2], scale=alt.Scale(type="log")
    )
    if not any(row["market"] for row in rows):
        about = (
            "Wall time of planning, in milliseconds on a logarithmic scale, by round. The policy "
            "clears no market: there is no bound, and so no gap."
        )
        return Figure(key, title, about, time, kept)
    gap = _line(kept, "gap_percent", "gap (%)", ".3~r", line=COLOURS[5])
    return Figure(key, title, about, _above(gap, time), kept)
