"""A report on a campaign: its own names, paired differences, undominated policies."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

import shockwave
from flows.campaigns.summary import compare_policies, summarize
from predictor.errors import InputError
from tests.runs import ended, write
from warehouse.analytics.intervals import in_three_digits
from warehouse.analytics.listing import list_campaigns
from warehouse.analytics.marts import materialise
from warehouse.analytics.questions import Analytics
from warehouse.report.comparison import draw_differences, draw_front, draw_policies
from warehouse.report.contents import read_report
from warehouse.report.selection import ReportedRun, read_entries
from warehouse.report.tiles import make_policy_tiles, make_run_tiles
from warehouse.store.campaigns import read_cells, write_cells
from warehouse.store.files import CellRow, CellStatus

pytestmark = pytest.mark.slow


def cells_of(runs: Sequence[tuple[str, str, str, int]]) -> list[CellRow]:
    """Finished cells of a campaign: run, policy, options, seed."""
    return [
        CellRow(
            *("c-1", f"{policy}/{options}/{seed}", run, policy, "crowd", "small", options, seed),
            *(CellStatus.FINISHED, "", 1.0, "", ""),
        )
        for run, policy, options, seed in runs
    ]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Analytics:
    """Two policies under one option or the other, two seeds: `c-1`; `c-2` has no run yet."""
    folder = tmp_path_factory.mktemp("campaign")
    runs = []
    for policy, options, rounds in itertools.product(("srtf", "fifo"), ("calm", "rough"), (7, 8)):
        made = ended(policy, jobs=3, seed=rounds + 10 * (options == "rough"))
        runs.append((write(folder, made.start, made.rounds), f"my-{policy}", options, rounds))
    write_cells(folder, "c-1", cells_of(runs))
    waits = replace(cells_of(runs[:1])[0], campaign="c-2", run="", status=CellStatus.PENDING)
    write_cells(folder, "c-2", [waits])
    materialise(folder)  # so that marts are read in a tenth of the time
    return Analytics(folder)


def test_a_campaign_keeps_its_own_names(campaign: Analytics) -> None:
    entries = read_entries(campaign, "c-1")
    assert [entry.label for entry in entries[::2]] == [
        "my-srtf, calm",
        "my-srtf, rough",
        "my-fifo, calm",
        "my-fifo, rough",
    ]
    assert {entry.group for entry in entries} == {"crowd on small"}
    assert {bar["runs"] for bar in draw_policies(entries).rows} == {2}
    with pytest.raises(InputError, match="has no finished cell yet"):
        read_entries(campaign, "c-2")
    with pytest.raises(InputError, match="did you mean c-1"):
        read_entries(campaign, "c1-1")


def test_a_program_reports_a_campaign_by_its_own_names(campaign: Analytics, tmp_path: Path) -> None:
    page = shockwave.report("c-1", tmp_path / "page.html", warehouse=campaign.warehouse)
    assert "my-srtf" in page.read_text(encoding="utf-8")


def test_one_run_is_held_against_no_unknown_policy(campaign: Analytics) -> None:
    run = read_entries(campaign, "c-1")[0].run
    with pytest.raises(InputError, match="against: 'bogus' is none of the policies"):
        read_report(campaign, run, "bogus")


def test_differences_are_taken_in_pairs(campaign: Analytics) -> None:
    entries = read_entries(campaign, "c-1")
    found = draw_differences(entries)
    assert found is not None
    (row,) = [row for row in found.rows if row["metric"] == "mean JCT (%)"]
    changes = [
        100 * (other.figures["mean_jct_s"] / one.figures["mean_jct_s"] - 1)
        for one, other in zip(entries[:4], entries[4:], strict=True)
    ]
    assert (row["label"], row["pairs"]) == ("my-fifo", 4)
    assert row["mean"] == pytest.approx(sum(changes) / 4, abs=1e-4)
    half = 3.18245 * stdev(changes) / 2  # t(0.975, 3) · s / √4
    assert row["high"] == pytest.approx(row["mean"] + half, abs=1e-3)
    assert row["better"] == sum(change < 0 for change in changes)
    hours = sum(
        other.figures["mean_jct_s"] - one.figures["mean_jct_s"]
        for one, other in zip(entries[:4], entries[4:], strict=True)
    ) / (4 * 3600)
    assert row["in_its_unit"].startswith(f"{in_three_digits(hours)} ± ")
    assert row["in_its_unit"].endswith(" h")
    assert draw_differences(entries[:4]) is None
    assert draw_differences([entries[0], entries[4]]) is None


def test_policies_are_compared_over_seeds_on_some_jobs(campaign: Analytics) -> None:
    cells = read_cells(campaign.warehouse, "c-1")
    asked = "SELECT run, avg(jct_seconds), count(*) FROM job_outcomes WHERE job_id > 0 GROUP BY run"
    known = {run: (mean, jobs) for run, mean, jobs in campaign.query(asked)[1]}
    calm, *_ = summarize(campaign.warehouse, cells, "job_id > 0")
    found = [known[cell.run] for cell in cells[:2]]
    assert calm.row()["mean_jct_s"] == pytest.approx(fmean(mean for mean, _ in found))
    assert calm.row()["jobs"] == pytest.approx(fmean(jobs for _, jobs in found))
    (pairs,) = compare_policies(campaign.warehouse, cells, "job_id > 0")
    changes = [
        known[other.run][0] - known[one.run][0]
        for one, other in zip(cells[:4], cells[4:], strict=True)
    ]
    row = pairs.row()
    assert row["mean_jct_difference_s"] == pytest.approx(fmean(changes))
    assert row["mean_jct_difference_s_high"] == pytest.approx(
        fmean(changes) + 3.18245 * stdev(changes) / 2, abs=1e-3
    )
    assert "makespan_percent" not in row
    with pytest.raises(InputError, match="of_jobs: there is no column 'gpus'; did you mean scale"):
        summarize(campaign.warehouse, cells, "gpus = 4")
    assert summarize(campaign.warehouse, cells, "job_id > 99")[0].row()["jobs"] == 0


def test_differences_are_taken_from_a_policy_over_all_workloads_and_in_each(
    campaign: Analytics, tmp_path: Path
) -> None:
    cells = [
        replace(cell, campaign="c-3", workload=cell.options, options="")
        for cell in read_cells(campaign.warehouse, "c-1")
    ]
    first, back = (
        [
            difference.row()
            for difference in compare_policies(campaign.warehouse, cells, against=against)
        ]
        for against in (None, "my-fifo")
    )
    found = [(row["policy"], row["against"], row["workload"], row["pairs"]) for row in back]
    assert found == [
        ("my-srtf", "my-fifo", workload, pairs)
        for workload, pairs in (("all workloads", 4), ("calm", 2), ("rough", 2))
    ]
    column = "mean_jct_difference_s"
    assert [row[column] for row in back] == pytest.approx([-row[column] for row in first])
    assert first[0][column] == pytest.approx((first[1][column] + first[2][column]) / 2)
    with pytest.raises(InputError, match="'my-fifi' is none of the policies; did you mean my-fifo"):
        compare_policies(campaign.warehouse, cells, against="my-fifi")

    write_cells(campaign.warehouse, "c-3", cells)
    found = draw_differences(read_entries(campaign, "c-3"), "my-fifo")
    assert found is not None
    assert [*found.choices] == ["all workloads", "calm on small", "rough on small"]
    assert {row["label"] for row in found.rows} == {"my-srtf"}
    files = shockwave.figures(
        "c-3", tmp_path, only=["paired"], against="my-fifo", warehouse=campaign.warehouse
    )
    names = ("all-workloads", "calm-on-small", "rough-on-small")
    assert [re.sub(r"-\w{8}$", "", file.stem) for file in files] == [f"paired-{n}" for n in names]


def test_campaigns_are_listed_whatever_has_run(campaign: Analytics) -> None:
    rows = {row["campaign"]: row for row in list_campaigns(campaign) if row["campaign"] != "c-3"}
    assert [*rows] == ["c-1", "c-2"]
    first = rows["c-1"]
    assert (first["cells"], first["finished"], first["failed"], first["seeds"]) == (8, 8, 0, 2)
    assert (first["policies"], first["variants"]) == ("my-fifo my-srtf", 2)
    assert (rows["c-2"]["cells"], rows["c-2"]["finished"]) == (1, 0)


def test_a_campaign_says_which_worst_its_tile_is(campaign: Analytics) -> None:
    entries = read_entries(campaign, "c-1")
    tile = next(tile for tile in make_policy_tiles(entries) if tile.name == "Worst ρ of any run")
    best = min(("my-srtf", "my-fifo"), key=lambda policy: worst_of(entries, policy))
    assert tile.value == in_three_digits(worst_of(entries, best))
    caption = read_report(campaign, "c-1").sections[0].table
    assert caption is not None
    assert "of worst ρ: the mean of each run's worst" in caption.caption
    assert "Worst ρ" in [tile.name for tile in make_policy_tiles(entries[::4])]


def worst_of(entries: Sequence[ReportedRun], policy: str) -> float:
    return max(float(e.figures["worst_rho"]) for e in entries if e.policy == policy)


def test_the_front_holds_whom_nobody_beats(campaign: Analytics) -> None:
    entries = read_entries(campaign, "c-1")
    figures = {
        0: (2.0, 2.0, 1.0),  # beaten by the next
        2: (1.0, 2.0, 1.0),
        4: (3.0, 1.0, 2.0),
        6: (3.0, 3.0, 0.5),
    }
    laid = [
        replace(
            entries[number],
            figures={"makespan_s": a * 3600, "mean_jct_s": b * 3600, "worst_rho": c},
        )
        for number, (a, b, c) in figures.items()
    ]
    found = draw_front(laid)
    assert found is not None
    assert [row["on_front"] for row in found.rows] == [False, True, True, True]
    assert draw_front(laid[:2]) is None


def test_tiles_hold_makespan_against_its_bound(tmp_path: Path) -> None:
    made = ended("srtf", jobs=3)
    (entry,) = read_entries(Analytics(tmp_path), write(tmp_path, made.start, made.rounds))
    tiles = make_run_tiles(entry, 2)
    assert [tile.name for tile in tiles] == ["Makespan", "Mean JCT", "Worst ρ", "Cost of restarts"]
    makespan, bound = entry.figures["makespan_s"], entry.figures["makespan_bound_s"]
    assert tiles[0].notes[0].startswith(f"{makespan / bound:.3g} × the lower bound of ")
    assert tiles[2].job == 2
