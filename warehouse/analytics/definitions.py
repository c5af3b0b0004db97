"""The views' queries, as stored in `views/staging` and `views/marts`."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

SERVICES = Path(__file__).parent / "views" / "services"

STAGING = (
    "headers",
    "commands",
    "inventories",
    "records",
    "round_facts",
    "campaign_cells",
    "jobs",
    "forecasts",
    "bids",
    "placements",
    "telemetry",
    "usage",
    "events",
    "fair_finishes",
)
"""Views that unnest and rename stored columns, in order of dependency."""

MARTS = (
    "runs",
    "rounds",
    "sharing",
    "solves",
    "prices",
    "leases",
    "preemptions",
    "job_outcomes",
    "forecast_errors",
    "adaptations",
    "envy",
    "distributions",
    "run_summary",
    "tenant_summary",
)
"""Views that define figures, from staging views and earlier marts."""

VIEWS = STAGING + MARTS

OF_ROUNDS = (
    "commands",
    "round_facts",
    "jobs",
    "forecasts",
    "placements",
    "telemetry",
    "usage",
    "events",
    "fair_finishes",
)
"""Staging views that marts read and whose every row comes from a single round."""

OF_SERVICES = ("commands", "jobs")
"""Views of what services keep in their rounds; other runs keep their jobs beside the rounds."""

_NAMES = re.compile(rf"\b({'|'.join(VIEWS)})\b", re.IGNORECASE)

_TEXT = r'"(?:[^"\\]|\\.)*"'
_KEYS = "alias|aliases|key|column_names|column_name_alias|exclude_list|using_columns"
_NO_VIEWS = re.compile(rf'"(?:{_KEYS})":(?:{_TEXT}|\[(?:{_TEXT},?)*\])')
"""Column and result names in a query that DuckDB has parsed to JSON."""


def view_sql(name: str) -> str:
    """Return the query of a view."""
    layer = "staging" if name in STAGING else "marts"
    return (Path(__file__).parent / "views" / layer / f"{name}.sql").read_text(encoding="utf-8")


def query_sql(name: str) -> str:
    """Return a query of this package that is not a view, from its file."""
    return (Path(__file__).parent / "queries" / f"{name}.sql").read_text(encoding="utf-8")


def services_sql(name: str) -> str:
    """Return the query of what services took in: `workloads` (their jobs) or `commands`."""
    return (SERVICES / f"{name}.sql").read_text(encoding="utf-8")


def find_views(connection: "duckdb.DuckDBPyConnection", asked: Sequence[str]) -> tuple[str, ...]:
    """Return the views that queries name, sorted.

    Some views share names with columns, such as `jobs`. A query that only has such a column needs
    neither the view nor its verified files. If DuckDB cannot parse a query to JSON, all names
    count.
    """
    parsed = "SELECT json_serialize_sql($1::VARCHAR)"
    found = set[str]()
    for sql in asked:
        text = (connection.execute(parsed, [sql]).fetchone() or ("",))[0]
        read = _NO_VIEWS.sub("", text) if '"statements"' in text else sql
        found |= {*map(str.lower, _NAMES.findall(read))}
    return tuple(sorted(found))


UNFAIR_RHO = float(re.findall(r"rho > ([\d.]+) AS unfair", view_sql("job_outcomes"))[0])
"""ρ above which a job is treated unfairly, as the mart `job_outcomes` defines it."""


@cache
def find_needed(names: tuple[str, ...], *, copied: bool = False) -> tuple[str, ...]:
    """Return the named views and all that they read, in the order of `VIEWS`.

    Copied marts read nothing. Without a name, as for `SHOW TABLES`, all views are returned.
    """
    found: set[str] = set()
    new = {*names}
    while new:
        found |= new
        computed = [view for view in new if not (copied and view in MARTS)]
        read = {name for view in computed for name in _reads(view_sql(view))}
        new = read - found
    return tuple(view for view in VIEWS if view in found) or VIEWS


@cache
def find_read_among(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of these views that others of them read, in order."""
    read = {*chain.from_iterable(_reads(view_sql(name)) for name in names)}
    return tuple(name for name in names if name in read)


A_ROW_A_RUN = ("headers", "inventories")
"""Staging views with one row per run: always small."""


@cache
def find_read_twice(sql: str) -> tuple[str, ...]:
    """Return the marts and small views that a query and its views read more than once, in order.

    DuckDB plans and computes a view anew for each reader.
    """
    own = _reads(sql)
    if not own:
        return ()
    read = find_needed(tuple(sorted({*own})))
    times = Counter([*own, *chain.from_iterable(_reads(view_sql(name)) for name in read)])
    return tuple(view for view in (*A_ROW_A_RUN, *MARTS) if times[view] > 1)


def _reads(sql: str) -> list[str]:
    """Return the views after FROM and JOIN, with repetitions; columns may share their names."""
    names = re.findall(r"\b(?:FROM|JOIN) (\w+)", sql, re.IGNORECASE)
    return [name for name in map(str.lower, names) if name in VIEWS]


@cache
def definitions_digest() -> str:
    """Return a hash of all views' queries and DuckDB's version."""
    given = map(services_sql, ("commands", "workloads"))
    text = version("duckdb") + "".join((*map(view_sql, VIEWS), *given))
    return hashlib.sha256(text.encode()).hexdigest()
