from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from predictor.rows import from_row, hash_content, to_row
from warehouse.store.arrow import arrow_schema, rows_to_table, to_table


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    at: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    moment: datetime


@dataclass(frozen=True)
class Everything:
    whole: int
    real: float
    text: str
    flag: bool
    colour: Colour
    colours: tuple[Colour, ...]
    table: tuple[tuple[int, ...], ...]
    point: Point
    points: tuple[Point, ...]


INTEGERS = st.integers(-(2**63), 2**63 - 1)
REALS = st.floats(allow_nan=False)
POINTS = st.builds(Point, st.text(), st.lists(REALS, max_size=3).map(tuple))
COLOURS = st.sampled_from(Colour)
ANYTHING = st.builds(
    Everything,
    INTEGERS,
    REALS,
    st.text(),
    st.booleans(),
    COLOURS,
    st.lists(COLOURS, max_size=3).map(tuple),
    st.lists(st.lists(INTEGERS, max_size=3).map(tuple), max_size=3).map(tuple),
    POINTS,
    st.lists(POINTS, max_size=3).map(tuple),
)


def through_parquet(value: Everything) -> Everything:
    file = BytesIO()
    pq.write_table(to_table(arrow_schema(Everything), value), file)
    (row,) = pq.read_table(file).to_pylist()
    return from_row(Everything, row)


def test_the_types_of_a_dataclass_are_its_schema() -> None:
    point = pa.struct([("name", pa.string()), ("at", pa.list_(pa.float64()))])
    assert arrow_schema(Everything) == pa.schema(
        [
            ("whole", pa.int64()),
            ("real", pa.float64()),
            ("text", pa.string()),
            ("flag", pa.bool_()),
            ("colour", pa.string()),
            ("colours", pa.list_(pa.string())),
            ("table", pa.list_(pa.list_(pa.int64()))),
            ("point", point),
            ("points", pa.list_(point)),
        ]
    )


@given(ANYTHING)
def test_what_comes_out_of_parquet_is_what_went_in(value: Everything) -> None:
    again = through_parquet(value)
    assert again == value
    assert isinstance(again.colour, Colour)
    assert to_row(again) == to_row(value)


def test_a_table_can_hold_several_dataclasses_side_by_side() -> None:
    now = Moment(datetime(2026, 11, 21, 6, 30, 15, 250_001, UTC))
    schema = pa.schema([*arrow_schema(Moment), *arrow_schema(Point)])
    table = to_table(schema, now, Point("p", (1.0, 2.5)))
    assert table.to_pylist() == [{"moment": now.moment, "name": "p", "at": [1.0, 2.5]}]


def test_numbers_and_enumerations_become_plain_ones() -> None:
    plain = to_row(Point("p", (np.float64(0.5), 1)))
    assert plain == {"name": "p", "at": [0.5, 1.0]}
    assert [type(item) for item in plain["at"]] == [float, float]
    assert hash_content(to_row(Point("p", (2,)))) == hash_content(to_row(Point("p", (2.0,))))


@given(st.lists(ANYTHING, min_size=1, max_size=5))
def test_a_table_of_many_rows_is_those_of_each_row_together(rows: list[Everything]) -> None:
    schema = arrow_schema(Everything)
    together = rows_to_table(schema, rows)
    together.validate(full=True)
    assert together.to_pylist() == [to_row(row) for row in rows]
    assert together.num_rows == len(rows)
    assert together.equals(pa.concat_tables(to_table(schema, row) for row in rows))
    assert [from_row(Everything, row) for row in together.to_pylist()] == rows
