"""The GPU types that jobs ran on, against the types on which they are fastest."""

from collections.abc import Sequence

import altair as alt

from warehouse.report.figure import WIDTH, Figure, Row, data

RECIPE = "types-used"
"""The cookbook recipe that the figure draws."""


def draw_types(rows: Sequence[Row], key: str = "types") -> Figure | None:
    """Draw GPU-hours by used and by fastest GPU type; None if all jobs ran on the only type.

    `rows` are the run's rows of `RECIPE`.
    """
    if len({kind for row in rows for kind in (row["fastest"], row["gpu_type"])}) < 2:
        return None
    about = (
        "Share of the GPU time of the jobs that are fastest on a type (a row each) by the type "
        "that they ran on."
    )
    shown = [
        {
            "fastest on": row["fastest"],
            "ran on": row["gpu_type"],
            "jobs": row["jobs"],
            "GPU-hours": round(row["gpu_hours"], 3),
            "share": round(row["share"], 4),
            "speed": round(row["mean_speed"], 4),
            "cost": round(row["cost"], 2),
        }
        for row in rows
    ]
    kinds = sorted({row[name] for row in shown for name in ("fastest on", "ran on")})
    base = alt.Chart(data(shown), width=WIDTH - 200, height=44 * len(kinds)).encode(
        x=alt.X("ran on:N", sort=kinds, title="ran on", axis=alt.Axis(labelAngle=0, orient="top")),
        y=alt.Y("fastest on:N", sort=kinds, title="fastest on"),
        tooltip=[
            alt.Tooltip("fastest on:N"),
            alt.Tooltip("ran on:N"),
            alt.Tooltip("jobs:Q"),
            alt.Tooltip("GPU-hours:Q", format=",.3~r"),
            alt.Tooltip("share:Q", format=".1%"),
            alt.Tooltip("speed:Q", title="of its fastest", format=".2f"),
            alt.Tooltip("cost:Q", format=",.2f"),
        ],
    )
    scale = alt.Scale(domain=[0, 1], range=["#eef3f7", "#0072b2"])
    boxes = base.mark_rect().encode(color=alt.Color("share:Q", scale=scale, legend=None))
    text = base.mark_text(fontSize=12).encode(
        text=alt.Text("share:Q", format=".0%"),
        color=alt.condition("datum.share > 0.55", alt.value("#ffffff"), alt.value("#20242a")),
    )
    return Figure(key, "Who ran on what?", about, alt.layer(boxes, text), shown)
