"""Tables on terminals of any width: no number is broken, no text is markup or steers it."""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from flows.cli.output import print_side_by_side, print_table
from flows.cli.tables import shown, side_by_side, table
from harness.up import outside
from tests.flows.conftest import Command, Finished
from tests.newcomer import in_terminal
from tests.strategies import examples

WIDTHS = (80, 120)
STORED = Path(__file__).parent / "terminals"
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
RUN_DIGITS = re.compile(r"-[0-9a-f]{6}-(?=\d)")

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


def assert_sound(text: str, everything: str, width: int) -> None:
    """Every line fits, and every word of it is one of the whole output's."""
    lines = text.splitlines()
    assert all(cell_len(line) <= width for line in lines), text
    assert {*text.split()} <= {*everything.split()} | {"less", "-S)", "|"} | {*_note(text)}
    narrow = [len(line.strip()) == 1 for line in lines]
    assert not any(a and b for a, b in pairwise(narrow)), text


def _note(text: str) -> list[str]:
    """The words of the note that says which columns were left out."""
    return (re.findall(r"^\(\d+ columns? left out.*", text, re.DOTALL | re.MULTILINE) or [""])[
        0
    ].split()


@examples(40)
@given(tables(), st.integers(40, 220))
def test_no_number_is_broken_and_nothing_is_left_out_unsaid(
    drawn: tuple[list[str], list[list[object]]], width: int
) -> None:
    columns, rows = drawn
    lines = [text for text, _ in table(columns, rows, width)]
    assert all(cell_len(line) <= width and line.isprintable() for line in lines)
    text = "\n".join(lines)
    left_out = {name.rstrip(",;") for name in _note(text)} & {*columns}
    assert {*columns} <= {*text.replace(",", " ").replace(";", " ").split()}
    shown_words = {*text.split()}
    for row in rows:
        for name, value in zip(columns, row, strict=True):
            if name not in left_out and isinstance(value, int | float | Decimal):
                assert shown(value) in shown_words
    assert len(left_out) <= len(columns) - len(left_out)


@given(st.integers(40, 220), st.lists(st.tuples(names, numbers), min_size=1, max_size=6))
def test_records_side_by_side_fit(width: int, drawn: list[tuple[str, float]]) -> None:
    rows = [{"policy": name, "figure": number, "run": name * 2} for name, number in drawn]
    text = [line for line, _ in side_by_side(rows, "policy", width)]
    assert all(cell_len(line) <= width for line in text)
    assert {shown(number) for _, number in drawn} <= {*" ".join(text).split()}


def test_a_table_for_a_file_is_never_narrowed() -> None:
    row = ["x" * 5_000, 1.5, "two words " * 100]
    (head, _), (line, _) = table(["a", "number", "text"], [row], None)
    assert head.split() == ["a", "number", "text"]
    assert line.split() == [*row[0].split(), "1.5", *("two words " * 100).split()]


def test_a_query_has_times_in_full(here: Command, several: Path) -> None:
    asked = "SELECT TIMESTAMP '2026-01-02 03:04:05.678901' AS at"
    assert "03:04:05.678901" in here("sql", asked, "--warehouse", several).out


def test_few_rows_lose_no_column() -> None:
    columns = [f"column_{number}" for number in range(30)]
    lines = [text.split() for text, _ in table(columns, [list(range(30))] * 2, 60)]
    block = [[name, str(number)] for number, name in enumerate(columns)]
    assert lines == [*block, [], *block]


def test_what_was_asked_for_is_left_out_last() -> None:
    columns = [f"column_{number}" for number in range(9)]
    asked = ["column_8", "column_7", "unknown"]
    (head, _), *lines = table(columns, [list(range(9))] * 2, 60, few=0, asked=asked)
    assert head.split() == [f"column_{number}" for number in (0, 1, 2, 3, 7, 8)]
    assert [text.split() for text, _ in lines[:2]] == [[*"012378"]] * 2
    (head, _), *_ = table(columns, [list(range(9))], 20, few=0, asked=asked)
    assert head.split() == ["column_0", "column_8"]
    (head, _), *_ = table(columns, [list(range(9))], 20, few=0, asked=["column_0", *asked])
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


WIDE = """SELECT 'shockwave-7b7c5d-' || i AS run, i AS job_id, 'default' AS tenant,
    12345.678 * (i + 1) AS makespan_s, i / 7 AS worst_ftf, 0 AS unfair_fraction,
    10 ** (3 * i) AS nash_welfare, i * 1000000::BIGINT AS preemptions, 0.5::DECIMAL(5, 3) AS share,
    'one two three four five six seven eight nine ten eleven' AS reason, true AS complete,
    [i, i * i, 0.25] AS prices, 4 AS gpus_of_the_largest_gang FROM range(6) AS t(i), headers"""

QUESTIONS = {
    "wide": f'sql "{" ".join(WIDE.split())}"',
    "worst-jobs": "sql --recipe worst-jobs",
    "summary": 'sql "SELECT * EXCLUDE (last_hash) FROM run_summary"',
    "policies": "policies",
    "why": "why 1",
}
NUMBERS = re.compile(r"(?<![\w./-])-?\d[\d,.]*\d(?![\w/-])")
"""Numbers of two digits or more that are words of their own."""

EXACT = ("wide", "worst-jobs")
"""Commands whose whole output is stored."""


UNBROKEN = re.compile(r"[0-9a-f]{64}|--[a-z]|/")
"""In a line that is wider than a narrow terminal: a hash, a command or a file to be copied."""


def on_terminals(
    widths: Sequence[int], commands: Mapping[str, str], warehouse: Path, home: Path
) -> dict[tuple[str, int], str]:
    """What commands print on terminals, by command and width; with colour it is the same."""
    script = Path(__file__).with_name("on_terminals.py")
    env = outside(home) | {
        "TERM": "xterm-256color",
        "PAGER": f"tee {home / 'paged'}",
        "SHOCKWAVE_WAREHOUSE": str(warehouse),
    }
    env.pop("COLUMNS", None)
    asked = [sys.executable, script, ",".join(map(str, widths)), *commands.values()]
    code, out = in_terminal(asked, Path.cwd(), env)
    assert code == 0, out
    _, *parts = out.replace("\r\n", "\n").split("\0")
    seen: dict[tuple[str, int], str] = {}
    for width, colour, rest in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        number, _, text = rest.partition("\n")
        assert colour == "colour" or not re.search(r"\x1b\[[349]\d", text)
        command, text = [*commands][int(number)], ESCAPES.sub("", text)
        assert seen.setdefault((command, int(width)), text) == text, "colour changes the layout"
    return seen


@pytest.mark.process
def test_tables_on_real_terminals(
    here: Command, finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = on_terminals(WIDTHS, QUESTIONS, finished.warehouse, tmp_path)
    paged = (tmp_path / "paged").read_text()
    assert len(paged.splitlines()) > 24
    assert ESCAPES.sub("", paged).splitlines()[0] in "".join(seen.values())
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(finished.warehouse))
    everything = {
        question: here(*shlex.split(command)).out for question, command in QUESTIONS.items()
    }
    for (question, width), text in seen.items():
        assert_sound(text, everything[question], width)
    for question in EXACT:
        shown_at = "".join(f"== {width} columns\n{seen[question, width]}" for width in WIDTHS)
        shown_at = RUN_DIGITS.sub("-000000-", shown_at)
        stored = STORED / f"{question}.txt"
        if os.environ.get("STORE"):
            stored.write_text(shown_at, encoding="utf-8")
        assert shown_at == stored.read_text(encoding="utf-8")
