"""The list of runs: headline figures, names and tags, filtered and sorted."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from predictor.errors import InputError, meant
from warehouse.analytics.definitions import query_sql, view_sql
from warehouse.analytics.intervals import Interval, interval_of
from warehouse.analytics.questions import Analytics
from warehouse.analytics.sources import quote_all
from warehouse.store.labels import Label, read_labels

FIGURES = ("makespan_s", "mean_jct_s", "jct_p99_s", "worst_rho", "unfair_fraction", "utilization")
"""Figures in the list."""

COLUMNS = (
    *("run", "name", "tags", "policy", "trace", "gpus", "jobs", "seed", "complete", "same"),
    *(*FIGURES, "created_at", "workload"),
)
"""Columns of the list."""

OF_JOBS = (
    *("mean_jct_s", "jct_p50_s", "jct_p95_s", "jct_p99_s", "mean_queueing_s", "worst_rho"),
    "unfair_fraction",
)
"""Figures that can be restricted to some jobs of each run."""

OF_RUNS = ("seed", "created_at", "first_hash", "workload", "same")
"""Columns besides those of `run_summary` that conditions and orders may use."""

EXAMPLES = {"where": "makespan_s < 30000", "sort": "jct_p99_s DESC", "of_jobs": "scale_factor = 4"}
"""Examples of conditions and orders, for error messages."""

CALLED = {"gpus": "scale_factor", "gpu": "scale_factor", "size": "scale_factor"}
"""Columns of jobs, by the names that users give them."""

SETTINGS = (
    *("parameters", "forecasts", "fidelity", "asked_backend", "round_seconds", "restart_seconds"),
    "window_rounds",
)
"""Settings of a run besides policy, jobs, GPUs and seed."""

NEWEST = "created_at DESC, run DESC"


@dataclass(frozen=True)
class Selection:
    """Selection and order of listed runs.

    Attributes:
        tags: List only runs with all of these tags.
        where: A condition over the columns of `run_summary` and `OF_RUNS` (SQL).
        sort: A column or expression over these, with `DESC` for the largest first; by default, the
            newest run comes first.
        of_jobs: A condition over the columns of `job_outcomes` (SQL) that restricts the figures
            `OF_JOBS` and `jobs` to matching jobs.
        like: List only runs of the same jobs on as many GPUs as this run.
        identical: List each of several identical runs, not only the newest.
        campaign: List only runs of this campaign's cells.
        means: List rows for means over runs: ended runs only, one of identical runs whatever its
            label, with a column `settings`, the text of `SETTINGS`.
    """

    policy: str | None = None
    tags: Collection[str] = ()
    where: str | None = None
    sort: str | None = None
    limit: int | None = None
    of_jobs: str | None = None
    like: str | None = None
    identical: bool = False
    campaign: str | None = None
    means: bool = False


def list_runs(analytics: Analytics, asked: Selection) -> list[dict[str, Any]]:
    """Return the selected runs, a row each with `COLUMNS`, or with the columns for `of_jobs`.

    Identical runs, with equal first and last hashes, share a row, and `same` counts them. Runs with
    a name, a tag or a note, and runs of the selected campaign, keep their own rows unless `means`.

    Raises:
        InputError: A condition or the order is wrong, or there is no warehouse or campaign.
        WarehouseError: A file is damaged.
    """
    labels = read_labels(analytics.warehouse)
    only = list[set[str]]()
    apart = {*labels}
    if asked.tags:
        only.append({run for run, label in labels.items() if {*asked.tags} <= {*label.tags}})
    if asked.campaign is not None:
        from warehouse.store.campaigns import read_cells  # 0.2 s of imports

        only.append({cell.run for cell in read_cells(analytics.warehouse, asked.campaign)} - {""})
        apart |= only[-1]
    try:
        columns, rows = analytics.query(_query(asked, only, set() if asked.means else apart))
    except InputError as error:
        given = {name: getattr(asked, name) or "" for name in ("where", "sort", "of_jobs")}
        raise _of_option(analytics, given, error) from None
    return [add_label(dict(zip(columns, row, strict=True)), labels) for row in rows]


def explain_unknown(analytics: Analytics, asked: Selection) -> list[str]:
    """Explain which requested policy and tags no run has, with those that runs have.

    Raises:
        InputError: There is no warehouse.
        WarehouseError: A file is damaged.
    """
    policies = analytics.query("SELECT DISTINCT policy FROM runs ORDER BY policy")[1]
    labels = read_labels(analytics.warehouse).values()
    known = {
        "policy": [policy for (policy,) in policies],
        "tag": sorted({tag for label in labels for tag in label.tags}),
    }
    given = [("policy", text) for text in [asked.policy] if text is not None]
    return [
        f"no run has the {what} {text!r}; {meant(text, known[what] or ['none'])}"
        for what, text in [*given, *(("tag", text) for text in asked.tags)]
        if text not in known[what]
    ]


def average_by_policy(
    rows: Iterable[Mapping[str, Any]], asked: Selection
) -> dict[str, dict[str, Interval | None]]:
    """Return the means over the runs of each policy, by policy and figure.

    Args:
        rows: The rows of `list_runs` for `asked`, in any order.
        asked: Their selection. `sort` names a figure, with `DESC` for the largest mean first; by
            default, policies keep the order of the rows.

    Raises:
        InputError: There is no such figure.
    """
    names = ("jobs", *(FIGURES if asked.of_jobs is None else OF_JOBS))
    figure, down = re.subn(r"(?i)\s+desc$", "", (asked.sort or "").strip())
    if asked.sort and figure not in names:
        raise InputError(
            "sort", f"{asked.sort!r} is not a figure to sort policies by", meant(figure, names)
        )
    of: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        of.setdefault(row["policy"], []).append(row)
    means = {
        policy: {name: interval_of(row[name] for row in of[policy]) for name in names}
        for policy in of
    }
    if not asked.sort:
        return means

    def place(policy: str) -> float:
        found = means[policy][figure]
        return math.inf if found is None else -found.mean if down else found.mean

    return {policy: means[policy] for policy in sorted(means, key=place)}


def list_campaigns(analytics: Analytics) -> list[dict[str, Any]]:
    """Return a warehouse's campaigns with their contents and progress, the newest first.

    Raises:
        InputError: There is no warehouse.
        WarehouseError: A file is damaged.
    """
    columns, rows = analytics.query(query_sql("campaigns"))
    return [dict(zip(columns, row, strict=True)) for row in rows]


def figures_of_jobs(
    analytics: Analytics, runs: Sequence[str], only: str
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return columns and rows of `run`, `jobs` and the figures `OF_JOBS` over matching jobs.

    `only` is a condition over the columns of `job_outcomes` (SQL). Runs without a matching job are
    left out.

    Raises:
        InputError: The condition is wrong.
        WarehouseError: A file is damaged.
    """
    shadow, figures = _of_jobs(only)
    asked = f"WITH {shadow} SELECT run, jobs, {', '.join(OF_JOBS)} FROM {figures}"
    try:
        return analytics.query(asked, runs)
    except InputError as error:
        raise _of_option(analytics, {"of_jobs": only}, error) from None


def _of_jobs(text: str) -> tuple[str, str]:
    """Return a replacement of `job_outcomes` with some jobs only, and the view to read (SQL).

    `run_summary` still defines the figures, but reads only these jobs.
    """
    only = _condition("of_jobs", text)
    counts = "(SELECT run, count(*) AS jobs FROM job_outcomes GROUP BY run)"
    return f"job_outcomes AS (SELECT * FROM main.job_outcomes WHERE {only})", (
        f"(SELECT s.* REPLACE (c.jobs AS jobs) FROM ({view_sql('run_summary')}) AS s "
        f"JOIN {counts} AS c USING (run))"
    )


def _of_option(analytics: Analytics, given: Mapping[str, str], error: InputError) -> InputError:
    """Attribute a query's error to the condition or order that caused it."""
    if error.place != "query" or not any(given.values()):
        return error
    found = re.search(r'column "([^"]*)" not found', error.problem)
    if found is None:
        field = next(name for name, text in given.items() if text)
        return InputError(field, error.problem, f"give one such as {EXAMPLES[field]}")
    missing = found[1]
    views = analytics.queries(("DESCRIBE run_summary", "DESCRIBE job_outcomes"))
    of_runs, of_jobs = ([name for name, *_ in rows] for _, rows in views)
    known = {"where": [*of_runs, *OF_RUNS], "sort": [*of_runs, *OF_RUNS], "of_jobs": of_jobs}
    lacking = [name for name, text in given.items() if missing in text]
    field = next((name for name in lacking if missing not in known[name]), "where")
    text = CALLED.get(missing, missing) if field == "of_jobs" else missing
    return InputError(field, f"there is no column {missing!r}", meant(text, known[field]))


def add_label(row: dict[str, Any], labels: Mapping[str, Label]) -> dict[str, Any]:
    """Return a run's row with its name and tags after its id."""
    label = labels.get(row["run"], Label())
    return {"run": row.pop("run"), "name": label.name, "tags": " ".join(label.tags)} | row


def _query(asked: Selection, only: Sequence[Collection[str]], apart: Collection[str]) -> str:
    """Return the query of the runs in all of `only`; identical runs in `apart` keep their rows."""
    conditions = ["complete" if asked.means else "true"]
    if asked.policy is not None:
        conditions.append(f"policy = {quote_all([asked.policy])}")
    conditions += [f"run IN ({_in(runs)})" for runs in only]
    if asked.like is not None:
        same = f"SELECT workload, gpus FROM runs WHERE run = {quote_all([asked.like])}"
        conditions.append(f"(workload, gpus) IN ({same})")
    if asked.where is not None:
        conditions.append(_condition("where", asked.where))
    columns = [name for name in COLUMNS if name not in ("name", "tags")]
    figures, shadow = "run_summary", ""
    if asked.of_jobs is not None:
        shadow, figures = _of_jobs(asked.of_jobs)
        shadow += ","
        columns = ["run", "policy", "trace", "gpus", "jobs", "seed", "same", *OF_JOBS, "workload"]
    if asked.means:
        columns.append("settings")
    first = "PARTITION BY CASE WHEN complete THEN first_hash || last_hash ELSE run END"
    once = (
        ""
        if asked.identical
        else (f"QUALIFY run IN ({_in(apart)}) OR row_number() OVER ({first} ORDER BY {NEWEST}) = 1")
    )
    limit = "" if asked.limit is None else f"LIMIT {asked.limit}"
    order = _order(asked.sort) if asked.sort else NEWEST
    return f"""
WITH {shadow} figures AS (
    SELECT s.*, r.* EXCLUDE (run), count(*) OVER ({first}) AS same
    FROM {figures} AS s
    JOIN (
        SELECT run, seed, created_at, first_hash, workload, row({", ".join(SETTINGS)})::VARCHAR
            AS settings
        FROM runs
    ) AS r USING (run)
)
SELECT {", ".join(columns)} FROM figures
WHERE {" AND ".join(conditions)}
{once}
ORDER BY {order}
{limit}
"""


def _in(runs: Collection[str]) -> str:
    """Return runs as an SQL list; an empty list is no SQL, so it gets a placeholder."""
    return quote_all(sorted(runs)) or "''"


def _condition(field: str, text: str) -> str:
    """Return a condition in parentheses, after checking that it is a single expression."""
    inside = f"({text}\n)"  # the line break ends a trailing comment
    _check(field, text, f"SELECT 1 WHERE {text}", f"SELECT 1 WHERE {inside}")
    return inside


def _order(text: str) -> str:
    """Return the ORDER BY terms: this text, then the newest first."""
    order = f"{text}\n, {NEWEST}"
    _check("sort", text, f"SELECT 1 ORDER BY {text}", f"SELECT 1 ORDER BY {order}")
    return order


def _check(field: str, text: str, *queries: str) -> None:
    """Refuse a text unless each of these queries is valid with it."""
    remedy = f"give one such as {EXAMPLES[field]}"
    if not text.strip():
        raise InputError(field, "is empty", remedy)
    try:
        single = all(len(duckdb.extract_statements(query)) == 1 for query in queries)
    except duckdb.Error:
        single = False
    if not single:
        raise InputError(field, f"{text!r} is not an expression", remedy)
