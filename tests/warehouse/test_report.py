"""A report agrees with the views, whatever the names of jobs and tenants."""

import itertools
import json
import re
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from predictor.errors import InputError
from predictor.throughput import UNTYPED
from tasks.record import Settings, make_pool
from tests.reports import HOSTILE, figure, fill, store
from tests.runs import ended, start_of, write
from warehouse.analytics.marts import materialise
from warehouse.analytics.questions import Analytics
from warehouse.report import Report, read_report, write_figures, write_report
from warehouse.report.accounts import write_accounts
from warehouse.report.page import render
from warehouse.report.selection import query_by_run, read_entries
from warehouse.report.timeline import draw_market, draw_solver
from warehouse.store.labelling import name_run

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """Elements, attributes and text of a page, as a browser takes them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warehouse")
    fill(folder)
    materialise(folder)  # so that marts are read in a tenth of the time
    return folder


@pytest.fixture(scope="module")
def analytics(warehouse: Path) -> Analytics:
    return Analytics(warehouse)


@pytest.fixture(scope="module")
def runs(analytics: Analytics) -> list[str]:
    _, rows = analytics.query("SELECT run FROM runs JOIN headers USING (run) ORDER BY policy, seed")
    return [run for (run,) in rows]


@pytest.fixture(scope="module")
def report(analytics: Analytics, runs: list[str]) -> Report:
    return read_report(analytics, runs)


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return render(report, f"A report on {HOSTILE}")


def value(analytics: Analytics, sql: str, run: str) -> Any:
    return analytics.query(sql, [run])[1][0][0]


def held(page: str) -> dict[str, Any]:
    """What the scripts of a page draw."""
    text = page.partition('id="data">')[2].partition("</script>")[0]
    data: dict[str, Any] = json.loads(text)
    return data


def test_the_bars_are_means_of_run_summary(
    report: Report, analytics: Analytics, runs: list[str]
) -> None:
    bars = figure(report, "comparison").rows
    assert [bar["label"] for bar in bars[:3]] == ["shockwave", "srtf", "themis"]
    columns, rows = analytics.query("SELECT * FROM run_summary")
    summary = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    for column, name, unit in (
        ("makespan_s", "makespan (h)", 3600),
        ("mean_jct_s", "mean JCT (h)", 3600),
        ("worst_rho", "worst ρ", 1),
        ("unfair_fraction", "unfair jobs (%)", 0.01),
    ):
        (bar,) = [b for b in bars if (b["label"], b["metric"]) == ("shockwave", name)]
        first, second = (summary[run][column] / unit for run in runs[:2])
        assert bar["mean"] == pytest.approx((first + second) / 2, abs=1e-5)
        half = 12.7062 * abs(first - second) / 2  # t(0.975, 1) · s / √2
        assert bar["high"] - bar["mean"] == pytest.approx(half, abs=1e-3)
        assert bar["mean"] - bar["low"] == pytest.approx(half, abs=1e-3)
        assert bar["runs"] == 2
        (bar,) = [b for b in bars if (b["label"], b["metric"]) == ("srtf", name)]
        assert bar["mean"] == pytest.approx(summary[runs[2]][column] / unit, abs=1e-5)


@pytest.mark.parametrize("number", [0, 2, 3])
def test_the_gantt_chart_holds_every_leased_second_once(
    report: Report, analytics: Analytics, runs: list[str], number: int
) -> None:
    run = runs[number]
    boxes = figure(report, f"gantt-{run}").rows
    held = sum((b["hours_end"] - b["hours"]) * (b["gpu_end"] - b["gpu"]) for b in boxes)
    assert held == pytest.approx(
        value(analytics, "SELECT gpu_hours FROM run_summary", run), rel=1e-3
    )
    lost = {(b["job"], b["hours_end"]) for b in boxes if b.get("ended") == "preempted"}
    assert len(lost) == value(analytics, "SELECT preemptions FROM run_summary", run)
    by_gpu = defaultdict(list)
    for box in boxes:
        for gpu in range(box["gpu"], box["gpu_end"]):
            by_gpu[gpu].append((box["hours"], box["hours_end"]))
    for spans in by_gpu.values():
        ordered = sorted(spans)
        for (_, end), (start, _) in itertools.pairwise(ordered):
            assert end <= start + 1e-4


def test_the_gantt_chart_shows_every_regime_that_was_trained(
    report: Report, analytics: Analytics, runs: list[str]
) -> None:
    boxes = figure(report, f"gantt-{runs[0]}").rows
    drawn = {(box["job"], box["batch"]) for box in boxes}
    _, trained = analytics.query(
        "SELECT DISTINCT t.job_id, t.batch_size / j.batch_size FROM telemetry AS t "
        "JOIN jobs AS j USING (job_id) JOIN placements AS a "
        "ON a.job_id = t.job_id AND a.round = t.round - 1 "
        "JOIN (SELECT round, unnest(progress) AS p FROM records) AS r "
        "ON r.round = t.round AND r.p.job_id = t.job_id AND r.p.batch_size = t.batch_size",
        runs[:1],
    )
    assert len(trained) > 8
    for job, ratio in trained:
        assert (job, f"{ratio:g}×" if ratio >= 1 else f"1/{1 / ratio:g}×") in drawn


def test_forecasts_are_held_against_what_the_job_took_from_then_on(
    report: Report, analytics: Analytics, runs: list[str]
) -> None:
    rows = figure(report, f"forecasts-{runs[0]}").rows
    totals: dict[str, set[float]] = defaultdict(set)
    for row in rows:
        assert row["low"] <= row["high"]
        totals[row["job"]].add(round(row["trained"] + row["truth"], 2))
    assert len(totals) >= 3
    _, took = analytics.query("SELECT job_id, run_seconds / 3600 FROM job_outcomes", runs[:1])
    for name, total in totals.items():
        job = int(name.split(":")[0].removeprefix("job "))
        assert min(total) == pytest.approx(dict(took)[job], abs=0.02)
        assert max(total) - min(total) <= 0.02  # each is rounded


def test_errors_are_those_of_the_mart_and_of_the_forecasts(
    report: Report, analytics: Analytics, runs: list[str]
) -> None:
    rows = {row["done"]: row for row in figure(report, f"errors-{runs[0]}").rows}
    _, mart = analytics.query(
        "SELECT tenth, forecasts, error, covered FROM forecast_errors", runs[:1]
    )
    _, made = analytics.query(
        "SELECT least(floor(done * 10), 9), "
        "o.run_seconds - f.run_seconds BETWEEN low_seconds - 1e-6 AND high_seconds + 1e-6, "
        "abs(f.run_seconds + remaining_seconds - o.run_seconds) / o.run_seconds "
        "FROM forecasts AS f JOIN job_outcomes AS o USING (job_id)",
        runs[:1],
    )
    assert {tenth / 10 for tenth, *_ in mart} == set(rows)
    for done, row in rows.items():
        of_mart = [numbers for tenth, *numbers in mart if tenth / 10 == done]
        count = sum(forecasts for forecasts, _, _ in of_mart)
        held = sum(forecasts * covered for forecasts, _, covered in of_mart)
        error = sum(forecasts * error for forecasts, error, _ in of_mart)
        assert row["forecasts"] == count
        assert row["covered"] == pytest.approx(held / count, abs=1e-5)
        assert row["mean_error"] == pytest.approx(error / count, abs=1e-5)
        single = [(held, error) for tenth, held, error in made if tenth / 10 == done]
        assert row["forecasts"] == len(single)
        assert row["covered"] == pytest.approx(sum(h for h, _ in single) / count, abs=1e-5)
        assert row["mean_error"] == pytest.approx(sum(e for _, e in single) / count, abs=1e-5)
    assert any(0 < row["covered"] < 1 for row in rows.values())


@pytest.mark.parametrize("policy", ["shockwave", "ossp", "srtf", "gavel", "allox", "mst"])
def test_prices_and_gaps_are_drawn_where_a_market_is_cleared(policy: str, tmp_path: Path) -> None:
    run = store(tmp_path, ended(policy, jobs=3), rounds=4)
    analytics = Analytics(tmp_path)
    _, solves = analytics.query("SELECT price, gap FROM solves", [run])
    rows = query_by_run(analytics, ["solves"], [run])["solves"][run]
    shown, planned = draw_market(rows, ()), draw_solver(rows)
    assert (shown.chart is not None) == (policy == "shockwave")
    assert bool(shown.missing) == (policy != "shockwave")
    assert any(price is not None for price, _ in solves) == (policy == "shockwave")
    assert ("vconcat" in planned.specs[""]) == (policy == "shockwave")
    if policy == "shockwave":
        assert {"price", "envious"} <= set(shown.rows[0])
        assert any(row["price"] is not None for row in shown.rows)
        types = [{"hours": 0.0, "label": kind, "price": 1.0} for kind in ("v100", "k80")]
        assert "by construction" in draw_market(rows, types).about
        assert "by construction" not in shown.about
    else:
        assert "no prices" in shown.missing
        assert "clears no market" in planned.about
        assert all(row["gap_percent"] is None for row in planned.rows)


def test_one_seed_of_a_policy_is_shown_round_by_round(report: Report, runs: list[str]) -> None:
    assert [entry.run for entry in report.shown] == [runs[0], *runs[2:]]


def test_settings_that_differ_are_named(tmp_path: Path) -> None:
    made = ended("srtf", jobs=3)
    settings = Settings("srtf", make_pool(8, gpu_type=UNTYPED), window=5, seed=7)
    other = start_of(replace(made.header, settings=settings), made.start.workload)
    names = [write(tmp_path, start, made.rounds) for start in (made.start, other)]
    labels = [entry.label for entry in read_entries(Analytics(tmp_path), names)]
    assert labels == [
        "srtf, round_seconds=600 window_rounds=20",
        "srtf, round_seconds=120 window_rounds=5",
    ]


def test_hostile_names_are_text(page: str, runs: list[str]) -> None:
    parsed = Page(page)
    assert len(parsed.named("script")) == 6
    assert not parsed.named("img")
    assert "alert(1)</script>" not in page
    assert "{{7*7}}" in page
    assert "\\u003c/script\\u003e" in page
    drawn = held(page)
    (name,) = drawn["charts"][f"forecasts-{runs[0]}"][""]["datasets"]
    assert all(HOSTILE in point["job"] for point in drawn["rows"][name])
    table = drawn["tables"][f"jobs-{runs[0]}"]
    assert all(row[table["columns"].index("tenant")] == HOSTILE for row in table["rows"])
    assert all(HOSTILE in job["name"] for job in drawn["jobs"][runs[0]].values())


def test_no_name_becomes_part_of_an_expression(report: Report) -> None:
    for drawn in report.figures:
        for choice, spec in drawn.specs.items():
            bare = {name: part for name, part in spec.items() if name != "datasets"}
            assert "alert(1)" not in json.dumps(bare), (drawn.key, choice)


def test_every_chart_is_valid_vega_lite(report: Report) -> None:
    charts = [chart for f in report.figures for chart in (f.choices or {"": f.chart}).values()]
    assert sum(chart is not None for chart in charts) > 25
    for chart in filter(None, charts):
        chart.to_dict(validate=True)


def test_nothing_is_fetched(page: str) -> None:
    for tag, attributes in Page(page).elements:
        assert "src" not in attributes, tag
        href = attributes.get("href") or "#"
        assert href.startswith("#") or href == "data:,"
    policy = next(m["content"] for m in Page(page).named("meta") if "http-equiv" in m)
    assert "default-src 'none'" in str(policy)


def test_a_page_can_be_read_without_seeing(page: str, report: Report) -> None:
    parsed = Page(page)
    assert parsed.named("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in parsed.elements if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    drawn = [attributes for attributes in parsed.named("div") if "data-chart" in attributes]
    assert len(drawn) == sum(figure.chart is not None for figure in report.figures)
    assert all(len(str(attributes["aria-label"])) > 40 for attributes in drawn)
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    linked = {str(a["href"])[1:] for a in parsed.named("a")}
    jobs = {name for name in linked if name.startswith("job-")}
    assert {"all", "comparison", "settings", *(f"run-{e.run}" for e in report.shown)} <= linked
    assert linked - jobs <= set(ids)
    assert len(jobs) == len(report.shown)  # the worst ρ of each


def test_the_same_run_gives_the_same_bytes(
    analytics: Analytics, runs: list[str], tmp_path: Path
) -> None:
    first = write_report(analytics, runs[:1], tmp_path / "a.html", "A")
    second = write_report(analytics, runs[:1], tmp_path / "deep" / "b.html", "A")
    assert first.read_bytes() == second.read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["a.html"]


def test_every_chart_is_drawn_for_papers(report: Report, runs: list[str], tmp_path: Path) -> None:
    few = [f for f in report.figures if runs[2] in f.key or f.key in ("comparison", "front")]
    written = write_figures(few, tmp_path)
    assert len(written) == 3 * sum(len(figure.specs) for figure in few)
    names = {path.stem for path in written}
    assert f"gantt-{runs[2]}" in names
    assert sum(name.startswith(f"gantt-{runs[2]}-batch-size") for name in names) == 1
    for path in written:
        content = path.read_bytes()
        if path.suffix == ".svg":
            assert content.startswith(b"<svg")
            assert content.count(b"<path") > 4
        else:
            assert content.startswith(b"%PDF" if path.suffix == ".pdf" else b"\x89PNG")
    again = write_figures(few[:1], tmp_path / "again")
    assert again[0].read_bytes() == written[0].read_bytes()


def test_runs_are_reported_by_ids_and_given_names(
    analytics: Analytics, runs: list[str], tmp_path: Path
) -> None:
    several = read_entries(analytics, f"{runs[2]}, {runs[0]},{runs[2]}")
    assert [entry.run for entry in several] == [runs[2], runs[0]]
    run = store(tmp_path, ended())
    name_run(tmp_path, run, "Baseline")
    assert [entry.run for entry in read_entries(Analytics(tmp_path), f"Baseline,{run}")] == [run]


def test_a_job_has_an_account_of_its_life(report: Report, analytics: Analytics) -> None:
    (jobs,) = [c.jobs for c in report.chapters if c.jobs and c.jobs.run.startswith("themis")]
    found = write_accounts(jobs)
    _, rows = analytics.query(
        "SELECT job_id, preemptions, launches, fair_finish_seconds - arrival_seconds "
        "+ runs.round_seconds + runs.restart_seconds "
        "FROM job_outcomes JOIN runs USING (run) ORDER BY job_id",
        [jobs.run],
    )
    ((rounds,),) = analytics.query("SELECT count(*) FROM rounds", [jobs.run])[1]
    assert list(found) == [str(job) for job, *_ in rows]
    assert any(preempted for _, preempted, *_ in rows)
    for job, preempted, launches, fair in rows:
        account = found[str(job)]
        text = " ".join(account["why"])
        within = (
            r"In an evenly shared cluster it would have ended within ([\d.]+) (s|min|h), a round"
        )
        ((time, unit),) = re.findall(within, text)
        seconds = float(time) * {"s": 1, "min": 60, "h": 3600}[unit]
        assert seconds == pytest.approx(fair, rel=0.006)
        assert ("It was preempted" in text) == (preempted > 0)
        assert len(account["leases"]) >= launches
        ended = [lease[3] for lease in account["leases"]]
        assert sum(end.startswith("preempted") for end in ended) == preempted
        assert 0 <= account["longest"] < rounds
        assert account["regimes"]
        assert account["forecasts"] == []
    (jobs,) = [c.jobs for c in report.chapters if c.jobs and c.jobs.run.startswith("srtf")]
    for account in write_accounts(jobs).values():
        assert 0 < len(account["forecasts"]) <= 21


def test_fairness_is_that_of_the_jobs(
    report: Report, analytics: Analytics, runs: list[str]
) -> None:
    rows = figure(report, f"fairness-{runs[0]}").rows
    _, jobs = analytics.query("SELECT scale_factor, rho, unfair FROM job_outcomes", runs[:1])
    by_size = {int(row["kind"]): row for row in rows if row["by"] == "size"}
    assert {size for size, *_ in jobs} == set(by_size)
    for size, row in by_size.items():
        rhos = sorted(rho for of, rho, _ in jobs if of == size)
        assert (row["jobs"], row["worst_rho"]) == (len(rhos), round(rhos[-1], 4))
        assert row["least_rho"] == round(rhos[0], 4)
    for by in ("tenant", "size", "model", "load"):
        assert sum(row["jobs"] for row in rows if row["by"] == by) == len(jobs)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nope-1", "run or campaign 'nope-1': not in the warehouse"),
        ("nope'; --", 'run or campaign "nope\'; --": not in the warehouse'),
        ("../..", "run or campaign '../..': not in the warehouse"),
        (" , ", "run or campaign: is empty"),
    ],
)
def test_unknown_names_are_refused(analytics: Analytics, name: str, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        read_entries(analytics, name)
    assert str(refused.value).startswith(problem)


def test_a_file_that_cannot_be_written_is_refused(
    analytics: Analytics, runs: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match="cannot be written"):
        write_report(analytics, runs[:1], tmp_path / "file" / "page.html", "A")
    assert (tmp_path / "file").read_text() == "kept"
