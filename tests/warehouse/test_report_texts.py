"""Texts and numbers of a report, and its refusals."""

import json
import re
from pathlib import Path

import pytest
import vl_convert

from predictor.errors import InputError
from tests.reports import HOSTILE, figure, store
from tests.runs import ended, make, mixed, tiny, write
from warehouse.analytics.questions import Analytics
from warehouse.report import read_report, report_name
from warehouse.report.figure import COLOURS, data, thin_out
from warehouse.report.gantt import draw_gantt
from warehouse.report.jobs import DESCRIBED, MOST_JOBS
from warehouse.report.page import format_value, render
from warehouse.report.paper import VEGA_LITE
from warehouse.report.selection import read_entries

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("rounds", "missing"), [(3, "No job has ended yet."), (1, "one round only")]
)
def test_a_run_under_way_has_a_report(tmp_path: Path, rounds: int, missing: str) -> None:
    run = store(tmp_path, ended(), rounds=rounds)
    report = read_report(Analytics(tmp_path), [run])
    assert figure(report, f"gantt-{run}").chart is not None
    assert figure(report, "distributions").missing == "No job has ended yet."
    assert missing in render(report, "x")


def test_of_many_jobs_a_report_describes_those_with_the_worst_rho(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store(tmp_path, ended())
    analytics = Analytics(tmp_path)
    rows = analytics.query("SELECT job_id FROM job_outcomes ORDER BY rho DESC, job_id")[1]
    few = DESCRIBED.replace(f"<= {MOST_JOBS}", "<= 2")
    monkeypatch.setattr("warehouse.report.selection.DESCRIBED", few)
    (chapter,) = read_report(analytics, [run]).chapters
    assert chapter.jobs is not None
    assert chapter.jobs.leases.keys() == {job for (job,) in rows[:2]}
    table = chapter.sections[0].table
    assert table is not None
    assert table.caption.endswith(f": 2 of {len(rows)} jobs")
    assert len(table.rows) == 2 < len(rows)


def test_no_two_reports_share_a_name() -> None:
    run = "shockwave-b4a09f-1"
    assert report_name(run) == run
    many = ",".join([run] * 9)
    other = ["a_b", "a-b", "a--b", "A-b", "a,b", "-a-b", "é", "è", ",", many, f"{many},x"]
    names = {report_name(about) for about in other}
    assert len(names) == len(other)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)
    assert max(map(len, names)) < 100


def test_a_run_without_a_round_is_refused(tmp_path: Path) -> None:
    run = write(tmp_path, tiny(), [])
    with pytest.raises(InputError, match="has no rounds yet"):
        read_entries(Analytics(tmp_path), run)


def test_thinned_rows_keep_both_ends() -> None:
    rows = [{"n": n} for n in range(1000)]
    few = [row["n"] for row in thin_out(rows, 5)]
    assert few == [0, 250, 500, 749, 999]
    assert thin_out(rows[:3], 5) == rows[:3]


def test_a_chart_holds_finite_numbers_only() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        data([{"x": float("nan")}])


def test_values_have_few_digits() -> None:
    assert [format_value(value) for value in (None, True, 1.23456789, 38441.13, 3, "a", [])] == [
        *("–", "yes", "1.23", "38,441", "3", "a", "–")
    ]


def test_tenants_beyond_the_colours_share_grey() -> None:
    leases = [
        {
            **{"job": n, "gpu": 0, "gpu_end": 1, "hours": n, "hours_end": 2 * n + 1.0},
            **{"scale": 1.0, "ended": None, "pool": ("old", "new")[n % 2], "shown": 64},
            **{"tenant": f"{HOSTILE}{n}", "model": "m", "scale_factor": 1},
        }
        for n in range(9)
    ]
    found = draw_gantt(leases, 1)
    assert list(found.choices) == ["job", "batch size", "tenant", "pool"]
    (written,) = [
        vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGA_LITE)
        for name, spec in found.specs.items()
        if name == "tenant"
    ]
    assert "tenant, 2 more in grey" in written
    assert written.count(f'fill="{COLOURS[-1]}"') == 2


def test_a_large_cluster_shows_its_first_gpus() -> None:
    lease = {"job": 0, "gpu": 0, "gpu_end": 1, "hours": 0.0, "hours_end": 1.0, "scale": 1.0}
    lease |= {"ended": None, "pool": "gpu", "tenant": "t", "model": "m", "scale_factor": 1}
    about = [draw_gantt([lease | {"shown": 300}], gpus).about for gpus in (2048, 64)]
    assert "It shows the first 300 of 2,048 GPUs." in about[0]
    assert "first" not in about[1]


@pytest.mark.parametrize("pools", [["v100", "k80"], ["v100"]])
def test_each_of_several_pools_is_named_where_its_gpus_begin(pools: list[str]) -> None:
    lease = {"hours": 0.0, "hours_end": 1.0, "scale": 1.0, "ended": None, "shown": 64}
    lease |= {"tenant": "t", "model": "m", "scale_factor": 1}
    leases = [lease | {"job": n, "gpu": n, "gpu_end": n + 1, "pool": pools[-1]} for n in range(4)]
    each = [{"gpu_type": kind, "gpus": 4 // len(pools)} for kind in pools]
    for spec in draw_gantt(leases, 4, pools=each).specs.values():
        drawn = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGA_LITE)
        assert [kind in drawn for kind in pools] == [len(pools) > 1] * len(pools)


def test_a_run_on_gpus_with_prices_says_what_they_cost(tmp_path: Path) -> None:
    runs = [store(tmp_path, made) for made in (make(mixed("srtf", jobs=5)), ended("srtf"))]
    priced, free = (read_report(Analytics(tmp_path), [run]).chapters[0].tiles for run in runs)
    sql = "SELECT sum(scale_factor * seconds) / 3600 * 2.48 FROM leases WHERE gpu_type = 'v100'"
    cost = Analytics(tmp_path).query(sql, [runs[0]])[1][0][0]
    assert [tile.value for tile in priced if tile.name == "Cost"] == [f"{cost:,.2f}"]
    assert "Cost" not in [tile.name for tile in free]
