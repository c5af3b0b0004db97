"""One look for the line charts of the docs: few lines, named where they end, plain numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import Bbox

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


def label_points(axis: Axes, points: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """Write names beside their points, where they touch neither the panel's edge nor each other.

    Args:
        axis: The panel, with its scales and limits set.
        points: x and y of each point, by name.
    """
    assert isinstance(axis.figure, Figure)
    axis.figure.draw_without_rendering()  # lays the panels out, and names are placed in pixels
    panel = axis.get_window_extent()
    centres = [axis.transData.transform((x, y)) for (x,), (y,) in points.values()]
    taken = [Bbox.from_extents(*(at - 3), *(at + 3)) for at in centres]
    for name, ((x,), (y,)) in points.items():
        for right, up in ((6, 5), (-6, 5), (6, -6), (-6, -6), (0, 10), (0, -10)):
            label = axis.annotate(
                name,
                (x, y),
                (right, up),
                textcoords="offset points",
                ha="left" if right > 0 else "right" if right else "center",
                va="center",
                fontsize=8,
            )
            box = label.get_window_extent()
            within = panel.containsx(box.x0) and panel.containsx(box.x1)
            if within and not box.count_overlaps(taken):
                taken.append(box)
                break
            label.remove()


def save(figure: Figure, path: Path, salt: str) -> None:
    """Write a picture; the same figures give the same bytes.

    Args:
        figure: The figure.
        path: The file, `.svg` or `.png`.
        salt: Seed of the ids in an SVG.
    """
    with mpl.rc_context({**STYLE, "svg.hashsalt": salt}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
