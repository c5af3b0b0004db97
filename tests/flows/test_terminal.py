"""Tables on terminals of any width: no number breaks, no text is markup or steers the terminal."""

import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, Group

from flows.cli.output import print_side_by_side, print_table
from flows.cli.tables import make_records, make_table, to_text
from harness.up import PROGRAM, outside
from tests.flows.conftest import Command, Finished
from tests.newcomer import in_terminal
from tests.strategies import examples

WIDTHS = (80, 120)
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")

numbers = st.one_of(
    st.integers(-(10**15), 10**15),
    st.floats(),
    st.decimals(-(10**9), 10**9, places=3),
)
words = st.text(st.characters(codec="utf-8", exclude_characters=" "), min_size=1, max_size=12)
texts = st.lists(words, max_size=20).map(" ".join)
values = st.one_of(st.none(), st.booleans(), numbers, texts, st.lists(numbers, max_size=6))
names = st.text("abcdefghij_", min_size=1, max_size=30)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[object]]]:
    """Columns and rows; each column holds numbers, texts, or anything."""
    columns = draw(st.lists(names, min_size=1, max_size=14, unique=True))
    kinds = draw(st.tuples(*(st.sampled_from([numbers, texts, values]) for _ in columns)))
    rows = draw(st.lists(st.tuples(*kinds), max_size=8))
    return columns, [list(row) for row in rows]


def render(parts: object, width: int) -> list[str]:
    """Render on a terminal of a width; returns the lines."""
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(Group(*parts))  # type: ignore[misc]
    return capture.get().splitlines()


@examples(40)
@given(tables(), st.integers(40, 220))
def test_no_number_breaks_and_columns_left_out_are_named(
    drawn: tuple[list[str], list[list[object]]], width: int
) -> None:
    columns, rows = drawn
    lines = render(make_table(columns, rows, width), width)
    assert all(cell_len(line) <= width for line in lines)
    text = "\n".join(lines)
    note = (re.findall(r"^\(\d+ columns? left out.*", text, re.DOTALL | re.M) or [""])[0].split()
    left_out = {name.rstrip(",;") for name in note} & {*columns}
    assert {*columns} <= {*text.replace(",", " ").replace(";", " ").split()}
    for row in rows:
        for name, value in zip(columns, row, strict=True):
            if name not in left_out and isinstance(value, int | float | Decimal):
                assert to_text(value) in text.split()


@given(st.integers(40, 220), st.lists(st.tuples(names, numbers), min_size=1, max_size=6))
def test_records_side_by_side_fit(width: int, drawn: list[tuple[str, float]]) -> None:
    rows = [{"policy": name, "figure": number, "run": name} for name, number in drawn]
    lines = render(make_records(rows, "policy", width), width)
    assert all(cell_len(line) <= width for line in lines)
    assert {to_text(number) for _, number in drawn} <= {*" ".join(lines).split()}


def test_a_table_for_a_file_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    row = ["x" * 5_000, 1.5, "two words " * 100]
    print_table(["a", "number", "text"], [row])
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["a", "number", "text"]
    assert line.split() == [*row[0].split(), "1.5", *("two words " * 100).split()]


def test_a_query_has_times_in_full(here: Command, several: Path) -> None:
    asked = "SELECT TIMESTAMP '2026-01-02 03:04:05.678901' AS at"
    assert "03:04:05.678901" in here("sql", asked, "--warehouse", several).out


def test_important_columns_are_left_out_last() -> None:
    columns = [f"column_{number}" for number in range(9)]
    important = ["column_8", "column_7", "unknown"]
    head, line, *_ = render(make_table(columns, [list(range(9))], 60, important), 60)
    assert head.split() == [f"column_{number}" for number in (0, 1, 2, 3, 7, 8)]
    assert line.split() == [*"012378"]
    head, *_ = render(make_table(columns, [list(range(9))], 20, important), 20)
    assert head.split() == ["column_0", "column_8"]


@pytest.mark.parametrize("text", ["[/x]", "[link=http://x]here[/link]", "[bold]", "a\\[b]", ":+1:"])
def test_a_text_is_no_markup(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["node", text], [["one", text]])
    print_side_by_side([{"policy": text, "reason": text}], "policy")
    lines = [line.split(maxsplit=1)[-1].strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [text] * 4


def test_a_text_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a\x1b[2J"], [["one\ntwo\x1b]0;title\x07\u202e"]])
    assert capsys.readouterr().out == ("a\\x1b[2J\none\\ntwo\\x1b]0;title\\x07\\u202e\n")


NUMBERS = re.compile(r"(?<![\w./-])-?\d[\d,.]*\d(?![\w/-])")
"""Numbers of two digits or more that are words of their own."""

UNBROKEN = re.compile(r"[0-9a-f]{64}|--[a-z]|/")
"""A hash, a command or a file to copy, for which a line may be wider than the terminal."""


@pytest.mark.process
@pytest.mark.parametrize(("width", "copies"), [(80, 50), (80, 1), (120, 1)])
def test_a_table_fits_a_real_terminal_and_a_long_one_goes_to_the_pager(
    here: Command, finished: Finished, tmp_path: Path, width: int, copies: int
) -> None:
    env = outside(tmp_path) | {
        "TERM": "xterm-256color",
        "PAGER": f"tee {tmp_path / 'paged'}",
        "SHOCKWAVE_WAREHOUSE": str(finished.warehouse),
    }
    env.pop("COLUMNS", None)  # the terminal tells its width
    query = f"SELECT jobs.* FROM jobs, range({copies})"
    code, out = in_terminal([PROGRAM, "sql", query], Path.cwd(), env, columns=width)
    assert code == 0, out
    whole = here("sql", query, "--warehouse", finished.warehouse).out
    table, _, note = ESCAPES.sub("", out).partition("(")
    assert "columns left out" in note
    assert {*NUMBERS.findall(table)} <= {*NUMBERS.findall(whole)}
    lines = ESCAPES.sub("", out).splitlines()
    assert len(lines) > 2 * copies
    assert width - 20 < max(map(cell_len, lines)) <= width
    assert (tmp_path / "paged").exists() == (copies > 24)
    if copies > 24:
        paged = ESCAPES.sub("", (tmp_path / "paged").read_text())
        assert len(paged.splitlines()) > copies
        assert all(cell_len(line) <= width for line in paged.splitlines())
