"""Line charts with a band, and values to hover over, as SVG without scripts."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup, escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 190, 64, 12, 10, 40
"""Size of a chart and its margins, in pixels. A choice of layout."""

TICKS = 4
"""Approximate number of grid intervals. A choice of layout."""


MOST_DOTS = 300
"""Most points of a line with a value to hover over. An engineering bound."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a line; `low` and `high` bound its band."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


def draw_chart(points: Sequence[Point], x: str, y: str, about: str) -> Markup:
    """Draw a line chart with titles of both axes; empty if there are fewer than two points.

    The points ascend by x. `about` is the description for screen readers.
    """
    if len(points) < 2:
        return Markup("")
    ys = [end for p in points for end in (p.y, p.low, p.high) if end is not None]
    across = _Axis(points[0].x, points[-1].x, LEFT, WIDTH - RIGHT)
    up = _Axis(min(0.0, *ys), max(ys), HEIGHT - BOTTOM, TOP)
    parts = [*_grid(across, up, x, y)]
    banded = [p for p in points if p.low is not None and p.high is not None]
    if banded:
        edge = [(p.x, p.high) for p in banded] + [(p.x, p.low) for p in reversed(banded)]
        placed = " ".join(f"{across.at(a):.1f},{up.at(b or 0.0):.1f}" for a, b in edge)
        parts.append(f'<polygon class="band" points="{placed}"/>')
    placed = " ".join(f"{across.at(p.x):.1f},{up.at(p.y):.1f}" for p in points)
    parts.append(f'<polyline class="line" points="{placed}"/>')
    parts += [
        f'<circle class="dot" cx="{across.at(p.x):.1f}" cy="{up.at(p.y):.1f}" r="5">'
        f"<title>{p.x:,.3g} {escape(x)}: {p.y:,.4g} {escape(y)}</title></circle>"
        for p in points[:: ceil(len(points) / MOST_DOTS)]
    ]
    attributes = f'role="img" aria-label="{escape(about)}"'
    return Markup(f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" {attributes}>{"".join(parts)}</svg>')


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis: maps the values `low` to `high` linearly to the pixels `begins` to `ends`."""

    low: float
    high: float
    begins: float
    ends: float

    def at(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.begins + share * (self.ends - self.begins)

    @property
    def ticks(self) -> list[float]:
        span = (self.high - self.low) or 1.0
        # Ticks are multiples of 1, 2 or 5 times a power of ten.
        power = 10.0 ** floor(log10(span / TICKS))
        step = next(power * of for of in (1, 2, 5, 10) if span / (power * of) <= TICKS)
        first = floor(self.low / step) + (self.low % step > 0)
        return [step * n for n in range(first, floor(self.high / step + 1e-9) + 1)]


def _grid(across: _Axis, up: _Axis, x: str, y: str) -> list[str]:
    parts = []
    for value in up.ticks:
        at = up.at(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4}" class="end">{value:,.4g}</text>')
    for value in across.ticks:
        at = across.at(value)
        parts.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 16}" class="mid">{value:,.4g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" class="mid">{escape(x)}</text>')
    turned = f'transform="rotate(-90 12 {(HEIGHT - BOTTOM) / 2})"'
    parts.append(
        f'<text x="12" y="{(HEIGHT - BOTTOM) / 2}" class="mid" {turned}>{escape(y)}</text>'
    )
    return parts
