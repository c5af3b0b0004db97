"""Tables and progress bars on the terminal."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from flows.cli.output import terminal_width
from flows.cli.tables import Line, side_by_side, table

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
        self._progress.console.print(Text(text), style="dim")

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
        self._progress.console.print(Text(text), style="dim")

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


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, paged: bool = False
) -> None:
    """Print a table on stdout: of any width into a pipe or file, fitting on a terminal.

    Args:
        columns: The columns' names.
        rows: A value a column each; texts are shown verbatim (no markup).
        paged: Whether a table that is longer than the terminal goes to a pager.
    """
    _print(table(columns, rows, terminal_width()), paged)


def print_side_by_side(rows: Sequence[Mapping[str, object]], heading: str) -> None:
    """Print records as columns, headed by one of their fields; columns that do not fit go below."""
    _print(side_by_side(rows, heading, terminal_width() or USUAL_WIDTH))


def _print(lines: Sequence[Line], paged: bool = False) -> None:
    if terminal_width() is None:
        typer.echo("\n".join(text for text, _ in lines))
        return
    console = Console(highlight=False, soft_wrap=True)
    with ExitStack() as pager:
        if paged and len(lines) > console.height:
            os.environ.setdefault("LESS", "FRX")  # colours, and what was shown stays there
            pager.enter_context(console.pager(styles=console.color_system is not None))
        for text, style in lines:
            console.print(Text(text), style=style or None)
