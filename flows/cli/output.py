"""Results on stdout: lines of text, and rows as JSON lines or as a table."""

import io
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import typer

from flows.cli.errors import escape
from flows.cli.progress import end_progress
from warehouse.analytics.values import to_plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tasks.sources import Workload
    from warehouse.analytics.paired import PairedDifference


USUAL_WIDTH = 100
"""Width of records side by side if stdout is not a terminal, in characters. A choice of layout."""

UNLIMITED = 10**9
"""Width of a single record if stdout is not a terminal."""


def get_terminal_width() -> int | None:
    """Return the width of the terminal on stdout; None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def echo(text: str, *, err: bool = False) -> None:
    """Print text; if the reader of stdout has closed the pipe, such as `head`, drop it."""
    try:
        typer.echo(text, err=err)
    except BrokenPipeError:
        # What Python still holds would raise again when it is flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str, *, err: bool = False) -> None:
    """Print lines on stdout, on a terminal wrapped at spaces, or on stderr.

    Other control characters are escaped.
    """
    end_progress()
    width = None if err else get_terminal_width()
    for line in map(escape, text.split("\n")):
        lines = [line] if width is None else wrap(line, width, **_AT_SPACES) or [line]
        echo("\n".join(lines), err=err)


def print_reading(workload: "Workload", *, err: bool = False) -> None:
    """Print which jobs the cluster changes, and `print_left_out`."""
    if told := workload.tell_changes():
        say(told, err=err)
    print_left_out(workload.left_out, workload.slots, err=err)


def print_left_out(left_out: Mapping[str, int], slots: int = 1, *, err: bool = False) -> None:
    """Print how many lines of a log are not jobs, by reason, and the slots of a GPU, if several."""
    if slots > 1:
        say(f"Jobs hold shares of GPUs: each GPU of the cluster is {slots} slots.", err=err)
    if left_out:
        width = max(len(f"{number:,}") for number in left_out.values())
        rows = [f"  {number:>{width},}  {reason}" for reason, number in left_out.items()]
        say("\n".join(["Left out of the log:", *rows]), err=err)


def print_log(text: bytes) -> None:
    """Print the output of a program verbatim; on a terminal, escape control characters."""
    end_progress()
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return
    for line in text.decode(errors="replace").splitlines():
        echo(escape(line))


_AT_SPACES: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def print_rows(
    rows: Iterable[dict[str, Any]],
    as_json: bool,
    *,
    paged: bool = False,
    important: Sequence[str] = (),
) -> None:
    """Print rows: as JSON lines as they arrive, or as a table (`print_table`)."""
    if as_json:
        for row in rows:
            echo(json.dumps(to_plain(row), allow_nan=False))
    elif shown := list(rows):
        cells = [list(row.values()) for row in shown]
        print_table(list(shown[0]), cells, paged=paged, important=important)


def print_result(row: dict[str, Any], text: str, as_json: bool) -> None:
    """Print a single result, as a JSON line or as text."""
    if as_json:
        print_rows([row], as_json)
    else:
        say(text)


def print_filled(
    rows: Sequence[dict[str, Any]],
    as_json: bool,
    important: Sequence[str] = (),
    always: Sequence[str] = (),
) -> None:
    """Print rows, paged, without columns that are empty in all rows, except those in `always`.

    If the table does not fit, bounds of intervals are left out first, `important` columns last.
    """
    if as_json or not rows:
        print_rows(rows, as_json)
        return
    filled = {name for row in rows for name, value in row.items() if value not in (None, "")}
    columns = sorted(rows[0], key=lambda name: "_low_" in name or "_high_" in name)
    columns = [name for name in columns if name in filled or name in always]
    cells = [[row[name] for name in columns] for row in rows]
    print_table(columns, cells, paged=True, important=important)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    paged: bool = False,
    important: Sequence[str] = (),
) -> None:
    """Print a table on stdout: complete into a pipe or file, fitting on a terminal.

    Columns that do not fit are left out, those in `important` last. If `paged`, a table longer than
    the terminal goes to a pager.
    """
    from flows.cli.tables import join_table, make_table

    if (width := get_terminal_width()) is not None:
        print_parts(make_table(columns, rows, width, important), paged)
        return
    end_progress()
    for line in join_table(columns, rows):
        echo(line)


def print_side_by_side(rows: Sequence[Mapping[str, object]], heading: str) -> None:
    """Print records as columns, headed by one of their fields; columns that do not fit go below."""
    from flows.cli.tables import make_records

    print_parts(make_records(rows, heading, get_terminal_width() or USUAL_WIDTH))


def print_fields(record: Mapping[str, object]) -> None:
    """Print a record, one field a line; on a terminal, long values are wrapped."""
    from flows.cli.tables import make_fields

    print_parts([make_fields(record)], paged=True)


def print_parts(parts: "Iterable[RenderableType]", paged: bool = False) -> None:
    """Print what Rich lays out; without colours and trailing spaces into a pipe or file."""
    from rich.console import Console, Group  # costs a tenth of a second to import

    end_progress()
    whole = Group(*parts)
    if get_terminal_width() is None:
        console = Console(file=io.StringIO(), width=UNLIMITED, highlight=False, color_system=None)
        for line in console.render_lines(whole, pad=False):
            echo("".join(segment.text for segment in line).rstrip())
        return
    console = Console(highlight=False)
    with ExitStack() as pager:
        if paged and len(console.render_lines(whole)) > console.height:
            os.environ.setdefault("LESS", "FRX")  # colours, and the text stays on the terminal
            pager.enter_context(console.pager(styles=console.color_system is not None))
        console.print(whole)


def subtract(after: float | None, before: float | None) -> float | None:
    """Return the difference of two figures; None if either is missing."""
    return None if after is None or before is None else after - before


LEAST_IS_BEST = frozenset(
    {
        *("makespan_s", "mean_jct_s", "jct_p50_s", "jct_p95_s", "jct_p99_s", "mean_queueing_s"),
        *("worst_rho", "rho_p95", "unfair_fraction", "preemptions", "restart_s"),
        *("proportionality_violations", "envy_violations"),
        *("mean_wait_s", "wait_p50_s", "wait_p95_s", "wait_p99_s", "mean_rho"),
    }
)
"""Figures of runs of which less is better."""

MOST_IS_BEST = frozenset({"utilization", "nash_welfare"})
"""Figures of runs of which more is better."""


def find_best(figure: str, values: Mapping[str, float | None]) -> list[str]:
    """Return whose value of a figure is best; none if all are equal or neither end is better.

    Values are compared to four digits, about as many as are shown.
    """
    if figure not in LEAST_IS_BEST | MOST_IS_BEST:
        return []
    known = {name: float(f"{value:.4g}") for name, value in values.items() if value is not None}
    if len(set(known.values())) < 2:
        return []
    best = (min if figure in LEAST_IS_BEST else max)(known.values())
    return [name for name, value in known.items() if value == best]


def make_jct_columns(difference: "PairedDifference | None", as_json: bool) -> dict[str, Any]:
    """Make the columns of a difference of jobs' JCTs, in seconds."""
    from warehouse.analytics.intervals import FigureRow

    change = None if difference is None else difference.change
    row = FigureRow({}, {"jct_difference_s": change})
    return (row.row() if as_json else row.shown()) | {
        "sooner": None if difference is None else difference.less,
        "later": None if difference is None else difference.more,
    }
