"""Snapshots of a service's position: their content, and that no result depends on them."""

import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from flows.api.commands import ServiceCommands
from flows.api.history import HistoryFollower, RecentRounds
from flows.api.job_history import RoundOutcome
from flows.explain.replay import replay
from flows.runs.snapshot import RunProgress, read_snapshot
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobKind, Mode, make_timed_job
from tasks.commands import CommandKind
from tasks.state import RunState
from tests.flows.test_scheduler import FAST, JOB, go
from warehouse.inbox.inbox import Inbox
from warehouse.store.audit import audit
from warehouse.store.checksums import checksum
from warehouse.store.folder import SNAPSHOT, place_of
from warehouse.store.ledger import enter
from warehouse.store.reader import Reader
from warehouse.store.warehouse_audit import audit_all

LONG = replace(JOB, epochs=4000, total_steps=0)
SLOW = replace(FAST, speed=20_000.0)
OPAQUE = make_timed_job(0, JobKind.OPAQUE, Demand.gang(1), 600.0, 0.0, image="i")


def folded(warehouse: Path, run: str) -> RunProgress:
    """The position by all rounds."""
    reader = Reader(warehouse)
    start = reader.original_start(run)
    position = RunProgress(RunState.initial(start))
    for record, digest in reader.records(run):
        position = position.after(start.header, record, digest)
    return position


@pytest.fixture
def snapshot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Snapshots after every second round; the file."""
    monkeypatch.setattr("flows.runs.snapshot.EVERY", 2)
    return tmp_path / SNAPSHOT


@pytest.mark.slow
def test_a_service_goes_on_from_a_snapshot_as_from_all_rounds(
    tmp_path: Path, snapshot: Path
) -> None:
    with Inbox(tmp_path) as inbox:
        for job in (LONG, OPAQUE, replace(JOB, mode=Mode.ACCORDION, demand=Demand.gang(3))):
            inbox.submit(job)
        run = go(tmp_path, 2, SLOW)
        for number in range(6):
            inbox.submit(replace(JOB, epochs=2, total_steps=0, name=f"j{number}"))
            inbox.command(CommandKind.BUDGET, 1, value=1.0 + number)
            if number == 2:
                inbox.command(CommandKind.CANCEL, 3)
            go(tmp_path, 3, SLOW)  # it carries rounds out again, as recorded, on what was kept
    found = read_snapshot(snapshot, run)
    assert found
    assert found.cluster
    assert found.position.state.round == 19
    follows = HistoryFollower(Reader(tmp_path), run, snapshot)
    assert follows.read().position == folded(tmp_path, run)
    assert audit(tmp_path, run).findings == ()
    assert replay(run, tmp_path).differences == []
    go(tmp_path, 1, SLOW)
    assert follows.read().position == folded(tmp_path, run)


@pytest.mark.slow
def test_what_is_asked_of_a_service_reads_the_rounds_after_its_snapshot_only(
    tmp_path: Path, snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(tmp_path, 9, jobs=[LONG, replace(JOB, mode=Mode.STATIC, name="named")])
    read = list[int]()
    records = Reader.records

    def read_records(reader: Reader, run: str, first: int = 0, before: str = "") -> object:
        read.append(first)
        return records(reader, run, first, before)

    monkeypatch.setattr(Reader, "records", read_records)

    def ask() -> tuple[object, ...]:
        with ServiceCommands(tmp_path) as commands:
            return (
                commands.list_events(6),
                commands.list_queue(),
                commands.get_status(),
                commands.list_nodes(),
                commands.list_jobs(),
            )

    first = ask()
    assert read == [7]
    snapshot.unlink()
    assert ask() == first


@pytest.mark.slow
def test_a_command_about_a_job_that_ended_reads_no_round_before_the_snapshot(
    tmp_path: Path, snapshot: Path
) -> None:
    with Inbox(tmp_path) as inbox:
        for job in (LONG, LONG, replace(JOB, epochs=1, total_steps=0)):
            inbox.submit(job)
        inbox.command(CommandKind.CANCEL, 2)
    run = go(tmp_path, 11)
    assert json.loads(snapshot.read_text())["kept"]["position"]["state"]["round"] >= 8
    (place_of(tmp_path, run) / "round=000000-000007.parquet").write_bytes(b"")
    with ServiceCommands(tmp_path) as commands:
        for job, ended in ((2, "not finished"), (3, "finished")):
            with pytest.raises(InputError, match=rf"^job: job {job} already ended: {ended}; see"):
                commands.command(CommandKind.HOLD, str(job))


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "changed", "code", "run", "ahead", "nested"])
def test_a_snapshot_that_is_not_of_these_records_is_passed_over(
    tmp_path: Path, snapshot: Path, damage: str
) -> None:
    run = go(tmp_path, 4, jobs=[LONG])
    text = snapshot.read_text()
    kept_row = json.loads(text)
    if damage == "cut":
        snapshot.write_text(text[: len(text) // 2])
    elif damage == "nested":
        snapshot.write_text("[" * 100_000)
    else:
        if damage == "changed":
            kept_row["kept"]["position"]["late"] += 1
        elif damage == "ahead":  # records of a backup, and the snapshot of later ones
            kept_row["kept"]["position"]["state"]["last_hash"] = "0" * 64
        elif damage == "run":
            kept_row["kept"]["run"] = "service-000000-1"
        else:
            kept_row["code"] = "0" * 64
        snapshot.write_text(json.dumps(kept_row))
    if damage != "changed":
        enter(tmp_path, snapshot.parent, {snapshot.name: checksum(snapshot)})
    assert HistoryFollower(Reader(tmp_path), run, snapshot).read().position == folded(tmp_path, run)
    go(tmp_path, 2)
    assert audit(tmp_path, run).findings == ()


@pytest.mark.slow
def test_a_forged_snapshot_is_found_and_not_used(tmp_path: Path, snapshot: Path) -> None:
    run = go(tmp_path, 3, jobs=[LONG])
    older = snapshot.read_bytes()
    left_over = snapshot.with_name(f".{snapshot.name}.{'0' * 32}")  # of a writer that was killed
    left_over.touch()
    go(tmp_path, 2)
    assert not left_over.exists()
    assert audit_all(tmp_path).findings == []
    assert snapshot.read_bytes() != older
    snapshot.write_bytes(older)  # its writer was killed before the file had its name
    assert read_snapshot(snapshot, run)
    assert audit_all(tmp_path).findings == []
    snapshot.write_bytes(older.replace(b'"late": 0', b'"late": 9'))
    assert read_snapshot(snapshot, run) is None
    (finding,) = audit_all(tmp_path).findings
    assert (finding.place, "not used" in finding.problem) == ("inbox/snapshot.json", True)
    snapshot.unlink()
    assert audit_all(tmp_path).findings == []


@pytest.mark.slow
def test_recent_rounds_are_decoded_once_and_older_ones_when_asked(
    tmp_path: Path, snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, parts, decoded = go(tmp_path, 6, jobs=[LONG]), Reader.parts, list[tuple[int, float]]()

    def read_parts(
        reader: Reader, run: str, kind: type[Any], first: int, stop: float, **options: Any
    ) -> list[Any]:
        decoded.append((first, stop))
        return parts(reader, run, kind, first, stop, **options)

    monkeypatch.setattr(Reader, "parts", read_parts)
    reader = Reader(tmp_path)
    follows = HistoryFollower(reader, run, snapshot)
    recent = RecentRounds(reader, run, RoundOutcome, most=4)
    early = follows.read()
    whole = parts(reader, run, RoundOutcome)
    assert recent.read(early, 4) == whole[4:]
    assert recent.read(early, 3) == recent.read(early, 3) == whole[3:]
    assert decoded == [(4, 6), (3, 4)]
    go(tmp_path, 3, jobs=[LONG])
    late, whole = follows.read(), parts(reader, run, RoundOutcome)
    decoded.clear()
    assert recent.read(late, 5) == whole[5:]
    assert decoded == [(6, 9)]
    assert recent.read(late, 2) == whole[2:]
    assert decoded == [(6, 9), (2, 5)]
    assert recent.read(early, 5) == whole[5:6]
    decoded.clear()
    assert recent.read(late, 1, 3) == whole[1:3]
    assert recent.read(late, 3, 7) == whole[3:7]
    assert decoded == [(1, 3), (3, 5)], "nothing from the stop on is read again"
    again = HistoryFollower(reader, run, snapshot).read()
    decoded.clear()
    assert recent.read(again, 7) == whole[7:]
    assert decoded == [(7, 9)], "the records were read anew, so nothing that was kept counts"


@pytest.mark.slow
def test_questions_about_a_job_decode_no_more_than_its_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.api.queries.MOST_PRICES", 3)
    go(tmp_path, 1, SLOW, jobs=[LONG])
    go(tmp_path, 8, SLOW, jobs=[replace(JOB, epochs=2, total_steps=0)])
    parts, decoded = Reader.parts, list[tuple[str, int, float, int | None]]()

    def read_parts(
        reader: Reader, run: str, kind: type[Any], first: int = 0, stop: float = inf, **options: Any
    ) -> list[Any]:
        decoded.append((kind.__name__, first, stop, options.get("of_job")))
        return parts(reader, run, kind, first, stop, **options)

    monkeypatch.setattr(Reader, "parts", read_parts)
    with ServiceCommands(tmp_path) as commands:
        last = commands.read_history().state.round
        (end,) = commands.list_ends(commands.read_history(), -1).values()
        assert last == 9 > end + 4
        commands.list_prices()
        decoded.clear()
        old = commands.get_job_history(2)
        asked = [("RoundOutcome", 1, end + 1, None), ("RoundEstimates", 1, end + 1, 2)]
        assert decoded == asked
        assert old.forecasts
        decoded.clear()
        ours = commands.get_job_history(1)
        asked = [("RoundOutcome", 0, last - 3, None), ("RoundEstimates", 0, last, 1)]
        assert decoded == asked
        assert [made.at_s for made in ours.forecasts][-1] == commands.known.state.clock_seconds  # type: ignore[union-attr]
        decoded.clear()
        assert len({step.round for step in commands.explain(1).history}) >= 1
        assert decoded == [("Lived", 0, last - 3, None)], "and the last rounds are known"
