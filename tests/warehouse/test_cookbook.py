"""The cookbook: every recipe has an answer, and it agrees with the records."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from containers.runtime import EventKind
from predictor.errors import InputError
from solver.inventory import Pool
from tasks.record import Parameter
from tests.runs import POLICIES, POOLS, Made, ended, make, mixed, write
from warehouse.analytics.catalog import build
from warehouse.analytics.definitions import find_views
from warehouse.analytics.marts import materialise
from warehouse.analytics.questions import Analytics
from warehouse.analytics.recipes import recipes
from warehouse.report.matrix import draw_types

pytestmark = pytest.mark.slow

DOCS = (Path(__file__).parents[2] / "docs" / "cookbook.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| `([\w-]+)` \| (.*?) \| (\w+) \| (.*?) \|$", DOCS, re.MULTILINE)
OF_TYPES = "lost-by-type"
"""Has no rows of a run on a single GPU type."""
Typed = tuple[Made, Analytics, str]
"""A run in a market of GPU types, in a warehouse of its own, and its name."""


@pytest.fixture(scope="module")
def made() -> dict[str, Made]:
    return {policy: ended(policy) for policy in POLICIES}


@pytest.fixture(scope="module")
def runs(made: dict[str, Made], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("warehouse")
    names = {policy: write(folder, run.start, run.rounds) for policy, run in made.items()}
    return names | {"": str(folder)}


@pytest.fixture(scope="module")
def analytics(runs: dict[str, str]) -> Analytics:
    return Analytics(Path(runs[""]))


@pytest.fixture(scope="module")
def answered(analytics: Analytics, runs: dict[str, str]) -> dict[str, Any]:
    """Columns and rows of every recipe, before anything is copied."""
    return answers(analytics, runs)


def answers(analytics: Analytics, runs: dict[str, str]) -> dict[str, Any]:
    """All answers, but for the last digits of sums, whose order is not given."""
    found: dict[str, Any] = {}
    for recipe in recipes():
        run = runs["themis" if recipe.name == "most-preempted" else "shockwave"]
        columns, rows = analytics.recipe(recipe.name, run if recipe.of_one_run else None)
        found[recipe.name] = (
            columns,
            [
                [round(value, 9) if isinstance(value, float) else value for value in row]
                for row in rows
            ],
        )
    return found


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Typed:
    made, folder = make(mixed("shockwave", jobs=24)), tmp_path_factory.mktemp("typed")
    return made, Analytics(folder), write(folder, made.start, made.rounds)


def rows_of(
    analytics: Analytics, name: str, run: str | None = None, job: int | None = None
) -> list[dict[str, Any]]:
    columns, rows = analytics.recipe(name, run, job)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def test_the_page_has_every_recipe_as_it_is(answered: dict[str, Any]) -> None:
    expected = []
    for recipe in recipes():
        columns, _ = answered[recipe.name]
        listed = ", ".join(f"`{name}`" for name in columns)
        asked = recipe.question + " (one run)" * recipe.of_one_run
        expected.append((recipe.name, asked, recipe.asked_by, listed))
    assert expected == LINES


@pytest.mark.parametrize(
    "recipe", [recipe for recipe in recipes() if recipe.name != OF_TYPES], ids=lambda r: r.name
)
def test_every_recipe_has_an_answer_in_order(answered: dict[str, Any], recipe: Any) -> None:
    columns, rows = answered[recipe.name]
    assert len(columns) > 2
    assert len(rows) > 0
    assert "ORDER BY" in recipe.sql
    with duckdb.connect() as connection:
        assert find_views(connection, [recipe.sql])
    assert any(value is not None for row in rows for value in row)


def test_copies_change_no_answer(
    analytics: Analytics, runs: dict[str, str], answered: dict[str, Any]
) -> None:
    materialise(analytics.warehouse)
    assert answers(analytics, runs) == answered


def test_an_empty_warehouse_has_empty_answers(tmp_path: Path) -> None:
    build(tmp_path)
    analytics = Analytics(tmp_path)
    for _, rows in analytics.queries([recipe.sql for recipe in recipes()]):  # of the run NULL
        assert rows == []
    for of_one_run in (True, False):
        name = next(recipe.name for recipe in recipes() if recipe.of_one_run == of_one_run)
        assert analytics.recipe(name)[1] == []


@pytest.mark.parametrize(
    ("name", "run", "problem"), [("nonsense", None, "no 'nonsense'"), ("gpu-time", "x", "not in")]
)
def test_what_is_not_there_is_refused(
    analytics: Analytics, name: str, run: str | None, problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        analytics.recipe(name, run)


# Answers, from the records


def test_gang_sizes(analytics: Analytics, made: dict[str, Made]) -> None:
    seconds: Counter[int] = Counter()
    for run in made.values():
        since: dict[int, float] = {}
        for record in run.records:
            for event in (*record.finished, *record.events):
                if event.kind in (EventKind.PREEMPTED, EventKind.FINISHED):
                    held = event.at_seconds - since.pop(event.job_id)
                    seconds[len(event.gpus)] += held * len(event.gpus)
                elif event.kind is not EventKind.RENEWED:
                    since[event.job_id] = event.at_seconds
        assert since == {}
    rows = rows_of(analytics, "gang-sizes")
    assert [(row["scale_factor"], row["gpu_hours"], row["share"]) for row in rows] == [
        (size, pytest.approx(part / 3600), pytest.approx(part / sum(seconds.values())))
        for size, part in sorted(seconds.items())
    ]


def test_most_preempted(analytics: Analytics, made: dict[str, Made], runs: dict[str, str]) -> None:
    lost = Counter(
        (runs["themis"], event.job_id)
        for record in made["themis"].records
        for event in record.events
        if event.kind is EventKind.PREEMPTED
    )
    rows = rows_of(analytics, "most-preempted", runs["themis"])
    assert [row["preemptions"] for row in rows] == sorted(lost.values(), reverse=True)[:20]
    assert all(lost[row["run"], row["job_id"]] == row["preemptions"] for row in rows)


def test_who_preempts_whom(analytics: Analytics, made: dict[str, Made]) -> None:
    expected = Counter(
        policy
        for policy, run in made.items()
        for record in run.records
        for event in record.events
        if event.kind is EventKind.PREEMPTED
        and any(
            set(other.gpus) & set(event.gpus)
            for other in record.events
            if other.kind is not EventKind.PREEMPTED and other.job_id != event.job_id
        )
    )
    rows = rows_of(analytics, "who-preempts-whom")
    assert {row["policy"]: row["preemptions"] for row in rows} == expected


def test_life_of_a_job(analytics: Analytics, made: dict[str, Made], runs: dict[str, str]) -> None:
    records = made["srtf"].records
    for job in (0, 3):
        events = [
            (event.at_seconds, str(event.kind), list(event.gpus))
            for record in records
            for event in (*record.finished, *record.events)
            if event.job_id == job
        ]
        rows = rows_of(analytics, "life-of-a-job", runs["srtf"], job)
        assert [(row["at_seconds"], row["kind"], row["gpus"]) for row in rows] == events
    worst = rows_of(analytics, "worst-jobs", runs["srtf"])[0]["job_id"]
    assert rows_of(analytics, "life-of-a-job", runs["srtf"])[0]["job_id"] == worst


def test_why_it_waited(analytics: Analytics, made: dict[str, Made], runs: dict[str, str]) -> None:
    for job in made["shockwave"].specs:
        active, waited = False, []
        for record in made["shockwave"].records:
            active |= job in record.arrivals
            active &= all(event.job_id != job.job_id for event in record.finished)
            if active and all(launch.job_id != job.job_id for launch in record.leases):
                waited.append(record.round)
        rows = rows_of(analytics, "why-it-waited", runs["shockwave"], job.job_id)
        assert [row["round"] for row in rows] == waited
        assert all(row["weight"] is not None for row in rows)


def test_policies_compared(analytics: Analytics, made: dict[str, Made]) -> None:
    ends = {policy: run.records[-1].clock_seconds for policy, run in made.items()}
    for row in rows_of(analytics, "policies-compared"):
        assert row["makespan_s"] == ends[row["policy"]]
        assert row["makespan_over_best"] == pytest.approx(row["makespan_s"] / min(ends.values()))


def test_policies_are_compared_on_the_same_pools_only(tmp_path: Path) -> None:
    equal = (Pool("v100", 10, 2),)  # as many GPUs as the pools of types
    for policy, pools in (("srtf", POOLS), ("fifo", POOLS), ("srtf", equal)):
        run = make(mixed(policy, jobs=3, pools=pools))
        write(tmp_path, run.start, run.rounds)
    rows = rows_of(Analytics(tmp_path), "policies-compared")
    assert len({(row["trace"], row["gpus"]) for row in rows}) == 1
    types = "v100:1x2,p100:2x2,k80:4x1"
    assert Counter(row["pools"] for row in rows) == {types: 2, "v100:5x2": 1}
    for pools in (types, "v100:5x2"):
        of_these = [row for row in rows if row["pools"] == pools]
        best = min(row["makespan_s"] for row in of_these)
        for row in of_these:
            assert row["makespan_over_best"] == pytest.approx(row["makespan_s"] / best)
        assert min(row["jct_over_best"] for row in of_these) == 1.0


def test_gpu_time_adds_up(analytics: Analytics) -> None:
    rows = rows_of(analytics, "gpu-time")
    assert len(rows) == len(POLICIES)
    for row in rows:
        parts = ("trained_hours", "restarting_hours", "idle_hours", "unleased_hours")
        assert sum(row[part] for part in parts) == pytest.approx(row["gpu_hours"])


def test_prices_by_hour(analytics: Analytics, made: dict[str, Made], runs: dict[str, str]) -> None:
    prices: dict[int, list[float]] = {}
    for record in made["shockwave"].records:
        if record.bids:
            (cleared,) = record.solve.prices
            prices.setdefault(int(record.clock_seconds // 3600), []).append(cleared.price)
    rows = rows_of(analytics, "prices-by-hour", runs["shockwave"])
    assert [row["hour"] for row in rows] == sorted(prices)
    assert [row["highest_price"] for row in rows] == [max(prices[hour]) for hour in sorted(prices)]


def test_identical_runs(analytics: Analytics, runs: dict[str, str], made: dict[str, Made]) -> None:
    again = write(analytics.warehouse, made["srtf"].start, made["srtf"].rounds)
    rows = rows_of(analytics, "identical-runs")
    assert rows[0]["names"] == [runs["srtf"], again]
    assert (rows[0]["runs"], rows[0]["different_ends"]) == (2, 1)
    assert [row["runs"] for row in rows[1:]] == [1] * (len(POLICIES) - 1)


def test_gpu_time_is_counted_by_the_type_that_jobs_are_fastest_on(tmp_path: Path) -> None:
    made = make(mixed("shockwave", jobs=12))
    run = write(tmp_path, made.start, made.rounds)
    rows = rows_of(Analytics(tmp_path), "types-used", run)
    fastest = {spec.job_id: made.header.throughputs.reference(spec).gpu_type for spec in made.specs}
    leases = Analytics(tmp_path).query(
        "SELECT job_id, gpu_type, seconds * scale_factor FROM leases", [run]
    )[1]
    hours: Counter[tuple[str, str]] = Counter()
    for job_id, kind, seconds in leases:
        hours[fastest[job_id], kind] += seconds / 3600
    assert {(row["fastest"], row["gpu_type"]): row["gpu_hours"] for row in rows} == pytest.approx(
        dict(hours)
    )
    for row in rows:
        assert row["mean_speed"] == 1.0 or row["fastest"] != row["gpu_type"]
    drawn = draw_types(rows)
    assert drawn is not None
    assert [row["share"] for row in drawn.rows] == pytest.approx(
        [r["share"] for r in rows], abs=1e-4
    )
    assert draw_types([row for row in rows if row["fastest"] == row["gpu_type"]][:1]) is None
    types = {row["gpu_type"] for row in rows_of(Analytics(tmp_path), "prices-by-type", run)}
    assert types == set(made.header.settings.inventory.types)


def test_what_idles_and_what_jobs_miss_is_what_a_market_of_types_lost(typed: Typed) -> None:
    made, analytics, run = typed
    lost: dict[int, list[float]] = {}
    for row in rows_of(analytics, OF_TYPES, run):
        both = lost.setdefault(row["round"], [0.0, 0.0])
        both[0] += row["idle_loss"]
        both[1] += row["missing_loss"]
    solves = {record.round: record.solve for record, *_ in made.rounds}
    assert {n: sum(both) for n, both in lost.items()} == pytest.approx(
        {n: s.bound - s.objective for n, s in solves.items() if len(s.prices) > 1}, abs=1e-9
    )
    assert max(missing for _, missing in lost.values()) > 0.0


def test_a_job_waits_for_each_type_at_the_price_of_that_type(typed: Typed) -> None:
    made, analytics, run = typed
    rows = rows_of(analytics, "why-it-waited", run)
    ((job,), rounds) = {row["job_id"] for row in rows}, {row["round"] for row in rows}
    bids = {
        (record.round, bid.allocation.gpu_type): record.solve.price_of[bid.allocation.gpu_type]
        for record, *_ in made.rounds
        for bid in record.bids
        if bid.job_id == job and record.round in rounds
    }
    assert [(row["round"], row["gpu_type"], row["price"]) for row in rows] == [
        (*found, bids[found]) for found in sorted(bids)
    ]
    assert len({kind for _, kind in bids}) > 1


def test_pairs_bid_nothing_of_their_own(tmp_path: Path) -> None:
    packed = mixed("shockwave", jobs=14, together=0.8, parameters=(Parameter("packed", 1.0),))
    made = make(packed)
    run = write(tmp_path, made.start, made.rounds)
    assert any(len(record.solve.prices) > 1 for record, *_ in made.rounds)
    assert rows_of(Analytics(tmp_path), OF_TYPES, run) == []
