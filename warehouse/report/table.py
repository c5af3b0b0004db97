"""Tables of a report; the page's script draws them when they come into view."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warehouse.analytics.intervals import Interval
from warehouse.report.figure import Row


@dataclass(frozen=True)
class Table:
    """A table that readers can sort.

    Attributes:
        rows: Rows; the names of columns are the headings.
        filters: Columns by whose values readers can filter.
        sections: The run whose jobs the first column names, if each has its own section.
    """

    caption: str
    rows: Sequence[Row]
    filters: Sequence[str] = ()
    sections: str = ""

    def as_data(self) -> dict[str, Any]:
        """Return the table as JSON; an interval becomes a list of its mean and half width."""
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
    """Round a number to seven digits: the page shows three, but sorts by all."""
    return float(f"{value:.7g}")
