"""Forecasts against true run times, and the charts of a job's section."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from warehouse.report.figure import COLOURS, Figure, Row, data
from warehouse.report.jobs import RunJobs

NOTHING = "Nothing to compare: the policy reads no forecasts, or no job has ended."

BATCH = alt.Y(
    "batch_size:Q",
    title="batch size",
    scale=alt.Scale(type="log", base=2, nice=True),
    axis=alt.Axis(format="d", values=[2**power for power in range(20)]),
)


def _steps(chart: alt.Chart) -> alt.Chart:
    drawn: alt.Chart = chart.mark_line(
        strokeWidth=2, color=COLOURS[0], interpolate="step-after"
    ).encode(
        x=alt.X("epoch:Q", title="epoch", axis=alt.Axis(tickCount=5)),
        y=BATCH,
        tooltip=[alt.Tooltip("epoch:Q"), alt.Tooltip("batch_size:Q", title="batch size")],
    )
    return drawn


def draw_forecasts(jobs: RunJobs, key: str = "forecasts") -> Figure:
    """Draw forecast and true residual run times of notable jobs that have ended."""
    about = (
        "Run time still needed against run time so far: as it was (dashed), as it was forecast "
        "(line), and the interval that was to hold it four times in five (band)."
    )
    title = "What was expected of notable jobs, and what did they take?"
    rows = [
        {"job": jobs.name(job), **{n: row[n] for n in row if n != "job_id"}}
        for job in jobs.notable()
        for row in jobs.forecasts[job]
        if row["truth"] is not None
    ]
    if not rows:
        return Figure(key, title, about, missing=NOTHING)
    order = {jobs.name(job): number for number, job in enumerate(jobs.notable())}
    points = [{"order": order[str(row["job"])], **row} for row in rows]
    # Panels are sorted by number: sorting by name would insert arbitrary names into an expression.
    by_order = alt.EncodingSortField(field="order", op="min")
    facet = alt.Facet("job:N", sort=by_order, header=alt.Header(title=None))
    chart = (
        _residual(alt.Chart(data(points), width=180, height=110))
        .facet(facet=facet, columns=3)
        .resolve_scale(x="independent", y="independent")
        .properties(
            usermeta={"least": 220}
        )  # a page fits two panels side by side from 500 pixels on
    )
    return Figure(key, title, about, chart, rows)


def _residual(chart: alt.Chart) -> alt.LayerChart | alt.FacetChart:
    base = chart.encode(
        x=alt.X("trained:Q", title="run time so far (h)", axis=alt.Axis(tickCount=5))
    )
    tips = [
        alt.Tooltip(f"{name}:Q", title=f"{name} (h)", format=".3~r")
        for name in ("trained", "forecast", "low", "high", "truth")
    ]
    still = alt.Y("forecast:Q", title="still needed (h)", axis=alt.Axis(tickCount=4))
    return alt.layer(
        base.mark_area(opacity=0.25, color=COLOURS[0]).encode(y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_line(strokeWidth=2, color=COLOURS[0]).encode(y=still, tooltip=tips),
        base.mark_line(strokeWidth=2, color=COLOURS[5], strokeDash=[5, 4]).encode(y="truth:Q"),
    )


def make_job_charts() -> dict[str, alt.TopLevelMixin]:
    """Return the charts of a job's section; the page fills in their data by the same names."""
    return {"forecasts": _residual(_of("forecasts")), "regimes": _steps(_of("regimes"))}


def _of(name: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(name), width=310, height=150)


def draw_errors(rows: Sequence[Mapping[str, Any]], key: str = "errors") -> Figure:
    """Draw forecast error and interval coverage by job progress, from a run's query `errors`."""
    about = (
        "All forecasts of finished jobs by the part of its epochs that the job had done: mean "
        "error of the run time, and how often the 80 % interval held the truth, whose dashed "
        "line is 80 %."
    )
    title = "How right were the forecasts?"
    if not rows:
        return Figure(key, title, about, missing=NOTHING)
    aim = alt.Chart(data([{"aim": 0.8}])).mark_rule(strokeDash=[4, 4]).encode(y="aim:Q")
    error = _by_done(rows, "mean_error", "mean error", COLOURS[5])
    covered = _by_done(rows, "covered", "interval held", COLOURS[2], [0.0, 1.0])
    both = alt.concat(error, alt.layer(covered, aim), columns=2, spacing=30)
    return Figure(key, title, about, both, rows)


def _by_done(
    rows: Sequence[Row], name: str, title: str, line: str, domain: list[float] | None = None
) -> alt.Chart:
    scale = alt.Scale(domain=domain) if domain else alt.Scale(zero=True)
    done = alt.Axis(format="%", tickCount=5)
    chart: alt.Chart = (
        alt.Chart(data(rows), width=310, height=150)
        .mark_line(point={"filled": True, "size": 40, "color": line}, color=line, strokeWidth=2)
        .encode(
            x=alt.X("done:Q", title="part of the epochs done", axis=done),
            y=alt.Y(f"{name}:Q", title=title, scale=scale, axis=alt.Axis(format="~%", tickCount=5)),
            tooltip=[
                alt.Tooltip("done:Q", format="%"),
                alt.Tooltip(f"{name}:Q", title=title, format=".3~p"),
                alt.Tooltip("forecasts:Q"),
            ],
        )
    )
    return chart
