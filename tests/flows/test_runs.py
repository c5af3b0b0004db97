"""Runs without SQL: list, show, compare, label and remove them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.flows.conftest import assert_refused, tree
from tests.flows.listed import Ask, assert_clean, named, rows_of
from tests.runs import POLICIES, Made, ended, write
from tests.warehouse.by_hand import CELL, write_cells
from warehouse.analytics.catalog import build
from warehouse.store import removal
from warehouse.store.folder import place_of
from warehouse.store.labels import LABELS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made() -> dict[str, Made]:
    return {policy: ended(policy) for policy in POLICIES}


# Lists


def test_runs_are_listed_once_the_newest_first(ask: Ask) -> None:
    rows = rows_of(ask, "run", "list")
    assert sorted(row["policy"] for row in rows) == sorted(POLICIES)
    assert rows[0]["policy"] == POLICIES[0]
    assert rows[0]["run"].endswith("-2")
    assert [row["same"] for row in rows] == [2] + [1] * (len(POLICIES) - 1)
    assert [row["created_at"] for row in rows] == sorted(
        (row["created_at"] for row in rows), reverse=True
    )
    assert len(rows_of(ask, "run", "list", "--identical")) == len(POLICIES) + 1


def test_runs_of_a_campaign_are_listed_whatever_is_identical(ask: Ask, warehouse: Path) -> None:
    run = rows_of(ask, "run", "list")[0]["run"].removesuffix("2") + "1"
    write_cells(warehouse, replace(CELL, campaign="one-123456", run=run))
    (row,) = rows_of(ask, "run", "list", "--campaign", "one-123456")
    assert (row["run"], row["same"]) == (run, 2)
    assert rows_of(ask, "run", "list", "--campaign", "one-123456", "--tag", "none") == []
    assert rows_of(ask, "run", "list", "--campaign", "one-123456", "--policy", "none") == []
    assert_refused(ask("run", "list", "--campaign", "one-12345"), "did you mean one-123456?")


def test_figures_are_those_of_the_views(ask: Ask) -> None:
    (row,) = rows_of(ask, "run", "list", "--policy", "srtf")
    columns = "makespan_s, mean_jct_s, jct_p99_s, worst_rho, unfair_fraction, utilization"
    query = f"SELECT {columns} FROM run_summary WHERE policy = 'srtf'"
    assert rows_of(ask, "sql", query) == [{name: row[name] for name in columns.split(", ")}]


def test_runs_are_filtered_sorted_and_limited(ask: Ask) -> None:
    all_of_them = rows_of(ask, "run", "list", "--sort", "mean_jct_s")
    figures = [row["mean_jct_s"] for row in all_of_them]
    assert figures == sorted(figures)
    half = sorted(figures)[len(figures) // 2]
    where = ("--where", f"mean_jct_s < {half} OR false", "--sort", "mean_jct_s DESC")
    found = rows_of(ask, "run", "list", *where, "--limit", 2)
    assert [row["mean_jct_s"] for row in found] == sorted(
        (figure for figure in figures if figure < half), reverse=True
    )[:2]
    said = ask("run", "list", "--limit", 1).out.splitlines()
    assert said[-1] == "(only the first 1; --limit 0 lists all)"


def test_which_run_is_best_for_some_of_the_jobs(ask: Ask, made: dict[str, Made]) -> None:
    sizes = {spec.job_id: spec.demand.least for spec in next(iter(made.values())).specs}
    size = max(sizes.values())
    rows = rows_of(ask, "run", "list", "--of-jobs", f"scale_factor = {size}", "--sort", "jct_p99_s")
    query = f"""SELECT run, count(*) AS jobs, quantile_cont(jct_seconds, 0.99) AS jct_p99_s
        FROM job_outcomes WHERE scale_factor = {size} GROUP BY run"""
    expected = {row["run"]: row for row in rows_of(ask, "sql", query)}
    assert len(rows) == len(POLICIES)
    assert rows[0]["jobs"] == sum(of == size for of in sizes.values()) < len(sizes)
    for row in rows:
        assert {name: row[name] for name in ("run", "jobs", "jct_p99_s")} == expected[row["run"]]
    assert rows[0]["jct_p99_s"] == min(row["jct_p99_s"] for row in expected.values())


def test_runs_of_the_same_jobs_are_listed_for_a_comparison(ask: Ask, warehouse: Path) -> None:
    other = ended("fifo", jobs=2)
    write(warehouse, other.start, other.rounds)
    all_of_them = rows_of(ask, "run", "list")
    (alone,) = (row["run"] for row in all_of_them if row["jobs"] == 2)
    same = {row["run"] for row in all_of_them} - {alone}
    name = min(same)
    ask("run", "name", name, "Baseline")
    for like, found in ((name, same), ("Baseline", same), (alone, {alone})):
        assert {row["run"] for row in rows_of(ask, "run", "list", "--like", like)} == found
    assert "--like RUN" in ask("run", "list", "--sort", "jct_p99_s").err
    assert ask("run", "list", "--sort", "jct_p99_s", "--like", "Baseline").err == ""
    assert "not in the warehouse" in ask("run", "list", "--like", "fifo-000000-1").err


def test_show_has_settings_and_figures(ask: Ask) -> None:
    run = named(ask, "themis")
    (row,) = rows_of(ask, "run", "show", run)
    assert (row["run"], row["policy"], row["complete"]) == (run, "themis", True)
    assert {"makespan_s", "round_seconds", "first_hash", "packages", "note"} <= {*row}
    lines = dict(line.split(maxsplit=1) for line in ask("run", "show", run).out.splitlines())
    assert (lines["run"], lines["complete"]) == (run, "True")


def test_diff(ask: Ask, made: dict[str, Made]) -> None:
    fifo, srtf = named(ask, "themis"), named(ask, "srtf")
    *rows, rounds = rows_of(ask, "run", "diff", fifo, srtf)
    settings = {row["setting"]: (row["one"], row["other"]) for row in rows if "setting" in row}
    assert settings == {"policy": ("themis", "srtf")}
    figures = {row["figure"]: row for row in rows if "figure" in row}
    ends = [made[policy].records[-1].clock_seconds for policy in ("themis", "srtf")]
    makespan = figures["makespan_s"]
    assert [makespan["one"], makespan["other"], makespan["difference"]] == [
        *ends,
        ends[1] - ends[0],
    ]
    differing = [
        number
        for number, (a, b) in enumerate(
            zip(*(made[p].records for p in ("themis", "srtf")), strict=False)
        )
        if a.leases != b.leases
    ]
    assert rounds["first_round"] <= differing[0]
    assert rounds["fields"]


def test_diff_of_identical_runs(ask: Ask) -> None:
    newest, *_ = rows_of(ask, "run", "list", "--identical", "--policy", POLICIES[0])
    other = newest["run"].removesuffix("2") + "1"
    *_, rounds = rows_of(ask, "run", "diff", newest["run"], other)
    assert (rounds["first_round"], rounds["fields"]) == (None, [])
    out = ask("run", "diff", newest["run"], other).out
    assert "same settings and workload" in out
    assert out.splitlines()[-1].startswith("all ")


def test_recipes_are_of_the_newest_run_and_list_identical_runs_once(ask: Ask) -> None:
    newest = rows_of(ask, "run", "list")[0]["run"]
    assert {row["run"] for row in rows_of(ask, "sql", "--recipe", "worst-jobs")} == {newest}
    compared = rows_of(ask, "sql", "--recipe", "policies-compared")
    assert sorted(row["policy"] for row in compared) == sorted(POLICIES)
    assert rows_of(ask, "sql", "--recipe", "identical-runs")[0]["runs"] == 2


# Labels


def test_labels_are_kept_beside_the_records(ask: Ask, warehouse: Path) -> None:
    run, before = named(ask, "themis"), tree(warehouse / "records")
    ask("run", "name", run, "Baseline")
    ask("run", "tag", "Baseline", "paper", "old", "--remove", "nothing")
    ask("run", "tag", run, "--remove", "old")
    note = 'a \x1b[31mnote\nof "two" lines'
    assert rows_of(ask, "run", "note", "Baseline", note) == [
        {"run": run, "name": "Baseline", "tags": ["paper"], "note": note}
    ]
    (row,) = rows_of(ask, "run", "list", "--tag", "paper")
    assert (row["run"], row["name"], row["tags"]) == (run, "Baseline", "paper")
    assert rows_of(ask, "run", "list", "--tag", "none") == []
    assert "\x1b" not in ask("run", "show", "Baseline").out
    assert rows_of(ask, "sql", "--recipe", "gpu-time", "--run", "Baseline")[0]["run"] == run
    assert ask("run", "replay", "Baseline", "--round", 1).code == 0
    assert tree(warehouse / "records") == before
    assert [*json.loads((warehouse / LABELS).read_text())] == [run]
    assert_clean(ask)
    for command in ("name", "note"):
        assert rows_of(ask, "run", command, run) == rows_of(ask, "run", "tag", run)
        assert "give one of the two" in ask("run", command, run, "x", "--remove").err
        assert "delete the current one with --remove" in ask("run", command, run, "").err
        assert rows_of(ask, "run", command, run, "--remove")[0][command] == ""
    ask("run", "tag", run, "--remove", "paper")
    assert (warehouse / LABELS).read_text() == "{}\n"


def test_an_identical_run_with_a_label_is_listed(ask: Ask) -> None:
    first = rows_of(ask, "run", "list")[0]["run"].removesuffix("2") + "1"
    ask("run", "tag", first, "kept")
    assert first in [row["run"] for row in rows_of(ask, "run", "list")]


def test_labels_that_make_no_sense_are_refused(ask: Ask, warehouse: Path) -> None:
    fifo, srtf = named(ask, "themis"), named(ask, "srtf")
    ask("run", "name", fifo, "My.Best_1")
    write_cells(warehouse, CELL)
    before = tree(warehouse)
    missing = f"not in the warehouse {warehouse}; did you mean My.Best_1? list them with: "
    for parts, said in (
        (("run", "name", srtf, "My.Best_1"), f"error: name: 'My.Best_1' is the name of {fifo}; "),
        (("run", "name", srtf, fifo), f"error: name: '{fifo}' is a run's id; "),
        (("run", "name", srtf, "august"), "error: name: 'august' is a campaign's id; "),
        (("run", "name", srtf, "no name"), "error: name: 'no name' is not a valid word; "),
        (("run", "tag", srtf, "a/b"), "error: tag: 'a/b' is not a valid word; "),
        (("run", "note", srtf, "x" * 10_001), "error: note: has 10,001 characters; "),
        (("run", "note", "nobody-1", "x"), "error: run 'nobody-1': not in the warehouse"),
        *(
            (("run", "show", near), f"error: run '{near}': {missing}")
            for near in ("my.best_1", "My Best")
        ),
    ):
        assert_refused(ask(*parts), said)
    assert tree(warehouse) == before
    (warehouse / LABELS).write_text("{")
    assert_refused(ask("run", "list"), f"{LABELS}: cannot be read")


def test_runs_are_held_against_each_other_job_by_job(ask: Ask, warehouse: Path) -> None:
    one, other = named(ask, "srtf"), named(ask, "themis")
    figures = {row["run"]: row["mean_jct_s"] for row in rows_of(ask, "run", "list", "--identical")}
    (jobs,) = (row for row in rows_of(ask, "run", "diff", one, other) if "jct_difference_s" in row)
    assert jobs["jct_difference_s"] == pytest.approx(figures[other] - figures[one])
    assert jobs["jct_difference_s_low"] < jobs["jct_difference_s"] < jobs["jct_difference_s_high"]
    assert 0 < jobs["sooner"] + jobs["later"] <= jobs["jobs"]
    assert (
        f"{jobs['sooner']} end earlier, {jobs['later']} later" in ask("run", "diff", one, other).out
    )


@pytest.mark.parametrize("copied", [False, True])
def test_a_removed_run_is_gone_from_everywhere(
    ask: Ask, warehouse: Path, made: dict[str, Made], copied: bool
) -> None:
    if not copied:
        shutil.rmtree(warehouse / "marts")
    run = named(ask, "srtf")
    ask("run", "name", run, "Baseline")
    assert_refused(ask("run", "rm", run), "would be deleted for good; confirm with --yes")
    assert rows_of(ask, "run", "rm", "Baseline", "--yes") == [{"run": run, "removed": True}]
    assert run not in [row["run"] for row in rows_of(ask, "run", "list")]
    assert rows_of(ask, "sql", f"SELECT count(*) AS n FROM rounds WHERE run = '{run}'")[0]["n"] == 0
    assert ask("run", "show", run).code == ask("run", "rm", run, "--yes").code == 2
    assert_clean(ask)
    assert write(warehouse, made["srtf"].start, made["srtf"].rounds) == run
    build(warehouse)
    assert rows_of(ask, "run", "show", run)[0]["name"] == ""
    assert_clean(ask)


@pytest.mark.parametrize("step", ["enter", "give_name"])
def test_a_removal_that_was_killed_is_completed(
    ask: Ask, warehouse: Path, made: dict[str, Made], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Killed after the entry, `rm` completes it; after the renaming, the next run does."""
    run, real = named(ask, "srtf"), getattr(removal, step)

    def killed(*given: Any, **more: Any) -> None:
        real(*given, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(removal, step, killed)
        with pytest.raises(KeyboardInterrupt):
            removal.remove_run(warehouse, run)
    if step == "enter":
        assert place_of(warehouse, run).is_dir()
        removal.remove_run(warehouse, run)
    assert write(warehouse, made["srtf"].start, made["srtf"].rounds) == run
    build(warehouse)
    assert rows_of(ask, "run", "show", run)[0]["name"] == ""
    assert not [*place_of(warehouse, run).parent.glob(".run=*")]
    assert_clean(ask)
