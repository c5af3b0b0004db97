"""Tables and progress bars on the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from flows.cli.errors import printable

if TYPE_CHECKING:  # not needed to print a table
    from flows.runs.simulation import Progress as RoundCallback
    from tasks.record import Start
    from tasks.round import Run

USUAL_WIDTH = 100
"""Width in characters if stdout is no terminal. A choice of layout."""


class Bars:
    """Progress bars on stderr, one for each run, counted in finished jobs."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        self._progress.console.print(Text(printable(text)), style="dim")

    def add(self, start: "Start") -> "RoundCallback":
        """Add a bar for a run; returns the callback that updates it after a round."""
        policy, jobs = start.header.settings.policy, len(start.workload.specs)
        bar = self._progress.add_task(policy, total=jobs, round=0)

        def update(run: "Run") -> None:
            done = run.state.arrived - len(run.state.beliefs)
            self._progress.update(bar, completed=done, round=run.state.round)

        return update


@contextmanager
def bars(*, quiet: bool) -> Iterator[Bars]:
    """Progress bars within the context; none if stderr is no terminal."""
    console = Console(stderr=True, quiet=quiet)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs, round {task.fields[round]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        yield Bars(progress)


class Count:
    """A progress bar on stderr with a count."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._bar = progress.add_task(what, total=None)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(Text(printable(text)), style="dim")

    def show(self, done: int, total: int) -> None:
        """Update the bar to `done` of `total`."""
        self._progress.update(self._bar, completed=done, total=total)


@contextmanager
def counting(what: str, *, quiet: bool) -> Iterator[Count]:
    """A progress bar within the context; none if stderr is no terminal."""
    console = Console(stderr=True, quiet=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
    ) as progress:
        yield Count(progress, what)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on stdout; numbers right-aligned, texts verbatim (no markup), on a line."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for position, column in enumerate(columns):
        numeric = any(isinstance(row[position], int | float) for row in rows)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(Text(printable(column)), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(value)) for value in row))
    console = Console()
    if not console.is_terminal:  # do not wrap
        console = Console(width=10_000)
    console.print(table)


def print_side_by_side(rows: Sequence[Mapping[str, object]], heading: str) -> None:
    """Print records as columns, headed by one of their fields; columns that do not fit go below."""
    fields = [name for name in rows[0] if name != heading]
    console = Console()
    width = console.width if console.is_terminal else USUAL_WIDTH
    room = width - max(map(len, fields))
    widths = [2 + max(len(_shown(value)) for value in row.values()) for row in rows]
    ends = list(accumulate(widths))
    first = 0
    while first < len(rows):
        before = ends[first] - widths[first]
        last = max(first + 1, sum(end - before <= room for end in ends))
        shown = rows[first:last]
        print_table(
            ["", *(str(row[heading]) for row in shown)],
            [[name, *(row[name] for row in shown)] for name in fields],
        )
        first = last


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"
    return "" if value is None else printable(str(value))
