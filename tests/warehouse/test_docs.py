import re
from itertools import chain
from pathlib import Path

import duckdb
import pytest

from solver.bidding import UNFAIR
from tests.runs import POLICIES, ended, write
from warehouse.analytics.catalog import create_views
from warehouse.analytics.definitions import UNFAIR_RHO, VIEWS, view_sql
from warehouse.analytics.questions import Analytics
from warehouse.store.creation import make_folder

DOCS = (Path(__file__).parents[2] / "docs" / "warehouse.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", DOCS, re.MULTILINE | re.DOTALL))
EXAMPLES = re.findall(r"^```sql\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)


NAMES = {
    "VARCHAR": ("text", "texts"),
    "BOOLEAN": ("boolean", "booleans"),
    "BIGINT": ("integer", "integers"),
    "DOUBLE": ("number", "numbers"),
    "TIMESTAMP WITH TIME ZONE": ("time", "times"),
}
COUNTED = {"GPUs", "jobs", "rounds", "leases", "nodes", "epochs", "samples", "steps", "reports"}
SPANS = {"s", "ms", "GPU-hours", "GPU-seconds"}
UNITS = COUNTED | SPANS | {"bytes", "welfare", "forecasts", "1", "id", "ids"}
OTHERS = {"currency", "index", "indices", "as `metric` says"}
BY_NAME = (
    (r".*(_seconds|_s|_s_p\d+|jct_p\d+_s)|seconds", {"s", "GPU-seconds"}),
    (r".*_ms(_.*)?", {"ms"}),
    (r"gpu_hours.*", {"GPU-hours"}),
    (r".*(fraction.*|share|rho|ftf_.*|gap|utilization)", {"1", "jobs"}),
    (r"job_id|.*_job_id", {"id"}),
    (r"round|epoch|tenth", {"index"}),
    (r".*_gpus|scale_factor", {"GPUs"}),
)
"""Units of what is called so, where it is a number."""


def type_name(kind: str) -> str:
    """A type of DuckDB as the data dictionary calls it."""
    inner, many = kind.removesuffix("[]"), kind.endswith("[]")
    if inner.endswith("[]"):
        return f"list of lists{type_name(inner).removeprefix('list')}"
    one = ("struct", "structs") if inner.startswith("STRUCT") else NAMES[inner]
    return f"list of {one[1]}" if many else one[0]


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    """Columns with their types by view, of an empty warehouse."""
    folder = tmp_path_factory.mktemp("empty")
    make_folder(folder)
    with duckdb.connect() as connection:
        create_views(connection, folder)
        described = {view: connection.sql(f"DESCRIBE {view}").fetchall() for view in VIEWS}
    return {view: [(row[0], type_name(row[1])) for row in rows] for view, rows in described.items()}


@pytest.fixture(scope="module")
def analytics(tmp_path_factory: pytest.TempPathFactory) -> Analytics:
    folder = tmp_path_factory.mktemp("warehouse")
    for policy in POLICIES:
        made = ended(policy)
        write(folder, made.start, made.rounds)
    return Analytics(folder)


def test_every_view_is_documented_and_no_other() -> None:
    assert sorted(SECTIONS) == sorted(VIEWS)


Columns = dict[str, tuple[str, str]]


def table(text: str) -> Columns:
    """Type and unit by column, of all tables in the text."""
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \| \S", text, re.MULTILINE)
    return {
        name: (kind, unit)
        for names, cell in rows
        for kind, _, unit in [cell.partition(", ")]
        for name in re.findall(r"\w+", names)
    }


def documented(view: str) -> Columns:
    """Columns that the page has for a view: shared ones, those of a view it refers to, its own."""
    section = SECTIONS[view]
    others = re.findall(r"as in \[(\w+)\]\(#", section.partition("\n|")[0])
    shared = DOCS.partition("\n## Views\n")[2].partition("\n### ")[0]
    return table("\n".join([shared, *(SECTIONS[other] for other in others), section]))


@pytest.mark.parametrize("view", VIEWS)
def test_every_column_is_documented_with_its_type(
    columns: dict[str, list[tuple[str, str]]], view: str
) -> None:
    known = documented(view)
    assert [(name, known.get(name, ("",))[0]) for name, _ in columns[view]] == columns[view]
    assert table(SECTIONS[view]).keys() <= {name for name, _ in columns[view]}


@pytest.mark.parametrize("view", VIEWS)
def test_every_column_has_the_unit_of_its_kind(view: str) -> None:
    for name, (kind, unit) in documented(view).items():
        numbers = kind.removeprefix("list of ").rstrip("s") in ("integer", "number")
        if not numbers or name in ("seed", "version"):
            assert unit == "", name
            continue
        assert unit in UNITS | OTHERS, name
        for pattern, units in BY_NAME:
            if re.fullmatch(pattern, name):
                assert unit in units, name


@pytest.mark.parametrize("view", VIEWS)
def test_the_documented_grain_is_that_of_the_view(view: str) -> None:
    stated = re.search(
        r"^-- grain: (one row per (?:run|campaign)(?:, round| and \w+)?)", view_sql(view), re.M
    )
    assert stated is not None
    assert SECTIONS[view].lower().startswith(stated[1])


@pytest.mark.parametrize("sql", EXAMPLES, ids=range(1, len(EXAMPLES) + 1))
@pytest.mark.slow
def test_every_example_has_an_answer(analytics: Analytics, sql: str) -> None:
    names, rows = analytics.query(sql)
    assert len(names) > 1
    assert len(rows) > 0


def test_all_queries_have_the_margin_of_unfairness_that_bids_have() -> None:
    texts = {
        path.name: re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        for path in (Path(__file__).parents[2] / "warehouse").rglob("*.sql")
    }
    margins = {name: {*map(float, re.findall(r"> (1\.\d+)", sql))} for name, sql in texts.items()}
    assert {UNFAIR_RHO, *chain.from_iterable(margins.values())} == {UNFAIR}
    asked = {"job_outcomes.sql", "run_summary.sql", "envy.sql", "11-fairness-quantiles.sql"}
    assert {name for name, found in margins.items() if found} == asked
