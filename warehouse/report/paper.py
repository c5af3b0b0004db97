"""Figures as SVG and PNG, without a browser."""

import json
from collections.abc import Sequence
from pathlib import Path

import vl_convert

from warehouse.report.figure import Figure
from warehouse.report.output import report_name, write_bytes

VEGA_LITE = "6.4"
"""Version of Vega-Lite for the figures, on the page as well."""

SCALE = 2.0
"""Pixels of a PNG per pixel of the SVG."""


def write_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write each chart as `KEY.svg` and `KEY.png`, on white; further choices as `KEY-CHOICE`.

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
    """The name of a chart's file: the first choice has the figure's, others add their own."""
    first = next(iter(figure.choices), "")
    return figure.key if choice == first else f"{figure.key}-{report_name(choice)}"
