"""Text and tables are read to the field, and refused to the line."""

import math
from pathlib import Path

import pytest

from predictor.errors import InputError
from warehouse.workloads.fields import Row, read_rows, read_text


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "a.csv"


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        list(read_rows(path, ["n"]))
    return str(caught.value).replace(f"{path.parent}/", "")


def test_rows_know_their_lines(table: Path) -> None:
    table.write_text('\ufeffm,n\r\n1,2\r\n\r\n"a\nb",3\r\n', encoding="utf-8")
    rows = list(read_rows(table, ["n"]))
    assert [row.place.rpartition("/")[2] for row in rows] == ["a.csv:2", "a.csv:5"]
    assert [row.values for row in rows] == [{"m": "1", "n": "2"}, {"m": "a\nb", "n": "3"}]


def test_a_byte_order_mark_is_dropped(table: Path) -> None:
    table.write_bytes(b"\xef\xbb\xbfhello")
    assert read_text(table) == "hello"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.csv:1: missing column 'n'; the header has none"),
        ("n,n\n1,2\n", "a.csv:1: column 'n' is there twice; rename one of them"),
        ("m,n\n1,2\n1,2,3\n", "a.csv:3: 3 fields instead of 2; the header has m, n"),
        ('m,n\n1,"2\n', "a.csv:2: is not CSV (unexpected end of data); correct the line"),
    ],
)
def test_a_table_that_cannot_be_read(table: Path, text: str, message: str) -> None:
    table.write_text(text)
    assert refusal(table) == message


def test_a_header_without_end_is_cut(table: Path) -> None:
    table.write_text(",".join(f"column{i}" for i in range(1_000)))
    assert len(refusal(table)) < 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "'x' is not a number; correct the field"),
        ("", "'' is not a number; correct the field"),
        ("0", "0.0 is not positive; give a positive number"),
        ("nan", "nan is not positive; give a positive number"),
        ("inf", "inf is not finite; give a positive number"),
        ("1e300", "1e+300 is too large; correct the field"),
    ],
)
def test_a_field_that_is_no_positive_number(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Row("f:1", {"n": text}).positive("n", float)
    assert str(caught.value) == f"f:1, n: {message}"


def test_a_number_need_not_be_finite() -> None:
    assert Row("f:1", {"n": "-inf"}).number("n", float) == -math.inf


@pytest.mark.parametrize("text", ["", " ", "a\nb", "a\tb", "a\u2028b"])
def test_a_field_that_is_no_name(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Row("f:1", {"n": text}).name("n")
    assert str(caught.value) == f"f:1, n: {text.strip()!r} is not a name; give printable text"
