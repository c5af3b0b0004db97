"""The Gantt chart: leases by GPU and time, coloured by choice, with preemptions."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from math import log2
from typing import Any

import altair as alt

from warehouse.report.figure import COLOURS, WIDTH, Figure, Row, data, offer_choice, time_axis

JOB_HUES = 8
"""Number of colours that jobs take in turn; the eye distinguishes no more."""

_SHRUNK = ("#08519c", "#3182bd", "#6baed6")
_GROWN = ("#fdbe85", "#fd8d3c", "#e6550d", "#b03a02", "#8c2d04", "#661f05")
REGIMES = dict(enumerate((*_SHRUNK, "#a3abb5", *_GROWN), start=-len(_SHRUNK)))
"""Colour by number of doublings of the batch size."""

Rectangle = dict[str, Any]


def draw_gantt(
    asked: Sequence[Row],
    gpus: int,
    key: str = "gantt",
    pools: Sequence[Row] = (),
) -> Figure:
    """Draw GPUs over time, pool below pool, coloured by the reader's choice, with preemptions.

    `asked` has the run's rows of the query `held`. Pools have `gpus` and `gpu_type`. A single pool
    is not named.
    """
    about = (
        "Each box is a lease: GPUs from top to bottom, time from left to right. Point at one for "
        "its job, click it to follow the job. A thin dark line at a box's end is a preemption."
    )
    title = "Who held which GPUs?"
    rows = [_rectangle(row) for row in asked]
    shown = min([gpus, *(row["shown"] for row in asked[:1])])
    if shown < gpus:
        about += f" It shows the first {shown:,} of {gpus:,} GPUs."
    gpus = shown
    if not rows:
        return Figure(key, title, about, missing="No job has run yet.")
    height = max(120, min(360, 9 * gpus))
    ends = list(accumulate(pool["gpus"] for pool in pools))
    bands = [
        {"first": end - pool["gpus"], "type": pool["gpu_type"]}
        for pool, end in zip(pools, ends, strict=True)
    ]
    charts = {
        name: _chart(rows, fill, gpus, height, bands if len(bands) > 1 else ())
        for name, fill in _fills(rows).items()
    }
    return offer_choice(key, title, about, charts, rows, "Colour by")


def _rectangle(row: Row) -> Rectangle:
    """Return a row of the chart's data without default values, because there are thousands."""
    doublings = max(min(REGIMES), min(max(REGIMES), round(log2(row["scale"]))))
    drawn = {name: row[name] for name in ("job", "gpu", "gpu_end", "hours", "hours_end")}
    drawn |= {"batch": f"{2**doublings}×" if doublings >= 0 else f"1/{2**-doublings}×"}
    drawn |= {name: row[name] for name in ("tenant", "model")}
    drawn |= {"gpus": row["scale_factor"], "pool": row["pool"]}
    return drawn | ({"ended": row["ended"]} if row["ended"] else {})


def _fills(rows: Sequence[Rectangle]) -> dict[str, alt.Color]:
    """Return the colours to choose from; a property that all jobs share is no choice."""
    scales = sorted({row["batch"] for row in rows}, key=_doublings)
    fills = {
        "job": alt.Color(
            "hue:O",
            scale=alt.Scale(domain=list(range(JOB_HUES)), range=list(COLOURS)),
            legend=alt.Legend(
                title="job number, repeating",
                labelExpr=_EVERY,
                columns=JOB_HUES,
                symbolType="square",
                symbolStrokeWidth=0,
            ),
        ),
        "batch size": alt.Color(
            "batch:O",
            sort=scales,
            scale=alt.Scale(domain=scales, range=[REGIMES[_doublings(s)] for s in scales]),
            legend=alt.Legend(
                title="batch size, declared = 1×",
                columns=11,
                symbolType="square",
                symbolStrokeWidth=0,
            ),
        ),
    }
    for name, column in (
        ("tenant", "tenant"),
        ("model", "model"),
        ("size", "gpus"),
        ("pool", "pool"),
    ):
        weights: Counter[Any] = Counter()
        for row in rows:
            weights[row[column]] += (row["hours_end"] - row["hours"]) * (
                row["gpu_end"] - row["gpu"]
            )
        if len(weights) > 1:
            fills[name] = _categories(column, name, weights)
    return fills


_EVERY = f"datum.label + ', ' + (toNumber(datum.label) + {JOB_HUES}) + ', …'"


def _categories(column: str, name: str, weights: Counter[Any]) -> alt.Color:
    """Return a colour for each value that held most GPU time; the other values share the last.

    Only scales and legends name values: in an expression, an arbitrary name could be code.
    """
    ranked = [value for value, _ in weights.most_common()]
    kept = sorted(ranked[: len(COLOURS) - 1], key=int if name == "size" else str)
    beyond = ranked[len(kept) :]
    colours = [*COLOURS[: len(kept)], *(COLOURS[-1] for _ in beyond)]
    title = "GPUs of the job" if name == "size" else name
    if beyond:
        title += f", {len(beyond)} more in grey"
    return alt.Color(
        f"{column}:N",
        scale=alt.Scale(domain=[*kept, *beyond], range=colours),
        legend=alt.Legend(
            title=title, values=kept, columns=4, symbolType="square", symbolStrokeWidth=0
        ),
    )


def _doublings(scale: str) -> int:
    whole, _, part = scale.removesuffix("×").partition("/")
    return -round(log2(int(part))) if part else round(log2(int(whole)))


def _chart(
    rows: Sequence[Rectangle], fill: alt.Color, gpus: int, height: int, pools: Sequence[Row]
) -> alt.LayerChart | alt.FacetChart:
    """Draw leases as boxes and preemptions as lines at their ends; separate and name the pools."""
    picked = alt.selection_point(name="picked", fields=["job"], on="click", empty=True)
    y = alt.Y(
        "gpu:Q",
        title="GPU",
        scale=alt.Scale(domain=[0, gpus], reverse=True, nice=False),
        axis=alt.Axis(tickMinStep=1, tickCount=6, grid=False),
    )
    boxes = (
        alt.Chart(data(rows), name="leases", width=WIDTH - 70, height=height)
        .transform_calculate(hue=f"datum.job % {JOB_HUES}")
        .mark_rect(stroke="#ffffff", strokeWidth=0.3)
        .encode(
            x=time_axis(grid=False),
            x2="hours_end:Q",
            y=y,
            y2="gpu_end:Q",
            color=fill,
            opacity=alt.condition(picked, alt.value(1), alt.value(0.15)),
            tooltip=[
                alt.Tooltip("job:Q"),
                alt.Tooltip("tenant:N"),
                alt.Tooltip("model:N"),
                alt.Tooltip("gpus:Q", title="GPUs of the job"),
                alt.Tooltip("gpu:Q", title="first GPU"),
                alt.Tooltip("hours:Q", title="from (h)", format=".3~f"),
                alt.Tooltip("hours_end:Q", title="to (h)", format=".3~f"),
                alt.Tooltip("batch:N", title="batch size"),
                alt.Tooltip("ended:N"),
            ],
        )
        .add_params(picked)
    )
    layers: list[alt.Chart] = [boxes]
    if pools:
        named = alt.Chart(data(pools)).encode(y=alt.Y("first:Q"))
        layers.append(named.mark_rule(strokeWidth=1.2, color="#20242a"))
        layers.append(
            named.mark_text(align="right", baseline="top", dx=-3, dy=2, fontWeight="bold").encode(
                x=alt.value(WIDTH - 70), text="type:N"
            )
        )
    preempted = [row for row in rows if row.get("ended") == "preempted"]
    if not preempted:
        return alt.layer(*layers)
    lost = (
        alt.Chart(data([{n: row[n] for n in ("hours_end", "gpu", "gpu_end")} for row in preempted]))
        .mark_rule(strokeWidth=0.8)
        .encode(x="hours_end:Q", y="gpu:Q", y2="gpu_end:Q")
    )
    return alt.layer(*layers, lost)
