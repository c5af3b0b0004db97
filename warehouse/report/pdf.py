"""Figures for papers: PDF in the width of a column, with small type and embedded fonts."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import vl_convert

from predictor.errors import InputError
from warehouse.report.figure import CONFIG, WIDTH, Figure
from warehouse.report.output import write_bytes
from warehouse.report.paper import VEGA_LITE, file_name

POINTS_PER_INCH = 72
"""A pixel of a figure is a point of its PDF."""

COLUMN_INCHES, PAGE_INCHES = 3.3, 7.0
"""Widths of a column and of a page of two columns, as in USENIX and ACM proceedings."""

LEAST_INCHES, MOST_INCHES = 2.0, 20.0
"""Bounds on widths; below, axes have no room. Engineering bounds."""

PANEL_POINTS = 90.0
"""Least width of a panel, axes included; narrower ones go below each other. A choice of layout."""

TYPE_POINTS = 7
"""Size of type, as captions of papers have it. A choice of layout."""

PADDING_POINTS = 2.0
"""White around a figure, for what sticks out of it. A choice of layout."""

HALVINGS = 7
"""Steps to the width: a figure stays 2 % below it at most, and white makes up for that."""

_NOT_VIEWS = ("config", "data", "datasets", "params", "title", "transform")
_SIZE = re.compile(r'<svg[^>]*? width="([\d.]+)"')


def write_pdfs(
    figures: Sequence[Figure], folder: Path, inches: float = COLUMN_INCHES
) -> list[Path]:
    """Write each chart as PDF, so wide, on white; `file_name` says how they are called.

    Fonts are embedded as TrueType, which submission systems ask for.

    Args:
        figures: The figures.
        folder: The folder.
        inches: Width of the figures.

    Returns:
        The files.

    Raises:
        InputError: The width is out of bounds, or the folder cannot be written.
    """
    if not LEAST_INCHES <= inches <= MOST_INCHES:
        raise InputError(
            "inches",
            f"{inches:g} is out of range",
            f"give {LEAST_INCHES:g} to {MOST_INCHES:g}, such as {COLUMN_INCHES} or {PAGE_INCHES:g}",
        )
    written = []
    for figure in figures:
        for choice, drawn in figure.specs.items():
            text = json.dumps(fitted(drawn, inches * POINTS_PER_INCH))
            path = folder / f"{file_name(figure, choice)}.pdf"
            write_bytes(path, vl_convert.vegalite_to_pdf(text, vl_version=VEGA_LITE))
            written.append(path)
    return written


def fitted(spec: Mapping[str, Any], points: float) -> dict[str, Any]:
    """The chart in a width, type apart.

    Views are scaled, axes and legends keep their size; what remains is white on the right.

    Args:
        spec: The chart, as Vega-Lite.
        points: The width.
    """
    drawn = {**_in_columns(spec, points), "config": _small(points), "padding": PADDING_POINTS}
    tall = min(1.0, points / WIDTH) ** 0.5
    low, high = 0.0, 2.0 * points / WIDTH
    for _ in range(HALVINGS):  # labels that are left out for want of room make widths jump
        scale = (low + high) / 2
        low, high = (scale, high) if _width(_scaled(drawn, scale, tall)) <= points else (low, scale)
    made = _scaled(drawn, low, tall)
    sides = dict.fromkeys(("left", "top", "right", "bottom"), PADDING_POINTS)
    return {**made, "padding": sides | {"right": PADDING_POINTS + max(0.0, points - _width(made))}}


def _in_columns(spec: Mapping[str, Any], points: float) -> dict[str, Any]:
    """The chart with as many panels beside each other as have room."""
    most = max(1, int(points / PANEL_POINTS))
    columns = spec.get("columns", len(spec.get("concat", ())))
    return {**spec, "columns": min(columns, most), "spacing": 8} if columns else {**spec}


def _scaled(view: Any, wide: float, tall: float) -> Any:
    """A view, or views, with all widths and heights scaled, and small type in its marks."""
    if isinstance(view, list):
        return [_scaled(part, wide, tall) for part in view]
    if not isinstance(view, dict):
        return view
    sizes = {"width": wide, "height": tall}
    made: dict[str, Any] = {}
    for name, value in view.items():
        if name in sizes and isinstance(value, int | float):
            made[name] = round(value * sizes[name], 1)
        elif name == "fontSize":
            made[name] = TYPE_POINTS
        elif name == "encoding":
            made[name] = {channel: _with_legend(drawn) for channel, drawn in value.items()}
        else:
            made[name] = value if name in _NOT_VIEWS else _scaled(value, wide, tall)
    return made


def _with_legend(channel: Any) -> Any:
    """A channel whose legend has as many columns as those of all figures."""
    legend = channel.get("legend") if isinstance(channel, dict) else None
    if not legend:
        return channel
    return {**channel, "legend": {key: legend[key] for key in legend if key != "columns"}}


def _small(points: float) -> dict[str, Any]:
    """The theme of all figures with the type of a paper."""
    sizes = {"labelFontSize": TYPE_POINTS, "titleFontSize": TYPE_POINTS}
    legend = {"columns": max(1, int(points / PANEL_POINTS)), "symbolSize": 30}
    return {
        **CONFIG,
        "background": "#ffffff",
        "axis": {**CONFIG["axis"], **sizes, "labelLimit": 60, "tickSize": 3, "titlePadding": 3},
        "legend": {**CONFIG["legend"], **sizes, **legend, "labelLimit": PANEL_POINTS},
        "header": {**CONFIG["header"], **sizes},
        "title": {**CONFIG["title"], "fontSize": TYPE_POINTS, "offset": 4},
        "text": {**CONFIG["text"], "fontSize": TYPE_POINTS},
        "line": {"strokeWidth": 1},
    }


def _width(spec: Mapping[str, Any]) -> float:
    """The width of a chart, axes and legends included, in points."""
    found = _SIZE.search(vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGA_LITE))
    assert found is not None, "an SVG has a width"
    return float(found[1])
