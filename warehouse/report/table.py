"""Tables of a report, which the page's script draws when they are seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warehouse.analytics.intervals import Interval
from warehouse.report.figure import Row


@dataclass(frozen=True)
class Table:
    """A table that its reader can sort.

    Attributes:
        caption: What it shows.
        rows: Its rows; names of columns are headings.
        filters: Columns whose values can be chosen among.
        sections: The run whose jobs the first column names, each with a section of its own.
    """

    caption: str
    rows: Sequence[Row]
    filters: Sequence[str] = ()
    sections: str = ""

    def as_data(self) -> dict[str, Any]:
        """The table as JSON: an interval is a list of its mean and half its width."""
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        return {
            "caption": self.caption,
            "columns": [name.replace("_", " ") for name in columns],
            "rows": [[_cell(row.get(name)) for name in columns] for row in self.rows],
            "filters": [columns.index(name) for name in self.filters if name in columns],
            "sections": self.sections,
        }


def _cell(value: Any) -> Any:
    match value:
        case Interval():
            half = value.half_width
            return [_short(value.mean), None if half is None else _short(half)]
        case float():
            return _short(value)
        case bool():
            return "yes" if value else "no"
        case _:
            return value


def _short(value: float) -> float:
    """A number in seven digits: the page shows three, and sorts by these."""
    return float(f"{value:.7g}")
