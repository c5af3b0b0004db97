"""One look for the line charts of the docs: few lines, named where they end, plain numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from warehouse.report.figure import COLOURS, INK

LABEL_GAP = 0.058
"""Least distance of two labels, as a share of an axis' height."""

STYLE = {
    "font.family": ["Liberation Sans", "DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": "#8a929c",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dfe3e8",
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.4,
    "svg.fonttype": "none",
}


def new_figure(rows: int, columns: int, height: float) -> tuple[Figure, list[list[Axes]]]:
    """A figure of panels, 9 inches wide.

    Args:
        rows: Rows of panels.
        columns: Panels in a row.
        height: Height of a row, in inches.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, height * rows), layout="constrained", facecolor="white")
        return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False)]


def draw_lines(axis: Axes, lines: Mapping[str, Sequence[tuple[float, float]]], bold: str) -> None:
    """Draw named lines, and write each name beside the line's last point.

    Args:
        axis: The panel.
        lines: Points by name; the order gives the colours.
        bold: The line to draw thick and black.
    """
    colours = iter(COLOURS)
    ends = []
    for name, points in lines.items():
        thick = name == bold
        colour = "black" if thick else next(colours)
        x, y = zip(*points, strict=True)
        axis.plot(x, y, color=colour, linewidth=2.4 if thick else 1.4, zorder=3 if thick else 2)
        ends.append((points[-1], name, colour))
    axis.margins(x=0.02)
    axis.get_ylim()  # the scale is settled lazily, and labels are placed on it
    for scale, which in ((axis.xaxis, axis.get_xscale()), (axis.yaxis, axis.get_yscale())):
        scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        if which == "log":
            scale.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
            scale.set_minor_formatter(NullFormatter())
            scale.minorticks_off()
    _label_ends(axis, ends)


def _label_ends(axis: Axes, ends: Sequence[tuple[tuple[float, float], str, str]]) -> None:
    """Write names right of the lines' ends, from low to high, moved up where they would touch."""
    heights = axis.transAxes.inverted()
    floor = -1.0
    for (x, y), name, colour in sorted(ends, key=lambda end: end[0][1]):
        at = max(float(heights.transform(axis.transData.transform((x, y)))[1]), floor)
        floor = at + LABEL_GAP
        axis.annotate(
            name, (1.01, at), xycoords="axes fraction", color=colour, va="center", fontsize=8
        )


def save(figure: Figure, path: Path, salt: str) -> None:
    """Write a picture; the same figures give the same bytes.

    Args:
        figure: The figure.
        path: The file, `.svg` or `.png`.
        salt: Seed of the ids in an SVG.
    """
    with mpl.rc_context({**STYLE, "svg.hashsalt": salt}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
