"""Notable jobs of a run, and its forecasts compared with the true run times."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from warehouse.analytics.questions import Analytics
from warehouse.report.figure import COLOURS, Figure, Row, data, thinned
from warehouse.report.selection import rows_of

POINTS = 80
"""Most points of a job's line. An engineering choice."""

NOTABLE = """
WITH fared AS (
    SELECT o.*, coalesce(c.regimes, 0) AS regimes
    FROM job_outcomes AS o
    LEFT JOIN (
        SELECT job_id, count(*) FILTER (changed) AS regimes
        FROM (
            SELECT job_id, batch_size IS DISTINCT FROM lag(batch_size) OVER (
                PARTITION BY job_id ORDER BY epoch
            ) AS changed
            FROM telemetry
        )
        GROUP BY job_id
    ) AS c USING (job_id)
),
ranked AS (
    SELECT *,
        row_number() OVER (ORDER BY ftf DESC NULLS LAST, job_id) AS by_ftf,
        row_number() OVER (ORDER BY preemptions DESC, job_id) AS by_preemptions,
        row_number() OVER (ORDER BY jct_seconds DESC NULLS LAST, job_id) AS by_jct,
        row_number() OVER (ORDER BY regimes DESC, job_id) AS by_regimes
    FROM fared
)
SELECT job_id, tenant, model, mode, scale_factor, ftf, jct_seconds / 3600 AS jct_hours,
    waiting_seconds / 3600 AS waiting_hours, preemptions, regimes,
    concat_ws(', ',
        CASE WHEN by_ftf <= 2 AND ftf IS NOT NULL THEN 'worst ρ' END,
        CASE WHEN by_preemptions <= 2 AND preemptions > 0 THEN 'most preempted' END,
        CASE WHEN by_jct = 1 AND jct_seconds IS NOT NULL THEN 'longest' END,
        CASE WHEN by_regimes <= 2 AND regimes > 0 THEN 'most regimes' END
    ) AS why
FROM ranked WHERE why <> '' ORDER BY by_ftf LIMIT 6
"""

EPOCHS = """
SELECT job_id, epoch, epoch + epochs AS epoch_end, batch_size FROM telemetry
WHERE job_id IN ({jobs}) ORDER BY job_id, epoch
"""

FORECASTS = """
SELECT f.job_id, round(f.run_seconds / 3600, 4) AS trained,
    round(remaining_seconds / 3600, 4) AS forecast, round(low_seconds / 3600, 4) AS low,
    round(high_seconds / 3600, 4) AS high,
    round((o.run_seconds - f.run_seconds) / 3600, 4) AS truth
FROM forecasts AS f JOIN job_outcomes AS o USING (job_id)
WHERE o.finish_seconds IS NOT NULL AND f.job_id IN ({jobs}) ORDER BY f.job_id, f.round
"""

ERRORS = """
SELECT tenth / 10 AS done, sum(forecasts)::BIGINT AS forecasts,
    round(sum(error * forecasts ORDER BY job_id) / sum(forecasts), 5) AS mean_error,
    round(sum(covered * forecasts ORDER BY job_id) / sum(forecasts), 5) AS covered
FROM forecast_errors GROUP BY tenth ORDER BY tenth
"""


def notable(analytics: Analytics, run: str) -> list[dict[str, Any]]:
    """Up to six notable jobs: worst ρ, most preempted, longest, most regimes."""
    return rows_of(analytics, NOTABLE, [run])


def regimes(
    analytics: Analytics, run: str, jobs: Sequence[Mapping[str, Any]], key: str = "regimes"
) -> Figure:
    """The observed trajectories of a few jobs: batch size by epoch."""
    about = (
        "Batch size of each epoch completed, on a logarithmic scale, of the jobs with the worst ρ, "
        "the most preemptions, the longest completion time and the most regimes."
    )
    names = {job["job_id"]: _name(job) for job in jobs}
    rows = [
        {"job": names[row["job_id"]], **_drawn(row)}
        for row in _regimes_of(_asked(analytics, EPOCHS, run, names))
    ]
    title = "Regimes of notable jobs"
    if not rows:
        return Figure(key, title, about, missing="No epoch has been completed yet.")
    order = {name: number for number, name in enumerate(names.values())}
    points = [
        {
            "order": order[row["job"]],
            "job": row["job"],
            "epoch": epoch,
            "batch_size": row["batch_size"],
        }
        for row in rows
        for epoch in (row["epoch"], row["epoch_end"])
    ]
    chart = (
        alt.Chart(data(points), width=180, height=120)
        .mark_line(strokeWidth=2, color=COLOURS[0], interpolate="step-after")
        .encode(
            x=alt.X("epoch:Q", title="epoch"),
            y=alt.Y(
                "batch_size:Q",
                title="batch size",
                scale=alt.Scale(type="log", base=2, nice=True),
                axis=alt.Axis(format="d", values=[2**power for power in range(20)]),
            ),
            tooltip=[alt.Tooltip("epoch:Q"), alt.Tooltip("batch_size:Q", title="batch size")],
        )
        .facet(facet=_facet(), columns=3)
        .resolve_scale(x="independent", y="independent")
    )
    return Figure(key, title, about, chart, rows)


def forecasts(
    analytics: Analytics, run: str, jobs: Sequence[Mapping[str, Any]], key: str = "forecasts"
) -> Figure:
    """Forecast and true residual run time of a few jobs."""
    about = (
        "Run time still needed against run time so far: as it was (dashed), as it was forecast "
        "(line), and the interval that was to hold it four times in five (band)."
    )
    title = "Forecast against truth"
    names = {job["job_id"]: _name(job) for job in jobs}
    asked = _asked(analytics, FORECASTS, run, names)
    rows: list[Row] = []
    for job_id, name in names.items():
        of_job = [
            {column: value for column, value in row.items() if column != "job_id"}
            for row in asked
            if row["job_id"] == job_id
        ]
        rows += [{"job": name, **row} for row in thinned(of_job, POINTS)]
    if not rows:
        return Figure(key, title, about, missing="None of these jobs has ended: no truth is known.")
    order = {name: number for number, name in enumerate(names.values())}
    points = [{"order": order[row["job"]], **row} for row in rows]
    base = alt.Chart(data(points), width=180, height=120).encode(
        x=alt.X("trained:Q", title="run time so far (h)")
    )
    tips = [alt.Tooltip(f"{name}:Q", format=".2f") for name in list(rows[0])[1:]]
    still = alt.Y("forecast:Q", title="still needed (h)")
    layers = alt.layer(
        base.mark_area(opacity=0.25, color=COLOURS[0]).encode(y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_line(strokeWidth=2, color=COLOURS[0]).encode(y=still, tooltip=tips),
        base.mark_line(strokeWidth=2, color=COLOURS[5], strokeDash=[5, 4]).encode(y="truth:Q"),
    )
    chart = layers.facet(facet=_facet(), columns=3).resolve_scale(x="independent", y="independent")
    return Figure(key, title, about, chart, rows)


def errors(analytics: Analytics, run: str, key: str = "errors") -> Figure:
    """Forecast error and coverage of the interval, by progress of the job."""
    about = (
        "All forecasts of finished jobs by the part of its epochs that the job had done: mean "
        "error of the run time (left), and how often the 80 % interval held the truth (right; "
        "80 % is the dashed line)."
    )
    title = "Error of all forecasts"
    rows = rows_of(analytics, ERRORS, [run])
    if not rows:
        return Figure(key, title, about, missing="No job has ended yet: no truth is known.")
    aim = alt.Chart(data([{"aim": 0.8}])).mark_rule(strokeDash=[4, 4]).encode(y="aim:Q")
    error = _by_done(rows, "mean_error", "mean error", COLOURS[5])
    covered = _by_done(rows, "covered", "interval held", COLOURS[2], [0.0, 1.0])
    return Figure(
        key, title, about, alt.concat(error, alt.layer(covered, aim), columns=2, spacing=30), rows
    )


def _by_done(
    rows: Sequence[Row], name: str, title: str, line: str, domain: list[float] | None = None
) -> alt.Chart:
    scale = alt.Scale(domain=domain) if domain else alt.Scale(zero=True)
    chart: alt.Chart = (
        alt.Chart(data(rows), width=310, height=170)
        .mark_line(point={"filled": True, "size": 40, "color": line}, color=line, strokeWidth=2)
        .encode(
            x=alt.X("done:Q", title="part of the epochs done", axis=alt.Axis(format="%")),
            y=alt.Y(f"{name}:Q", title=title, scale=scale, axis=alt.Axis(format="~%")),
            tooltip=[
                alt.Tooltip("done:Q", format="%"),
                alt.Tooltip(f"{name}:Q", title=title, format=".2%"),
                alt.Tooltip("forecasts:Q"),
            ],
        )
    )
    return chart


def _facet() -> alt.Facet:
    """A panel per job, in the order of the jobs.

    Panels are sorted by number: a sort by name would insert arbitrary names into an expression.
    """
    order = alt.EncodingSortField(field="order", op="min")
    return alt.Facet("job:N", sort=order, header=alt.Header(title=None))


def _asked(analytics: Analytics, sql: str, run: str, jobs: Iterable[int]) -> list[dict[str, Any]]:
    """The result of a query over a few jobs; empty without jobs."""
    numbers = ", ".join(map(str, jobs)) or "NULL"
    return rows_of(analytics, sql.replace("{jobs}", numbers), [run])


def _name(job: Mapping[str, Any]) -> str:
    return f"job {job['job_id']}: {job['model']}, {job['mode']}"


def _drawn(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("epoch", "epoch_end", "batch_size")}


def _regimes_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Consecutive reports at one batch size as one regime."""
    merged: list[dict[str, Any]] = []
    for row in rows:
        last = merged[-1] if merged else {}
        if all(last.get(name) == row[name] for name in ("job_id", "batch_size")):
            last["epoch_end"] = row["epoch_end"]
        else:
            merged.append(dict(row))
    return merged
