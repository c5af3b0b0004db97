"""Figures as SVG and PNG, without a browser."""

import json
from collections.abc import Sequence
from pathlib import Path

import vl_convert

from warehouse.report.figure import WORKLOAD, Figure
from warehouse.report.output import report_name, write_bytes

VEGA_LITE = "6.4"
"""Version of Vega-Lite for the figures, on the page as well."""

SCALE = 2.0
"""Pixels of a PNG per pixel of the SVG. A choice of layout."""


def write_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write each chart as SVG and PNG, on white; `file_name` says how they are called.

    Returns:
        The files.

    Raises:
        InputError: The folder cannot be written.
    """
    written = []
    for figure in figures:
        for choice, spec in figure.specs.items():
            text = json.dumps({**spec, "config": {**spec["config"], "background": "#ffffff"}})
            drawings = {
                "svg": vl_convert.vegalite_to_svg(text, vl_version=VEGA_LITE).encode(),
                "png": vl_convert.vegalite_to_png(text, vl_version=VEGA_LITE, scale=SCALE),
            }
            for kind, drawing in drawings.items():
                path = folder / f"{file_name(figure, choice)}.{kind}"
                write_bytes(path, drawing)
                written.append(path)
    return written


def file_name(figure: Figure, choice: str) -> str:
    """The name of a chart's file: the figure's, and behind it the choice's own.

    The first of choices that are all about the same, such as colours, goes without.
    """
    first = "" if figure.choose == WORKLOAD else next(iter(figure.choices), "")
    return figure.key if choice in ("", first) else f"{figure.key}-{report_name(choice)}"
