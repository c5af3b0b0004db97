"""Comparison of policies: the paper's four figures, paired differences, and the Pareto front."""

from collections.abc import Mapping, Sequence

import altair as alt

from warehouse.analytics.definitions import UNFAIR_RHO
from warehouse.analytics.intervals import Interval
from warehouse.analytics.paired import ALL, difference, reference
from warehouse.report.figure import (
    COLOURS,
    LABEL,
    STEP,
    Figure,
    Row,
    beside_labels,
    colour,
    data,
    make_scale,
    offer_choice,
    palette,
)
from warehouse.report.metrics import COMPARED, MAKESPAN, MEAN_JCT, UNFAIR, WORST_RHO, Metric
from warehouse.report.selection import ReportedRun, group_by_label, group_runs, list_labels


def draw_policies(entries: Sequence[ReportedRun]) -> Figure:
    """Draw makespan, mean JCT, worst ρ and unfair fraction by policy (NSDI '23, section 8).

    Runs with the same label on a workload differ only in their seeds. They share a bar for the
    mean, with a line for its confidence interval.
    """
    about = (
        "Makespan, mean job completion time, worst finish-time fairness ρ and share of jobs "
        f"with ρ above {UNFAIR_RHO}, by policy; less is better in all four."
    )
    key, title = "comparison", "How do the policies compare?"
    rows: list[Row] = []
    charts = {}
    for group, members in group_runs(entries).items():
        found = [row for metric in COMPARED for row in _means(members, metric)]
        if found:
            charts[group] = _four(found, list_labels(members), bars=True)
            rows += [{"workload": group, **row} for row in found]
    if not rows:
        return Figure(key, title, about, missing="No job has ended yet.")
    if any(row["runs"] > 1 for row in rows):
        about += " Bars are means over seeds, lines their 95 % confidence intervals."
    return offer_choice(key, title, about, charts, rows)


def _means(entries: Sequence[ReportedRun], metric: Metric) -> list[Row]:
    rows: list[Row] = []
    for label, alike in group_by_label(entries).items():
        found = metric.over(alike)
        if found is not None:
            rows.append({"metric": metric.title, "label": label, **_row(found, len(alike))})
    return rows


def _row(found: Interval, runs: int) -> dict[str, float | int]:
    numbers = {"mean": found.mean, "low": found.low, "high": found.high}
    return {**{name: round(value, 5) for name, value in numbers.items()}, "runs": runs}


def draw_differences(entries: Sequence[ReportedRun], against: str | None = None) -> Figure | None:
    """Draw differences between policies over the same workload, cluster, options and seed.

    Returns None without two pairs, because no difference can then be tested. `against` is the
    reference policy; by default, the first.

    Raises:
        InputError: There is no such policy.
    """
    base = reference([entry.policy for entry in entries], against)
    others = [name for name in dict.fromkeys(e.policy for e in entries) if name != base]
    views = {ALL: list(entries), **group_runs(entries)}
    if len(views) == 2:
        del views[ALL]
    rows: list[Row] = []
    charts = {}
    for view, members in views.items():
        found = [row for metric in COMPARED for row in _differences(members, base, others, metric)]
        if any(row["pairs"] > 1 for row in found):
            charts[view] = _four(found, [row["label"] for row in found], bars=False)
            rows += [{"workload": view, **row} for row in found]
    if not rows:
        return None
    about = (
        f"Mean difference to {base} over pairs of runs with the same jobs, cluster, options and "
        "seed, with its 95 % confidence interval: in percent, taken pair by pair, "
        "whose mean may have another sign than that in the figure's own unit, of unfair jobs in "
        "percentage points; below the pointer and in the table also in the figure's own unit. Left "
        f"of the line is better than {base}; an interval that crosses the line leaves open who is "
        "better."
    )
    return offer_choice("paired", "Are the differences more than chance?", about, charts, rows)


def _differences(
    entries: Sequence[ReportedRun], base: str, others: Sequence[str], metric: Metric
) -> list[Row]:
    against = {e.circumstances: metric.of(e) for e in entries if e.policy == base}
    unit = "points" if metric is UNFAIR else "%"
    rows: list[Row] = []
    for policy in others:
        of_policy = (entry for entry in entries if entry.policy == policy)
        pairs = [(metric.of(entry), against.get(entry.circumstances)) for entry in of_policy]
        found, itself = difference(pairs, percent=metric is not UNFAIR), difference(pairs)
        if found is not None and itself is not None:
            title, _, own = metric.title.rstrip(")").partition(" (")
            numbers = _row(found.change, found.pairs)
            numbers["pairs"] = numbers.pop("runs")
            rows.append(
                {
                    "metric": f"{title} ({unit})",
                    "label": policy,
                    **numbers,
                    "better": found.less,
                    "in_its_unit": f"{itself.change} {own.replace('%', 'points')}".strip(),
                }
            )
    return rows


def draw_front(entries: Sequence[ReportedRun]) -> Figure | None:
    """Draw makespan against mean JCT and worst ρ of all policies, parameters and options.

    Returns None if no workload has three of them.
    """
    rows: list[Row] = []
    charts = {}
    for group, members in group_runs(entries).items():
        points = _points(members)
        if len(points) > 2:
            charts[group] = _scatter(points)
            rows += [{"workload": group, **point} for point in points]
    if not rows:
        return None
    about = (
        "Means over seeds; further left and further down is better, and so is a smaller point "
        "(worst ρ). Filled points are on the front: no other is at least as good in makespan, "
        "mean JCT and worst ρ, and better in one."
    )
    return offer_choice(
        "front", "Which policies and parameters are worth choosing among?", about, charts, rows
    )


def _points(entries: Sequence[ReportedRun]) -> list[dict[str, object]]:
    found: dict[str, tuple[ReportedRun, tuple[float, ...]]] = {}
    for label, alike in group_by_label(entries).items():
        means = [metric.over(alike) for metric in (MAKESPAN, MEAN_JCT, WORST_RHO)]
        if all(mean is not None for mean in means):
            found[label] = alike[0], tuple(round(m.mean, 5) for m in means if m is not None)

    def beaten(point: tuple[float, ...]) -> bool:
        return any(
            other != point and all(a <= b for a, b in zip(other, point, strict=True))
            for _, other in found.values()
        )

    return [
        {
            "label": label,
            "policy": entry.policy,
            "makespan_hours": point[0],
            "mean_jct_hours": point[1],
            "worst_rho": point[2],
            "on_front": not beaten(point),
        }
        for label, (entry, point) in found.items()
    ]


def _scatter(points: Sequence[Row]) -> alt.Chart:
    policies = list(dict.fromkeys(str(point["policy"]) for point in points))
    scales = {
        name: make_scale([point[name] for point in points], zero=False, padding=20)
        for name in ("makespan_hours", "mean_jct_hours")
    }
    drawn = [{**point, "label": point["policy"], "name": point["label"]} for point in points]
    chart: alt.Chart = (
        alt.Chart(data(drawn), width=620, height=260)
        .mark_point(strokeWidth=2, opacity=1)
        .encode(
            x=alt.X(
                "makespan_hours:Q",
                title="makespan (h)",
                scale=scales["makespan_hours"],
                axis=alt.Axis(tickCount=8),
            ),
            y=alt.Y("mean_jct_hours:Q", title="mean JCT (h)", scale=scales["mean_jct_hours"]),
            color=colour(policies),
            fill=alt.Fill("label:N", scale=palette(policies), legend=alt.Legend()),
            fillOpacity=alt.condition("datum.on_front", alt.value(1), alt.value(0)),
            size=alt.Size(
                "worst_rho:Q",
                scale=alt.Scale(range=[40, 400]),
                legend=alt.Legend(
                    title="worst ρ",
                    values=_ends(points),
                    format=".3~r",
                    symbolFillColor=COLOURS[-1],
                    symbolStrokeColor=COLOURS[-1],
                ),
            ),
            tooltip=[
                alt.Tooltip("name:N", title="policy"),
                alt.Tooltip("makespan_hours:Q", title="makespan (h)", format=".3~r"),
                alt.Tooltip("mean_jct_hours:Q", title="mean JCT (h)", format=".3~r"),
                alt.Tooltip("worst_rho:Q", title="worst ρ", format=".3~r"),
                alt.Tooltip("on_front:N", title="on the front"),
            ],
        )
    )
    return chart


def _ends(points: Sequence[Row]) -> list[float]:
    values = [float(f"{point['worst_rho']:.2g}") for point in points]
    return sorted({min(values), max(values)})


def _four(rows: Sequence[Row], labels: Sequence[str], *, bars: bool) -> alt.ConcatChart:
    labels = list(dict.fromkeys(labels))
    by_metric: Mapping[str, list[Row]] = {
        name: [row for row in rows if row["metric"] == name]
        for name in dict.fromkeys(row["metric"] for row in rows)
    }
    panels = [_panel(found, labels, name, bars) for name, found in by_metric.items()]
    chart: alt.ConcatChart = alt.concat(*panels, columns=2, spacing=20)
    return chart.properties(usermeta=beside_labels(labels))


def _panel(
    rows: Sequence[Row], labels: Sequence[str], name: str, bars: bool
) -> alt.LayerChart | alt.FacetChart:
    """Draw a line per policy with its interval: a bar from zero, or a point."""
    base = alt.Chart(data(rows), width=190, height=STEP * len(labels) + 8, title=name).encode(
        y=alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=LABEL))
    )
    value = alt.X("mean:Q", title=None, axis=alt.Axis(tickCount=4), scale=alt.Scale(zero=True))
    tips = [
        alt.Tooltip("label:N", title="policy"),
        alt.Tooltip("mean:Q", title=name, format=",.3~r"),
        alt.Tooltip("low:Q", title="95 % from", format=",.3~r"),
        alt.Tooltip("high:Q", title="to", format=",.3~r"),
        alt.Tooltip("runs:Q" if bars else "pairs:Q"),
        *([] if bars else [alt.Tooltip("in_its_unit:N", title="in its unit")]),
    ]
    low = "max(0, datum.low)" if bars else "datum.low"  # figures with bars are never negative
    shown = base.transform_calculate(shown_low=low)
    spread = shown.mark_rule(strokeWidth=1.5).encode(x="shown_low:Q", x2="high:Q")
    if bars:
        hue = colour(labels, legend=False)
        text = base.mark_text(align="left", dx=4, fontSize=10).encode(
            x="high:Q", text=alt.Text("mean:Q", format=",.3~r")
        )
        return alt.layer(base.mark_bar().encode(x=value, color=hue, tooltip=tips), spread, text)
    zero = alt.Chart(data([{"zero": 0}])).mark_rule(strokeDash=[4, 4]).encode(x="zero:Q")
    points = base.mark_point(filled=True, size=70, color=COLOURS[0], opacity=1)
    return alt.layer(zero, spread, points.encode(x=value, tooltip=tips))
