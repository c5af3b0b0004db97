"""Figures as files, without a browser: with titles, or as PDF as wide as a paper's column."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import vl_convert

from predictor.errors import InputError, likely
from warehouse.report.figure import CONFIG, WIDTH, WORKLOAD, Figure
from warehouse.report.output import report_name, write_bytes

VEGA_LITE = "6.4"
"""Version of Vega-Lite that draws the figures, on the page as well."""

PNG_SCALE = 2.0
"""Pixels of a PNG per pixel of its SVG; sharp on high-density screens."""

POINTS_PER_INCH = 72
COLUMN_INCHES, PAGE_INCHES = 3.3, 7.0
"""Widths of a column and of a two-column page in USENIX and ACM proceedings."""

LEAST_INCHES, MOST_INCHES = 2.0, 20.0
"""Accepted widths. Narrower figures leave no room for axes."""

TYPE_POINTS = 8
"""Size of type before the figure is scaled to its width, close to that of captions."""

PANEL_POINTS = 90.0
"""Least width of a panel with its axes; narrower panels are stacked."""

_NOT_VIEWS = ("config", "data", "datasets", "params", "title", "transform")
_SVG_SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')


class ImageFormat(StrEnum):
    """File format of a figure."""

    SVG = "svg"
    PNG = "png"
    PDF = "pdf"


def select_figures(figures: Sequence[Figure], only: Sequence[str]) -> list[Figure]:
    """Return the figures whose keys begin with one of `only`; all if it is empty.

    Raises:
        InputError: No key begins with one of them.
    """
    keys = sorted(figure.key for figure in figures)
    for begin in only:
        if not any(key.startswith(begin) for key in keys):
            remedy = f"{likely(begin, keys)}there are {', '.join(keys)}"
            raise InputError("only", f"no figure begins with {begin!r}", remedy)
    return [figure for figure in figures if figure.key.startswith(tuple(only) or "")]


def write_figures(
    figures: Sequence[Figure], folder: Path, formats: Sequence[ImageFormat] = (*ImageFormat,)
) -> list[Path]:
    """Write each chart on white, with a title, named by figure and choice; return the files.

    Raises:
        InputError: The folder cannot be written.
    """
    written = []
    for figure in figures:
        for name, spec in _charts([figure]):
            text = json.dumps(
                {
                    **spec,
                    "title": {
                        **{"text": figure.title, "subtitle": figure.about_runs},
                        **{"fontSize": 14, "offset": 10},
                    },
                    "config": {**spec["config"], "background": "#ffffff"},
                }
            )
            for kind in formats:
                written.append(folder / f"{name}.{kind}")
                write_bytes(written[-1], _convert(text, kind))
    return written


def _convert(spec: str, kind: ImageFormat) -> bytes:
    match kind:
        case ImageFormat.SVG:
            return vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE).encode()
        case ImageFormat.PNG:
            return vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=PNG_SCALE)
        case ImageFormat.PDF:
            return vl_convert.vegalite_to_pdf(spec, vl_version=VEGA_LITE)


def write_pdfs(
    figures: Sequence[Figure], folder: Path, inches: float = COLUMN_INCHES
) -> list[Path]:
    """Write each chart as a PDF of the given width, named by figure and choice; return the files.

    Fonts are embedded as TrueType, which submission systems require.

    Raises:
        InputError: The width is out of bounds, or the folder cannot be written.
    """
    if not LEAST_INCHES <= inches <= MOST_INCHES:
        usual = f"such as {COLUMN_INCHES} or {PAGE_INCHES:g}"
        remedy = f"give {LEAST_INCHES:g} to {MOST_INCHES:g}, {usual}"
        raise InputError("inches", f"{inches:g} is out of range", remedy)
    written = []
    for name, spec in _charts(figures):
        written.append(folder / f"{name}.pdf")
        drawn = _draw_for_paper(spec, inches * POINTS_PER_INCH)
        write_bytes(written[-1], vl_convert.svg_to_pdf(drawn))
    return written


def _charts(figures: Iterable[Figure]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each chart's file without its suffix, and the chart.

    The name is the figure's, then the choice's. The first choice has no part in the name if all
    choices show the same data, as with colours.
    """
    for figure in figures:
        first = "" if figure.choose == WORKLOAD else next(iter(figure.choices), "")
        for choice, spec in figure.specs.items():
            same = choice in ("", first)
            yield figure.key if same else f"{figure.key}-{report_name(choice)}", spec


def _draw_for_paper(spec: Mapping[str, Any], points: float) -> str:
    """Return the chart as an SVG of the given width, with small type and as many columns as fit.

    Views shrink in proportion, but axes and legends keep their size, so the result is slightly too
    wide. The SVG's own size scales the rest, type included.
    """
    columns = spec.get("columns", len(spec.get("concat", ())))
    most = max(1, int(points / PANEL_POINTS))
    panels = {"columns": min(columns, most), "spacing": 8} if columns else {}
    sizes = {"labelFontSize": TYPE_POINTS, "titleFontSize": TYPE_POINTS}
    config = {
        **CONFIG,
        "background": "#ffffff",
        "axis": {**CONFIG["axis"], **sizes, "labelLimit": 60, "tickSize": 3, "titlePadding": 3},
        "legend": {**CONFIG["legend"], **sizes, "columns": most, "labelLimit": PANEL_POINTS},
        "header": {**CONFIG["header"], **sizes},
        "title": {**CONFIG["title"], "fontSize": TYPE_POINTS, "offset": 4},
        "text": {**CONFIG["text"], "fontSize": TYPE_POINTS},
        "line": {"strokeWidth": 1},
    }
    wide = points / WIDTH
    chart = {**_scaled({**spec, **panels}, wide, min(1.0, wide) ** 0.5), "config": config}
    svg = vl_convert.vegalite_to_svg(json.dumps(chart), vl_version=VEGA_LITE)
    size = _SVG_SIZE.search(svg)
    assert size is not None, "Vega writes the size of an SVG"
    height = float(size[2]) * points / float(size[1])
    return svg.replace(size[0], f'width="{points:g}" height="{height:g}"', 1)


def _scaled(view: Any, wide: float, tall: float) -> Any:
    """Scale the widths and heights of views, and shrink the type in their marks."""
    if isinstance(view, list):
        return [_scaled(part, wide, tall) for part in view]
    if not isinstance(view, dict):
        return view
    factors = {"width": wide, "height": tall}
    scaled: dict[str, Any] = {}
    for name, value in view.items():
        if name in factors and isinstance(value, int | float):
            scaled[name] = round(value * factors[name], 1)
        elif name == "fontSize":
            scaled[name] = TYPE_POINTS
        elif name == "legend" and isinstance(value, dict):
            # Columns of legends suit the page; on paper the theme sets them.
            scaled[name] = {key: value[key] for key in value if key != "columns"}
        else:
            scaled[name] = value if name in _NOT_VIEWS else _scaled(value, wide, tall)
    return scaled
