"""An audit finds whatever was done to a run, and names the record."""

import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from containers.runtime import EventKind, Lease
from flows.explain.replay import replay
from predictor.errors import InputError, WarehouseError
from tasks.record import record_hash
from tests.runs import POLICIES, Made, chained, ended, write
from tests.warehouse.conftest import folder
from warehouse.analytics.questions import Analytics
from warehouse.store.audit import Finding, audit
from warehouse.store.checksums import CHECKSUMS, checksum, note
from warehouse.store.folder import WORKLOAD_FILE, part_name
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer

FLIPS = 10


@pytest.fixture(scope="module")
def made() -> Made:
    return ended("srtf", jobs=12, seed=2)


def problems(warehouse: Path, run: str) -> list[tuple[int | None, str]]:
    return [
        (finding.round, f"{finding.place} {finding.problem}")
        for finding in audit(warehouse, run).findings
    ]


def test_a_run_without_a_header_or_a_round_is_none(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, [], compact=False)
    for path in folder(tmp_path, run).iterdir():
        path.unlink()
    (folder(tmp_path, run) / ".lock").touch()
    for ask in (lambda: audit(tmp_path, run), lambda: Reader(tmp_path).header(run)):
        with pytest.raises(InputError, match=f"{run}': not in the warehouse"):
            ask()


def forge(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Rewrite a file with other rows, and its checksum too, as a careful forger would."""
    table = pq.read_table(path, partitioning=None)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    sums = path.parent / CHECKSUMS
    lines = [line for line in sums.read_text().splitlines() if not line.endswith(f" {path.name}")]
    sums.write_text("\n".join([*lines, f"{checksum(path)}  {path.name}", ""]))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_sound_run_has_no_finding(tmp_path: Path, policy: str) -> None:
    made = ended(policy)
    found = audit(tmp_path, write(tmp_path, made.start, made.rounds))
    assert (found.findings, found.rounds, found.jobs) == ((), len(made.rounds), 8)
    assert (found.files, found.unended) == (3, 0)


def test_a_run_under_way_is_sound_and_says_how_many_jobs_have_no_end(
    tmp_path: Path, made: Made
) -> None:
    found = audit(tmp_path, write(tmp_path, made.start, made.rounds[:6], compact=False))
    assert found.findings == ()
    assert found.unended == len(made.specs) - len(made.states[6].ended) > 0


@pytest.mark.slow
def test_a_flipped_byte_is_found_in_every_file(kept: tuple[Path, str]) -> None:
    rng = random.Random(5)
    for path in sorted(folder(*kept).glob("*.parquet")):
        sound = path.read_bytes()
        for _ in range(FLIPS):
            at = rng.randrange(len(sound))
            flipped = bytes([sound[at] ^ 1 << rng.randrange(8)])
            path.write_bytes(sound[:at] + flipped + sound[at + 1 :])
            found = problems(*kept)
            named = [number for number, problem in found if path.name in problem]
            assert named, f"{path.name}, byte {at}"
            if path.stem.startswith("round=") and set(named) == {None}:
                # Then the record is none: the flip is in what a file says of itself.
                assert any("can be read in it are whole" in problem for _, problem in found)
        path.write_bytes(sound)
    assert problems(*kept) == []


def test_a_deleted_round_is_named(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds[:6], compact=False)
    (folder(tmp_path, run) / "round=000003.parquet").unlink()
    found = problems(tmp_path, run)
    assert (3, "round 3 is missing") in found
    assert found[0][0] == 3


def test_a_gap_is_one_finding(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds[:6], compact=False)
    for number in (2, 3):
        (folder(tmp_path, run) / part_name(range(number, number + 1))).unlink()
    assert (2, "rounds 2 to 3 are missing") in problems(tmp_path, run)


def test_rounds_of_an_unreadable_file_are_not_named_as_well(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds[:10], compact=False)
    path = folder(tmp_path, run) / part_name(range(8))
    content = bytearray(path.read_bytes())
    content[-20] ^= 1  # in what the file says of itself
    path.write_bytes(content)
    found = problems(tmp_path, run)
    assert {number for number, _ in found} == {0}
    assert all(problem.startswith(path.name) for _, problem in found), found
    assert not any("missing" in problem for _, problem in found)


def test_a_deleted_file_between_two_that_cannot_be_read_is_named(
    tmp_path: Path, made: Made
) -> None:
    run = write(tmp_path, made.start, made.rounds[:6], compact=False)
    for number in (2, 4):
        (folder(tmp_path, run) / part_name(range(number, number + 1))).write_bytes(b"no record")
    (folder(tmp_path, run) / part_name(range(3, 4))).unlink()
    found = problems(tmp_path, run)
    assert (3, "round 3 is missing") in found
    assert sum("missing" in problem for _, problem in found) == 1, found


def test_the_last_round_is_missed_too(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds[:6], compact=False)
    (folder(tmp_path, run) / "round=000005.parquet").unlink()
    assert problems(tmp_path, run) == [(5, "round=000005.parquet is gone")]


def test_a_round_cut_out_of_an_ended_run_is_named(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds)
    forge(folder(tmp_path, run) / "round=all.parquet", lambda rows: rows.pop(2))
    found = problems(tmp_path, run)
    assert found[0] == (2, f"round=all.parquet, row 2 holds round 3 of run {run!r}")
    assert (2, "round 2 is missing") in found


def test_an_ended_run_without_its_last_rounds_has_jobs_without_end(
    tmp_path: Path, made: Made
) -> None:
    run = write(tmp_path, made.start, made.rounds)
    last = made.records[-1].finished[0].job_id
    forge(folder(tmp_path, run) / "round=all.parquet", lambda rows: rows.pop())
    ((_, problem),) = problems(tmp_path, run)
    assert problem == f"round=all.parquet the run was closed, yet job {last} has no end"


def test_swapped_rounds_are_named(kept: tuple[Path, str]) -> None:
    parts = sorted(folder(*kept).glob("round=*.parquet"))
    if len(parts) == 1:
        forge(parts[0], lambda rows: rows.insert(1, rows.pop(2)))
    else:
        first, second = parts[1].read_bytes(), parts[2].read_bytes()
        parts[1].write_bytes(second)
        parts[2].write_bytes(first)
    found = problems(*kept)
    assert found[0][0] == 1
    assert any(f"holds round 2 of run {kept[1]!r}" in problem for _, problem in found)


@pytest.mark.parametrize("column", ["clock_seconds", "round_hash", "memory", "objective"])
def test_an_edited_number_is_found_by_the_chain(kept: tuple[Path, str], column: str) -> None:
    def edit(rows: list[dict[str, Any]]) -> None:
        row = next(row for row in rows if row["round"] == 4)
        match column:
            case "clock_seconds":
                row[column] += 1e-6
            case "memory":
                row[column] += " "
            case "objective":
                row["solve"]["objective"] += 1e-9
            case "round_hash":
                row["hash"] = row["hash"][::-1]

    (path,) = (
        path
        for path in folder(*kept).glob("round=*.parquet")
        if path.stem in ("round=all", "round=000004")
    )
    forge(path, edit)
    found = problems(*kept)
    assert found[0][0] == 4
    assert any("was changed: its contents have another hash" in problem for _, problem in found)


def test_an_edit_with_a_new_hash_breaks_the_link_to_the_next_record(
    tmp_path: Path, made: Made
) -> None:
    record, _, timings = made.rounds[3]
    forged = replace(record, memory="else")
    rounds = [*made.rounds[:3], (forged, record_hash(forged), timings), *made.rounds[4:]]
    run = write(tmp_path, made.start, rounds)
    assert problems(tmp_path, run) == [
        (4, "round=all.parquet, row 4 does not follow round 3: another hash is noted")
    ]


def test_an_edited_header_is_found(kept: tuple[Path, str]) -> None:
    forge(
        folder(*kept) / "header.parquet",
        lambda rows: rows[0]["settings"].update(seed=rows[0]["settings"]["seed"] + 1),
    )
    found = problems(*kept)
    assert found[0] == (None, "header.parquet was changed: its contents have another hash")
    assert (0, found[1][1]) == found[1]
    assert "does not follow the header" in found[1][1]


@pytest.mark.parametrize("part", ["spec", "truth"])
def test_an_edited_job_is_found(kept: tuple[Path, str], part: str) -> None:
    def edit(rows: list[dict[str, Any]]) -> None:
        field = "budget" if part == "spec" else "isolated_seconds"
        rows[1][part][field] *= 2

    forge(folder(*kept) / WORKLOAD_FILE, edit)
    assert problems(*kept) == [(None, f"{WORKLOAD_FILE} was changed after it was recorded")]
    for read in (Reader(kept[0]).start, lambda run: replay(run, kept[0])):
        with pytest.raises(WarehouseError, match="workload: was changed after it was recorded"):
            read(kept[1])


def test_a_job_left_out_is_found(kept: tuple[Path, str]) -> None:
    forge(folder(*kept) / WORKLOAD_FILE, lambda rows: rows.pop())
    assert problems(*kept) == [(None, f"{WORKLOAD_FILE} was changed after it was recorded")]


def test_a_workload_that_is_gone_or_damaged_is_named(kept: tuple[Path, str]) -> None:
    path = folder(*kept) / WORKLOAD_FILE
    sound = path.read_bytes()
    path.write_bytes(sound[: len(sound) // 2])
    assert {problem.split()[0] for _, problem in problems(*kept)} == {WORKLOAD_FILE}
    with pytest.raises(WarehouseError, match="cannot be read") as caught:
        Reader(kept[0]).start(kept[1])
    assert caught.value.place == str(path)
    path.unlink()
    assert (None, f"{WORKLOAD_FILE} is gone") in problems(*kept)
    for runs in (None, [kept[1]]):
        with pytest.raises(WarehouseError, match=f"{WORKLOAD_FILE}: is missing"):
            Analytics(kept[0]).query("FROM jobs", runs)


def test_a_file_that_was_added_or_lost_its_checksum_is_found(kept: tuple[Path, str]) -> None:
    shutil.copy(folder(*kept) / "header.parquet", folder(*kept) / "other.parquet")
    assert problems(*kept) == [(None, f"other.parquet is not in {CHECKSUMS}")]
    (folder(*kept) / "other.parquet").unlink()
    (folder(*kept) / CHECKSUMS).unlink()
    assert problems(*kept) == [
        (None, f"{CHECKSUMS} is gone, so the files' bytes cannot be checked")
    ]


def test_the_checksums_are_those_that_sha256sum_takes(kept: tuple[Path, str]) -> None:
    lines = (folder(*kept) / CHECKSUMS).read_text().splitlines()
    files = sorted(path.name for path in folder(*kept).glob("*.parquet"))
    assert sorted(line[66:] for line in lines) == files
    assert all(line[64:66] == "  " and int(line[:64], 16) for line in lines)


def test_rounds_that_cannot_be_read_are_narrowed_down(tmp_path: Path, made: Made) -> None:
    records = [made.records[number % len(made.records)] for number in range(70)]
    records = [replace(record, round=number) for number, record in enumerate(records)]
    run = write(tmp_path, made.start, chained(made.start, records))
    path = folder(tmp_path, run) / "round=all.parquet"
    sound = path.read_bytes()
    groups = pq.ParquetFile(path).metadata
    first, second = groups.row_group(0).num_rows, groups.row_group(1).num_rows
    assert (first, second) == (64, 6)
    offset = groups.row_group(1).column(0).dictionary_page_offset
    path.write_bytes(sound[:offset] + bytes(40) + sound[offset + 40 :])
    found = audit(tmp_path, run).findings
    assert any(
        finding.round == 64 and "rounds 64 to 127 at most" in finding.problem for finding in found
    )


def test_a_run_is_sound_at_every_moment_of_its_writing(tmp_path: Path, made: Made) -> None:
    with Writer(tmp_path, made.start) as writer, Stress(tmp_path, writer.run) as stress:
        for record, digest, timings in made.rounds:
            writer.append(record, digest, timings)
        writer.compact()
    assert stress.audits > 3
    assert stress.findings == []


class Stress:
    """Audits a run in another thread, over and over, for as long as the context lasts."""

    def __init__(self, warehouse: Path, run: str) -> None:
        self.audits = 0
        self.findings: list[Finding] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go, args=(warehouse, run))

    def _go(self, warehouse: Path, run: str) -> None:
        while not self._over.is_set() or self.audits < 5:
            self.findings += audit(warehouse, run).findings
            self.audits += 1

    def __enter__(self) -> "Stress":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.parametrize("number", [2, 5])
def test_a_deleted_round_is_not_forgotten_by_going_on(
    tmp_path: Path, made: Made, number: int
) -> None:
    run = write(tmp_path, made.start, made.rounds[:6], compact=False)
    (folder(tmp_path, run) / f"round=00000{number}.parquet").unlink()
    before = problems(tmp_path, run)
    for _ in range(2):  # nor does it keep the run locked
        with pytest.raises(WarehouseError, match=f"round=00000{number}.parquet: is gone"):
            Writer(tmp_path, made.start, run=run)
    assert problems(tmp_path, run) == before != []


def test_a_line_after_a_torn_one_is_whole(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds[:6], compact=False)
    sums = folder(tmp_path, run) / CHECKSUMS
    sums.write_text(sums.read_text()[:-100])
    note(folder(tmp_path, run) / "round=000005.parquet")
    assert problems(tmp_path, run) == [
        (4, f"round=000004.parquet is not in {CHECKSUMS}"),
        (None, f"{CHECKSUMS} has a line that is no checksum"),
    ]


def test_a_crash_before_the_checksum_is_mended_by_the_next_writer(
    tmp_path: Path, made: Made
) -> None:
    run = write(tmp_path, made.start, made.rounds[:6], compact=False)
    sums = folder(tmp_path, run) / CHECKSUMS
    sums.write_text(sums.read_text()[:-100])  # the last line is gone, the one before is torn
    with Writer(tmp_path, made.start, run=run):
        pass
    found = problems(tmp_path, run)
    assert found == [(4, f"round=000004.parquet is not in {CHECKSUMS}")]


# What must hold of every round; each record here has the hash that belongs to it.


def broken(tmp_path: Path, made: Made, number: int, **fields: Any) -> list[tuple[int | None, str]]:
    records = [*made.records]
    records[number] = replace(records[number], **fields)
    run = write(tmp_path, made.start, chained(made.start, records))
    return [(finding.round, finding.problem) for finding in audit(tmp_path, run).findings]


def busy(made: Made) -> int:
    """A round with two running jobs at least, the next one with events."""
    return next(n for n, record in enumerate(made.records) if len(record.leases) > 1)


def test_a_gpu_given_out_twice_is_found(tmp_path: Path, made: Made) -> None:
    number = busy(made)
    first, second, *rest = made.records[number].leases
    twice = Lease(second.job_id, first.gpus)
    found = broken(tmp_path, made, number, leases=(first, twice, *rest))
    assert (number, f"GPU {first.gpus[0]} is given to 2 jobs") in found


def test_a_gpu_that_is_not_there_is_found(tmp_path: Path, made: Made) -> None:
    number = busy(made)
    first, *rest = made.records[number].leases
    gpus = tuple(gpu + 100 for gpu in first.gpus)
    found = broken(tmp_path, made, number, leases=(Lease(first.job_id, gpus), *rest))
    assert (number, f"there is no GPU {gpus[0]}") in found


def test_a_lease_without_an_event_is_found(tmp_path: Path, made: Made) -> None:
    number = busy(made)
    first, *rest = made.records[number].events
    found = broken(tmp_path, made, number, events=tuple(rest))
    what = "preempted" if first.kind is EventKind.PREEMPTED else "launched"
    assert found == [
        (number, f"job {first.job_id} is {what} (GPUs {list(first.gpus)}) without an event")
    ]


def test_a_job_that_ends_early_is_found(tmp_path: Path, made: Made) -> None:
    number = next(n for n, record in enumerate(made.records) if record.finished)
    (event, *_), job = made.records[number].finished, made.records[number].finished[0].job_id
    reports = tuple(report for report in made.records[number].reports if report.job_id != job)
    found = broken(tmp_path, made, number, reports=reports)
    assert any(f"job {event.job_id} ends after" in problem for _, problem in found)


def test_a_clock_that_runs_back_is_found(tmp_path: Path, made: Made) -> None:
    found = broken(tmp_path, made, 5, clock_seconds=1.0)
    assert found[0][0] == 5
    assert "the clock goes from" in " ".join(problem for _, problem in found)


def test_an_objective_above_its_bound_is_found(tmp_path: Path, made: Made) -> None:
    solve = replace(made.records[2].solve, objective=2.0, bound=1.0)
    found = broken(tmp_path, made, 2, solve=solve)
    assert found == [(2, "the objective 2 is above its bound 1")]
