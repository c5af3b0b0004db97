"""Gantt charts: leases by GPU and time, with regimes and preemptions."""

from collections.abc import Sequence
from math import log2
from typing import Any

import altair as alt

from warehouse.analytics.questions import Analytics
from warehouse.report.figure import COLOURS, WIDTH, Figure, data
from warehouse.report.selection import rows_of

HELD = """
WITH clocks AS (
    SELECT run, round, clock_seconds,
        lead(clock_seconds) OVER (PARTITION BY run ORDER BY round) AS next_seconds
    FROM records
),
ended AS (
    SELECT round - 1 AS round, job_id, kind, at_seconds FROM events WHERE kind = 'finished'
    UNION ALL
    SELECT round - 1 AS round, job_id, kind, at_seconds FROM events WHERE kind = 'preempted'
),
trained AS (
    SELECT round - 1 AS round, p.job_id AS job_id, p.batch_size AS batch_size
    FROM (SELECT round, unnest(progress) AS p FROM records)
),
completed AS (
    SELECT round - 1 AS round, job_id, arg_max(batch_size, epoch) AS batch_size
    FROM telemetry GROUP BY ALL
),
held AS (
    SELECT a.round, a.job_id, a.gpus, c.clock_seconds AS since,
        coalesce(e.at_seconds, c.next_seconds, c.clock_seconds) AS until, e.kind AS ended,
        coalesce(t.batch_size, d.batch_size, j.batch_size) / j.batch_size AS scale
    FROM placements AS a
    JOIN clocks AS c USING (round)
    JOIN jobs AS j USING (job_id)
    LEFT JOIN trained AS t USING (round, job_id)
    LEFT JOIN completed AS d USING (round, job_id)
    LEFT JOIN ended AS e USING (round, job_id)
),
marked AS (
    SELECT *, (
        lag(round) OVER jobs = round - 1 AND lag(gpus) OVER jobs = gpus
        AND lag(scale) OVER jobs = scale AND lag(ended) OVER jobs IS NULL
    ) IS NOT TRUE AS fresh
    FROM held WINDOW jobs AS (PARTITION BY job_id ORDER BY round)
),
spells AS (
    SELECT *, sum(fresh::INT) OVER (PARTITION BY job_id ORDER BY round) AS spell FROM marked
),
merged AS (
    SELECT job_id, spell, any_value(gpus) AS gpus, min(since) AS since, max(until) AS until,
        any_value(scale) AS scale, max(ended) AS ended
    FROM spells GROUP BY job_id, spell
),
apart AS (
    SELECT * EXCLUDE (gpus), gpu,
        gpu - row_number() OVER (PARTITION BY job_id, spell ORDER BY gpu) AS strip
    FROM (SELECT * EXCLUDE (gpus), gpus, unnest(gpus) AS gpu FROM merged)
)
SELECT job_id AS job, min(gpu) AS gpu, max(gpu) + 1 AS gpu_end,
    round(any_value(since) / 3600, 4) AS hours, round(any_value(until) / 3600, 4) AS hours_end,
    any_value(scale) AS scale, any_value(ended) AS ended
FROM apart GROUP BY job_id, spell, strip ORDER BY hours, gpu
"""
"""Rounds of one lease at one batch size become one rectangle, neighbouring GPUs too."""

REGIMES = {
    -3: "#08519c",
    -2: "#3182bd",
    -1: "#6baed6",
    0: "#a3abb5",
    1: "#fdbe85",
    2: "#fd8d3c",
    3: "#e6550d",
    4: "#b03a02",
    5: "#8c2d04",
    6: "#661f05",
}
"""Colour by number of doublings of the batch size."""

Rectangle = dict[str, Any]


def gantt(analytics: Analytics, run: str, gpus: int, key: str = "gantt") -> Figure:
    """GPUs over time, once by job and once by regime, with preemptions.

    Args:
        analytics: The warehouse.
        run: The run.
        gpus: GPUs of its cluster.
        key: The figure's name.
    """
    about = (
        "Each box is a lease: GPUs from top to bottom, time from left to right. Above, "
        "different colours are different jobs (click one to follow it); below, the colour is the "
        "job's batch size over the one it was declared with. A dark line at a "
        "box's end is a preemption."
    )
    title = "GPUs by job and regime"
    rows = [_rectangle(row) for row in rows_of(analytics, HELD, [run])]
    if not rows:
        return Figure(key, title, about, missing="No job has run yet.")
    height = max(120, min(360, 9 * gpus))
    scales = sorted({row["scale"] for row in rows}, key=_doublings)
    picked = alt.selection_point(name="picked", fields=["job"], on="click", empty=True)
    hues = alt.Color("hue:O", scale=alt.Scale(range=list(COLOURS)), legend=None)
    regimes = alt.Color(
        "scale:O",
        sort=scales,
        scale=alt.Scale(domain=scales, range=[_regime_colour(scale) for scale in scales]),
        legend=alt.Legend(title="batch size, declared = 1×", columns=10),
    )
    panels = [
        _panel(rows, hues, picked, gpus, height, clickable=True),
        _panel(rows, regimes, picked, gpus, height),
    ]
    chart = alt.vconcat(*panels, spacing=16).resolve_scale(color="independent", x="shared")
    return Figure(key, title, about, chart, rows)


def _rectangle(row: Rectangle) -> Rectangle:
    """A row of the chart's data without default values, as there are thousands of rows."""
    doublings = max(min(REGIMES), min(max(REGIMES), round(log2(row["scale"]))))
    drawn = {name: row[name] for name in ("job", "gpu", "gpu_end", "hours", "hours_end")}
    drawn |= {"scale": f"{2**doublings}×" if doublings >= 0 else f"1/{2**-doublings}×"}
    drawn |= {"hue": row["job"] % len(COLOURS)}
    return drawn | ({"ended": row["ended"]} if row["ended"] else {})


def _doublings(scale: str) -> int:
    whole, _, part = scale.removesuffix("×").partition("/")
    return -round(log2(int(part))) if part else round(log2(int(whole)))


def _regime_colour(scale: str) -> str:
    return REGIMES[_doublings(scale)]


def _panel(
    rows: Sequence[Rectangle],
    fill: alt.Color,
    picked: alt.Parameter,
    gpus: int,
    height: int,
    *,
    clickable: bool = False,
) -> alt.LayerChart | alt.FacetChart:
    """Leases as boxes and preemptions as lines at their ends."""
    y = alt.Y(
        "gpu:Q",
        title="GPU",
        scale=alt.Scale(domain=[0, gpus], reverse=True, nice=False),
        axis=alt.Axis(tickMinStep=1, grid=False),
    )
    boxes = (
        alt.Chart(
            data(rows), name="jobs" if clickable else "regimes", width=WIDTH - 70, height=height
        )
        .mark_rect(stroke="#ffffff", strokeWidth=0.3)
        .encode(
            x=alt.X("hours:Q", title="time (h)", axis=alt.Axis(grid=False)),
            x2="hours_end:Q",
            y=y,
            y2="gpu_end:Q",
            color=fill,
            opacity=alt.condition(picked, alt.value(1), alt.value(0.15)),
            tooltip=[
                alt.Tooltip("job:Q"),
                alt.Tooltip("gpu:Q", title="first GPU"),
                alt.Tooltip("hours:Q", title="from (h)", format=".2f"),
                alt.Tooltip("hours_end:Q", title="to (h)", format=".2f"),
                alt.Tooltip("scale:N", title="batch size"),
                alt.Tooltip("ended:N"),
            ],
        )
    )
    if clickable:  # a parameter belongs to one view, whatever others it dims
        boxes = boxes.add_params(picked)
    preempted = [row for row in rows if row.get("ended") == "preempted"]
    if not preempted:
        return alt.layer(boxes)
    lost = (
        alt.Chart(data(preempted))
        .mark_rule(strokeWidth=2)
        .encode(x="hours_end:Q", y="gpu:Q", y2="gpu_end:Q")
    )
    return alt.layer(boxes, lost)
