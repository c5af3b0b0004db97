"""Means over runs, with confidence intervals."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

CONFIDENCE = 0.95
"""Level of the confidence intervals over seeds; a convention."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over runs.

    Attributes:
        half_width: Half the width of the 95 % confidence interval; None for a single run.
    """

    mean: float
    half_width: float | None

    def __str__(self) -> str:
        """Return the mean ± half the interval's width."""
        mean = in_three_digits(self.mean)
        return mean if self.half_width is None else f"{mean} ± {in_three_digits(self.half_width)}"

    @property
    def low(self) -> float:
        """Lower end of the interval; the mean if there is a single run."""
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        """Upper end of the interval; the mean if there is a single run."""
        return self.mean + (self.half_width or 0.0)


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of at least one value, with its interval by Student's t distribution."""
    if len(values) < 2:
        return Interval(fmean(values), None)
    from scipy.special import stdtrit  # what scipy.stats calls, without its half second of imports

    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    return Interval(fmean(values), quantile * stdev(values) / math.sqrt(len(values)))


def interval_of(values: Iterable[float | None]) -> Interval | None:
    """Return the mean of the known values with its interval; None if no value is known."""
    known = [float(value) for value in values if value is not None]
    return interval(known) if known else None


def as_columns(name: str, found: Interval | None) -> dict[str, float | None]:
    """Return a mean and the ends of its interval as columns; None where undefined."""
    wide = None if found is None or found.half_width is None else found
    return {
        name: None if found is None else found.mean,
        f"{name}_low": None if wide is None else wide.low,
        f"{name}_high": None if wide is None else wide.high,
    }


@dataclass(frozen=True, slots=True)
class FigureRow:
    """Means with their intervals, and the labels of what they are taken over.

    Attributes:
        figures: Interval by name; None if no value is known.
    """

    labels: Mapping[str, object]
    figures: Mapping[str, Interval | None]

    def row(self) -> dict[str, object]:
        """Return one flat row: the labels, then mean and interval bounds of each figure."""
        row = dict(self.labels)
        for name, figure in self.figures.items():
            row |= as_columns(name, figure)
        return row

    def shown(self) -> dict[str, object]:
        """Format the row for a table, without empty labels."""
        labels = {name: label for name, label in self.labels.items() if label != ""}
        texts = {name: "" if found is None else str(found) for name, found in self.figures.items()}
        return labels | texts


def in_three_digits(value: float) -> str:
    """Format a number with three digits, or as an integer from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
