"""Fairness by tenant, model, job size and load of the cluster."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, quantiles

import altair as alt

from warehouse.report.figure import COLOURS, LABEL, STEP, Figure, Row, beside_labels, chosen, data

MOST = 12
"""Most groups in a chart, those with the worst ρ. An engineering choice."""


LOADS = (
    (0.5, "below 0.5"),
    (1.0, "0.5 to 1"),
    (1.5, "1 to 1.5"),
    (2.0, "1.5 to 2"),
    (4.0, "2 to 4"),
)
"""Upper ends and names of the load classes, in active jobs per GPU. An engineering choice."""

KINDS: Mapping[str, tuple[str, Callable[[Row], str]]] = {
    "tenant": ("tenant", lambda job: str(job["tenant"])),
    "size": ("GPUs of the job", lambda job: str(job["scale_factor"])),
    "model": ("model", lambda job: str(job["model"])),
    "load": ("active jobs per GPU when it came", lambda job: _load(job["load"])),
}
"""Title and grouping function by the property that groups jobs."""


def _load(load: float | None) -> str:
    if load is None:
        return "unknown"
    return next((name for end, name in LOADS if load < end), "4 and more")


def fairness(jobs: Sequence[Row], key: str = "fairness") -> Figure:
    """Draw finish-time fairness by tenant, size, model and load, from a run's rows of `JOBS`."""
    about = (
        "ρ of the finished jobs: the line goes from the least to the worst, the bar holds the "
        "middle half, the tick is the median. The dashed line is 1.05, above which a job is "
        "unfairly treated."
    )
    title = "Who was treated unfairly?"
    ended = [job for job in jobs if job["ftf"] is not None]
    if not ended:
        return Figure(key, title, about, missing="No job has ended yet.")
    rows: list[Row] = []
    charts = {}
    for by, (name, kind) in KINDS.items():
        found = [_fared(by, value, members) for value, members in _grouped(ended, kind).items()]
        rows += found
        if len(found) > 1:
            worst = sorted(found, key=lambda row: -row["worst_ftf"])[:MOST]
            shown = [row for row in found if row in worst]
            title_ = name if len(found) <= MOST else f"{name}, the {MOST} with the worst ρ"
            charts[by] = _chart(shown, title_)
    if not charts:
        by, (name, _) = next(iter(KINDS.items()))
        charts[by] = _chart([row for row in rows if row["by"] == by], name)
    return chosen(key, title, about, charts, rows, "By")


def _grouped(jobs: Sequence[Row], kind: Callable[[Row], str]) -> dict[str, list[Row]]:
    order = [name for _, name in LOADS]
    found: dict[str, list[Row]] = {}
    for job in jobs:
        found.setdefault(kind(job), []).append(job)

    def place(value: str) -> tuple[int, int, str]:
        number = value.split(" ")[0]
        return (
            order.index(value) if value in order else len(order),
            int(number) if number.isdecimal() else 0,
            value,
        )

    return {value: found[value] for value in sorted(found, key=place)}


def _fared(by: str, value: str, jobs: Sequence[Row]) -> Row:
    rhos = sorted(job["ftf"] for job in jobs)
    low, _, high = quantiles(rhos, n=4, method="inclusive") if len(rhos) > 1 else rhos * 3
    numbers = {
        "least_ftf": rhos[0],
        "quarter": low,
        "median_ftf": median(rhos),
        "three_quarters": high,
        "worst_ftf": rhos[-1],
        "unfair_percent": 100 * fmean(job["unfair"] for job in jobs),
        "mean_jct_hours": fmean(job["jct_seconds"] for job in jobs) / 3600,
        "gpu_hours": sum(job["held_gpu_seconds"] for job in jobs) / 3600,
    }
    return {
        "by": by,
        "kind": value,
        "jobs": len(jobs),
        **{name: round(number, 4) for name, number in numbers.items()},
    }


def _chart(rows: Sequence[Row], title: str) -> alt.LayerChart | alt.FacetChart:
    base = alt.Chart(data(rows), width=520, height=STEP * len(rows) + 8).encode(
        y=alt.Y("kind:N", sort=None, title=None, axis=alt.Axis(labelLimit=LABEL))
    )
    tips = [
        alt.Tooltip("kind:N", title=title),
        alt.Tooltip("jobs:Q"),
        *(
            alt.Tooltip(f"{name}:Q", title=label, format=",.3~r")
            for name, label in (
                ("median_ftf", "median ρ"),
                ("worst_ftf", "worst ρ"),
                ("unfair_percent", "unfair (%)"),
                ("mean_jct_hours", "mean JCT (h)"),
                ("gpu_hours", "GPU-hours"),
            )
        ),
    ]
    scale = alt.Scale(zero=True)
    whole = base.mark_rule(strokeWidth=1.5).encode(
        x=alt.X("least_ftf:Q", title=f"ρ by {title}", scale=scale, axis=alt.Axis(tickCount=8)),
        x2="worst_ftf:Q",
    )
    half = base.mark_bar(size=12, color=COLOURS[4]).encode(
        x="quarter:Q", x2="three_quarters:Q", tooltip=tips
    )
    middle = base.mark_tick(thickness=2, size=14, color=COLOURS[5]).encode(x="median_ftf:Q")
    fair = alt.Chart(data([{"fair": 1.05}])).mark_rule(strokeDash=[4, 4]).encode(x="fair:Q")
    return alt.layer(whole, half, middle, fair).properties(
        usermeta=beside_labels([row["kind"] for row in rows], 30)
    )
