"""Figures of a report: data, theme and captions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import altair as alt

Row = Mapping[str, Any]

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1", "#8a8a8a")
"""Colour-blind-safe palette (Okabe and Ito), visible on white and on black."""

DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4], [4, 4], [1, 3], [12, 3, 3, 3])
"""Line styles that distinguish series without colour."""

INK = "#20242a"
WIDTH = 720
"""Width of a figure on paper, in pixels; on screen it fills the page. A choice of layout."""

STEP = 22
"""Height of a labelled line, in pixels. A choice of layout."""

LABEL = 260
"""Largest width of a line's label, in pixels. A choice of layout."""

CONFIG: dict[str, Any] = json.loads((Path(__file__).parent / "theme.json").read_bytes())
"""Theme of all charts (Vega's configuration)."""


WORKLOAD = "Workload"
"""Label of the choice in figures with a chart per workload."""


@dataclass(frozen=True)
class Figure:
    """A figure, for the page and for papers.

    Attributes:
        key: Name in links and file names.
        about: Caption and alternative text.
        chart: The chart; None without data.
        missing: Reason for the lack of data.
        choose: Label of the choice among several charts.
        choices: These charts by name; the first is `chart`.
        about_runs: Names of its runs, for titles outside the page.
    """

    key: str
    title: str
    about: str
    chart: alt.TopLevelMixin | None = None
    rows: Sequence[Row] = field(default=())
    missing: str = ""
    choose: str = ""
    choices: Mapping[str, alt.TopLevelMixin] = field(default_factory=dict)
    about_runs: str = ""

    @property
    def specs(self) -> dict[str, dict[str, Any]]:
        """Return all charts as themed Vega-Lite, by choice; a single chart has no name."""
        charts = self.choices or ({} if self.chart is None else {"": self.chart})
        return {name: self._themed(chart) for name, chart in charts.items()}

    def _themed(self, chart: alt.TopLevelMixin) -> dict[str, Any]:
        spec: dict[str, Any] = chart.to_dict(validate=False)  # a test validates all charts
        return {**spec, "config": CONFIG, "description": self.about}


def offer_choice(
    key: str,
    title: str,
    about: str,
    charts: Mapping[str, alt.TopLevelMixin],
    rows: Sequence[Row],
    choose: str = WORKLOAD,
) -> Figure:
    """Return a figure with one chart, or with several for the reader to choose from."""
    first = next(iter(charts.values()))
    return Figure(key, title, about, first, rows, "", choose, charts if len(charts) > 1 else {})


def data(rows: Sequence[Row]) -> alt.InlineData:
    """Return a chart's data as one string; Altair would validate and copy each row."""
    text = json.dumps(rows, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return alt.InlineData(values=text, format=alt.JsonDataFormat(type="json"))


TAIL = 20.0
"""Quotient of the largest value and the median from which an axis is logarithmic: linear, it would
squeeze half of the values into a twentieth. A choice of layout."""


def make_scale(values: Sequence[float], **otherwise: Any) -> alt.Scale:
    """Return a logarithmic scale if a tail would squeeze the other values, else a linear one.

    `otherwise` are the properties of the linear scale. A logarithm needs positive values.
    """
    if values and min(values) > 0.0 and max(values) > TAIL * median(values):
        return alt.Scale(type="log")
    return alt.Scale(**otherwise)


def thin_out(rows: Sequence[Row], most: int) -> list[Row]:
    """Return at most `most` rows, evenly spaced, with the first and the last."""
    if len(rows) <= most:
        return list(rows)
    step = (len(rows) - 1) / (most - 1)
    return [rows[round(number * step)] for number in range(most)]


def colour(labels: Sequence[str], *, legend: bool = True) -> alt.Color:
    """Return a colour by label, the same in all figures with the same labels."""
    return alt.Color(
        "label:N",
        scale=palette(labels),
        legend=alt.Legend() if legend and len(labels) > 1 else None,
    )


def palette(labels: Sequence[str]) -> alt.Scale:
    """Return the colours of the labels, in their order."""
    return alt.Scale(domain=list(labels), range=_cycled(COLOURS, labels))


def dash(labels: Sequence[str]) -> alt.StrokeDash:
    """Return a line style by label, in addition to the colour."""
    return alt.StrokeDash(
        "label:N",
        scale=alt.Scale(domain=list(labels), range=_cycled(DASHES, labels)),
        legend=alt.Legend() if len(labels) > 1 else None,
    )


def _cycled(values: Sequence[Any], labels: Sequence[str]) -> list[Any]:
    return [values[number % len(values)] for number in range(len(labels))]


def time_axis(*, grid: bool = True) -> alt.X:
    """Return the axis of `hours`, with few enough ticks for a narrow screen."""
    return alt.X("hours:Q", title="time (h)", axis=alt.Axis(tickCount=8, grid=grid))


def beside_labels(labels: Sequence[str]) -> dict[str, int]:
    """Return how a page fits panels that have a labelled line per label.

    Returns:
        `margin`, the pixels that a panel needs besides its plot, and `least`, the least width in
        pixels of panels side by side.
    """
    pixels = 30 + min(LABEL, round(6.2 * max(map(len, labels))))
    return {"margin": pixels, "least": pixels + 160}
