"""The list of runs: their headline figures, with names and tags, filtered and sorted."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from predictor.errors import InputError, meant
from warehouse.analytics.definitions import view_sql
from warehouse.analytics.intervals import Interval, interval_of
from warehouse.analytics.questions import Analytics
from warehouse.analytics.sources import listed
from warehouse.store.checks import check_warehouse
from warehouse.store.labels import Label, read_labels

FIGURES = ("makespan_s", "mean_jct_s", "jct_p99_s", "worst_ftf", "unfair_fraction", "utilization")
"""Figures of the list."""

COLUMNS = (
    *("run", "name", "tags", "policy", "trace", "gpus", "jobs", "seed", "complete", "same"),
    *(*FIGURES, "created_at", "workload"),
)
"""Columns of the list."""

OF_JOBS = (
    *("mean_jct_s", "jct_p50_s", "jct_p95_s", "jct_p99_s", "mean_queueing_s", "worst_ftf"),
    "unfair_fraction",
)
"""Figures that can be computed over a part of the jobs of each run."""

OF_RUNS = ("seed", "created_at", "first_hash", "workload", "same")
"""Further columns, beside those of `run_summary`, for conditions and the order."""

EXAMPLES = {"where": "makespan_s < 30000", "sort": "jct_p99_s DESC", "of_jobs": "scale_factor = 4"}
"""Examples of conditions and an order."""

CALLED = {"gpus": "scale_factor", "gpu": "scale_factor", "size": "scale_factor"}
"""Columns of jobs by the names that the same figures have in runs."""

SETTINGS = (
    *("parameters", "forecasts", "fidelity", "asked_backend", "round_seconds", "restart_seconds"),
    "window_rounds",
)
"""Settings of a run beside policy, jobs, GPUs and seed."""

NEWEST = "created_at DESC, run DESC"

CAMPAIGNS = """
SELECT
    campaign,
    count(*) AS cells,
    count(*) FILTER (WHERE status = 'finished') AS finished,
    count(*) FILTER (WHERE status = 'failed') AS failed,
    string_agg(DISTINCT policy, ' ' ORDER BY policy) AS policies,
    count(DISTINCT workload) AS workloads,
    count(DISTINCT cluster) AS clusters,
    count(DISTINCT options) AS variants,
    count(DISTINCT seed) AS seeds,
    max(created_at) AS newest_run
FROM (SELECT * FROM campaign_cells) AS c
LEFT JOIN (SELECT run, created_at FROM runs) AS r USING (run)
GROUP BY campaign
ORDER BY newest_run DESC NULLS LAST, campaign
"""
"""The list of campaigns."""


@dataclass(frozen=True)
class Selection:
    """Selection and order of the listed runs.

    Attributes:
        policy: Runs of this policy only.
        tags: Runs with all of these tags only.
        where: A condition over the columns of `run_summary` and `OF_RUNS` (SQL).
        sort: A column or expression of these, `DESC` after it for the largest first; the newest
            first by default.
        limit: Most runs listed.
        of_jobs: A condition over the columns of `job_outcomes` (SQL): the figures `OF_JOBS` and
            `jobs` are of the jobs that meet it.
        like: Runs of the same jobs on as many GPUs as this one only.
        identical: Whether to list each of several identical runs, and not the newest only.
        campaign: Runs of the cells of this campaign only.
        means: Whether means are taken over the runs: only ended runs are listed, one of several
            identical runs whatever its label, with a column `settings`, a text of `SETTINGS`.
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
    """The runs of a warehouse, a row each with `COLUMNS`, or with those of `of_jobs`.

    Identical runs, with the same first and last hash, share a row; `same` is their number. Runs
    with a name, a tag or a note, and runs of the selected campaign, always have a row of their own
    unless means are taken.

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
    return [labelled(dict(zip(columns, row, strict=True)), labels) for row in rows]


def unknown(analytics: Analytics, asked: Selection) -> list[str]:
    """The policy and tags asked for that no run has, each with those that runs have.

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


def by_policy(
    rows: Iterable[Mapping[str, Any]], asked: Selection
) -> dict[str, dict[str, Interval | None]]:
    """Means over the runs of each policy, by policy and figure.

    Args:
        rows: The rows of `list_runs` for `asked`, in any order.
        asked: Their selection. `sort` is a figure, with `DESC` after it for the largest mean
            first; by default policies are in the order of the rows.

    Raises:
        InputError: There is no such figure.
    """
    names = ("jobs", *(FIGURES if asked.of_jobs is None else OF_JOBS))
    figure, down = re.subn(r"(?i)\s+desc$", "", (asked.sort or "").strip())
    if asked.sort and figure not in names:
        raise InputError("sort", f"{asked.sort!r} is no figure of policies", meant(figure, names))
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
    """The campaigns of a warehouse with their contents and progress, the newest first.

    Raises:
        InputError: There is no warehouse.
        WarehouseError: A file is damaged.
    """
    check_warehouse(analytics.warehouse)
    if not any(analytics.warehouse.glob("campaigns/*/cells.parquet")):  # of an earlier version
        return []
    columns, rows = analytics.query(CAMPAIGNS)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def figures_of_jobs(
    analytics: Analytics, runs: Sequence[str], only: str
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Number of some jobs of each run, and the figures `OF_JOBS` of them.

    Args:
        analytics: The warehouse.
        runs: The runs; those without such a job are left out.
        only: A condition over the columns of `job_outcomes` (SQL).

    Returns:
        Columns, `run` and `jobs` first, and rows.

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
    """SQL for figures of some jobs: a replacement of `job_outcomes`, and the view to read.

    The figures stay defined in `run_summary`, which then reads these jobs only.
    """
    only = _condition("of_jobs", text)
    counts = "(SELECT run, count(*) AS jobs FROM job_outcomes GROUP BY run)"
    return f"job_outcomes AS (SELECT * FROM main.job_outcomes WHERE {only})", (
        f"(SELECT s.* REPLACE (c.jobs AS jobs) FROM ({view_sql('run_summary')}) AS s "
        f"JOIN {counts} AS c USING (run))"
    )


def _of_option(analytics: Analytics, given: Mapping[str, str], error: InputError) -> InputError:
    """The error of a query, as one of the condition or the order that caused it."""
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


def labelled(row: dict[str, Any], labels: Mapping[str, Label]) -> dict[str, Any]:
    """A run's row, with its name and tags behind its id."""
    label = labels.get(row["run"], Label())
    return {"run": row.pop("run"), "name": label.name, "tags": " ".join(label.tags)} | row


def _query(asked: Selection, only: Sequence[Collection[str]], apart: Collection[str]) -> str:
    """The query of a list of the runs in all of `only`; identical runs `apart` have a row each."""
    conditions = ["complete" if asked.means else "true"]
    if asked.policy is not None:
        conditions.append(f"policy = {listed([asked.policy])}")
    conditions += [f"run IN ({_in(runs)})" for runs in only]
    if asked.like is not None:
        same = f"SELECT workload, gpus FROM runs WHERE run = {listed([asked.like])}"
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
    """Runs as a list of SQL, which cannot be empty."""
    return listed(sorted(runs)) or "''"


def _condition(field: str, text: str) -> str:
    """A condition in parentheses, checked to be a single one that keeps the query around it."""
    inside = f"({text}\n)"  # whatever comment it ends with
    _check(field, text, f"SELECT 1 WHERE {text}", f"SELECT 1 WHERE {inside}")
    return inside


def _order(text: str) -> str:
    """The order of rows: by this text, then the newest first."""
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
        raise InputError(field, f"{text!r} is no expression", remedy)
