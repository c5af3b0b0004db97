"""Runs that earlier versions recorded: still read, whole, and decided in the same way today.

`layoutN/run=RUN` holds runs with records of layout N. Those of layout 5 are one of each policy
with each fidelity, on both virtual clusters, in containers, with other forecasts, nodes,
parameters and histories, and forks. Those of layout 6 are of policies that decide by forecasts.
Those of layout 7 are of `shockwave` without and with the window's market and as published, and
of a rule; and of `shockwave` on one and on several GPU types and with jobs of all kinds, which
are the same today to the last byte, but for what a program over time has to say of several types.
"""

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import duckdb
import pytest

from flows.explain.replay import replay
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from predictor.basis import Basis
from solver.fidelity import Fidelity
from solver.plan import SolveReport
from solver.policies import POLICIES
from tasks.layouts import FIRST_WITH_REASONS, FIRST_WITH_WORK
from tasks.record import RoundRecord, RuntimeKind, Start
from tests.runs import make
from warehouse.analytics.catalog import create_views
from warehouse.analytics.definitions import MARTS, VIEWS
from warehouse.analytics.questions import Analytics
from warehouse.store.audit import audit
from warehouse.store.folder import LAYOUT5
from warehouse.store.reader import Reader

FOLDER = Path(__file__).parent
SIDE_BY_SIDE = [
    Path("layout5/run=fifo-7c64ae-1"),
    Path("layout5/run=tiresias-las-e504b4-1"),  # on nodes of four GPUs
    Path("layout5/run=srtf-3e3a29-1"),  # on the faithful virtual cluster
]


def name_of(path: Path) -> str:
    return path.name.removeprefix("run=")


RUNS = sorted(path.relative_to(FOLDER) for path in FOLDER.glob("layout*/run=*"))
FORKS = {"run=shockwave-9df865-1", "run=shockwave-bbd105-1", "run=srtf-a66e83-1"}
CONTAINERS = {"run=shockwave-b0b8e4-1"}
ESTIMATES, FORECASTS = {"estimates"}, {"forecasts", "estimates"}
"""Fields of rounds that were others before ends of intervals were corrected by how many of them are
at a rank, and before forecasts counted whole steps."""
OTHERWISE = {
    path
    for path in RUNS
    if path.parts[0] < "layout7" and name_of(path).startswith(("shockwave-", "srtf-2f4d56"))
    if "published" not in path.name
}
"""Runs whose policies decided by these forecasts, or by other bids, in a different way."""
OF_SEVERAL_TYPES = "run=shockwave-99ca93-1"
OF_THE_PROGRAM = {"bids", "solve"}
"""Fields of its rounds that come from the program over time: an interior-point method whose last
bits depend on the processor."""
WHOLE = {"run=shockwave-311634-1", "run=shockwave-99ca93-1", "run=shockwave-c66a36-1"}
"""Runs that were recorded since: nothing else of them may differ (docs/adr/0045)."""
VIRTUAL = [path for path in RUNS if path.name not in FORKS | CONTAINERS]
"""A fork begins with another run's decisions, a run in containers has a real clock."""


def anew(start: Start) -> Start:
    """The same run from its beginning, in the present layout."""
    return make_start(start.workload, start.header.settings, start.header.history)


def decisions(records: list[RoundRecord], reasons: bool) -> list[tuple[object, ...]]:
    """What was decided in each round, with or without the reasons of events."""
    return [
        (
            record.clock_seconds,
            record.leases,
            [event if reasons else replace(event, reason="") for event in record.events],
        )
        for record in records
    ]


def compared(name: str, record: RoundRecord) -> RoundRecord:
    """A record of a run without what may differ when it is made anew.

    That is the hash before it, as `anew` has another workload's on several GPU types, and there
    the fields of the program over time.
    """
    record = replace(record, previous_hash="")
    if name != OF_SEVERAL_TYPES:
        return record
    return replace(record, bids=(), solve=SolveReport(record.solve.policy))


@pytest.fixture(params=RUNS, ids=str)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A warehouse with one stored run, and its name."""
    path: Path = request.param
    copied(path, tmp_path / "stored")
    return tmp_path / "stored", name_of(path)


def copied(path: Path, warehouse: Path) -> None:
    """Put a stored run into a warehouse, where its layout belongs."""
    folder = warehouse / "records"
    layout = int(path.parts[0].removeprefix("layout"))
    if layout >= FIRST_WITH_WORK:
        folder /= f"layout={layout}"
    shutil.copytree(FOLDER / path, folder / path.name)


def test_a_stored_run_is_whole_and_replays_identically(
    stored: tuple[Path, str], request: pytest.FixtureRequest
) -> None:
    warehouse, run = stored
    path: Path = request.node.callspec.params["stored"]
    assert audit(warehouse, run).findings == ()
    comparison = replay(run, warehouse)
    assert comparison.complete
    assert comparison.rounds > 0
    differing = {difference.field for difference in comparison.differences}
    if path in OTHERWISE:
        assert differing
    elif path.name in WHOLE:
        assert differing <= (OF_THE_PROGRAM if path.name == OF_SEVERAL_TYPES else set())
    else:
        assert differing <= (FORECASTS if path.parts[0] < "layout6" else ESTIMATES)


@pytest.mark.parametrize(
    "path", [path for path in RUNS if path.parts[0] in ("layout3", "layout4")], ids=str
)
def test_the_oldest_layouts_answer_as_their_records_say(path: Path, tmp_path: Path) -> None:
    copied(path, tmp_path)
    shutil.copytree(LAYOUT5, tmp_path / "records" / "run=_")
    run = name_of(path)
    ends = {
        event.job_id: event.at_seconds
        for record, _ in Reader(tmp_path).records(run)
        for event in record.finished
        if event.ends_job
    }
    leases = sum(len(record.leases) for record, _ in Reader(tmp_path).records(run))
    analytics = Analytics(tmp_path)
    _, outcomes = analytics.query("SELECT job_id, finish_seconds FROM job_outcomes")
    assert dict(outcomes) == ends
    assert analytics.query("SELECT count(*) FROM placements")[1] == [(leases,)]


@pytest.mark.parametrize(
    "stored", [path for path in VIRTUAL if path not in OTHERWISE], indirect=True, ids=str
)
def test_a_stored_run_is_simulated_with_the_same_decisions(stored: tuple[Path, str]) -> None:
    warehouse, run = stored
    reader = Reader(warehouse)
    start = reader.start(run)
    assert not start.header.settings.forked
    assert start.header.settings.runtime != RuntimeKind.DOCKER
    before = [record for record, _ in reader.records(run)]
    after = make(anew(start)).records
    reasons = start.header.version >= FIRST_WITH_REASONS
    assert decisions(after, reasons) == decisions(before, reasons)
    assert [record.reports for record in after] == [record.reports for record in before]
    if (name := f"run={run}") in WHOLE:
        assert [compared(name, r) for r in after] == [compared(name, r) for r in before]


OTHER = {
    "runs": {"created_at", "first_hash", "last_hash", "packages", "workload"},
    "rounds": {"collect_ms", "predict_ms", "solve_ms", "dispatch_ms", "previous_hash", "hash"},
    "round_facts": {"timings", "previous_hash", "hash"},
    "solves": {"solve_ms"},
    "run_summary": {"solve_ms_p50", "solve_ms_p95", "solve_ms_max", "first_hash", "last_hash"},
    "forecasts": {"batch_sizes", "epochs"},
}
"""Columns that differ between a stored run and the same one simulated anew: wall times and
hashes, and what layout 5 did not keep, a hash of the workload among it."""


@pytest.mark.slow
def test_runs_of_all_layouts_side_by_side_have_the_figures_of_runs_made_today(
    tmp_path: Path,
) -> None:
    for path in SIDE_BY_SIDE:
        copied(path, tmp_path)
    reader, again = Reader(tmp_path), {}
    for run in map(name_of, SIDE_BY_SIDE):
        again[run] = simulate(anew(reader.start(run)), tmp_path)
    views = [view for view in VIEWS if view not in ("headers", "records", "campaign_cells")]
    with duckdb.connect() as connection:
        create_views(connection, tmp_path, tables=MARTS)
        asked = {view: connection.sql(f"FROM {view} ORDER BY ALL") for view in views}
        answers = {
            view: (relation.columns, relation.fetchall()) for view, relation in asked.items()
        }
    for view, (names, rows) in answers.items():
        kept = [n for n, name in enumerate(names) if name not in {"run"} | OTHER.get(view, set())]
        found: dict[str, list[tuple[object, ...]]] = {}
        for row in rows:
            values = tuple(row[n] for n in kept)
            found.setdefault(row[names.index("run")], []).append(values)
        for old, new in again.items():
            before, after = found.get(old, []), found.get(new, [])
            if view in ("forecasts", "forecast_errors"):
                assert before  # layout 5 kept forecasts in which only their mean had changed
                assert {row[:3] for row in after} <= {row[:3] for row in before}
                continue
            assert sorted(map(repr, after)) == sorted(map(repr, before)), (view, old)


def test_every_policy_and_runtime_is_among_them(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "layout5", tmp_path / "records")
    reader = Reader(tmp_path)
    settings = [reader.header(name_of(path)).settings for path in RUNS if "layout5" in path.parts]
    policies = POLICIES.keys() - {"antman", "gandiva", "slaq"}  # they came after that layout
    assert {(setting.policy, setting.fidelity) for setting in settings} >= set(
        product(policies, Fidelity)
    )
    assert {setting.runtime for setting in settings} == set(RuntimeKind)
    assert {setting.forecasts for setting in settings} == set(Basis)
    assert any(setting.forked for setting in settings)


def test_a_warehouse_that_only_older_versions_wrote_to_answers(tmp_path: Path) -> None:
    run = "srtf-3e3a29-1"
    shutil.copytree(FOLDER / "layout5" / f"run={run}", tmp_path / "records" / f"run={run}")
    shutil.copytree(LAYOUT5, tmp_path / "records" / "run=_")
    _, rows = Analytics(tmp_path).query("SELECT run, complete, jobs, workload FROM runs")
    assert rows == [(run, True, 7, run)]
    assert not (tmp_path / "analytics.duckdb").exists()
