"""An audit of a run finds every change, and names the record."""

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from containers.runtime import Lease
from flows.explain.replay import replay
from predictor.errors import InputError, WarehouseError
from tasks.record import RoundRecord, hash_record
from tests.runs import POLICIES, Made, chained, ended, write
from tests.warehouse.conftest import folder
from warehouse.analytics.questions import Analytics
from warehouse.store.audit import AuditFinding, audit
from warehouse.store.checksums import CHECKSUMS, add_sum, checksum, drop_sums
from warehouse.store.folder import WORKLOAD_FILE
from warehouse.store.ledger import LEDGER
from warehouse.store.parts import WHOLE, part_name
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer


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
    assert found.unended == len(made.specs) - len(made.states[6].learning.finished) > 0


@pytest.mark.parametrize("numbers", [(2,), (2, 3), (5,)])
def test_deleted_rounds_are_named(tmp_path: Path, made: Made, numbers: tuple[int, ...]) -> None:
    run = write(tmp_path, made.start, made.rounds[:6], compact=False)
    names = [part_name(range(number, number + 1)) for number in numbers]
    for name in names:
        (folder(tmp_path, run) / name).unlink()
    pairs = zip(numbers, names, strict=True)
    missing = [(number, f"{name} is gone, and {LEDGER} has it") for number, name in pairs]
    assert problems(tmp_path, run) == missing
    drop_sums(folder(tmp_path, run), names)
    assert problems(tmp_path, run) == missing
    for _ in range(2):  # nor does the refused writer keep the run locked
        with pytest.raises(WarehouseError, match=f"{names[0]}: is gone"):
            Writer(tmp_path, made.start, run=run)
    (tmp_path / LEDGER).unlink()
    gap = [(2, "round 2 is missing"), (2, "rounds 2 to 3 are missing")][len(numbers) - 1]
    assert problems(tmp_path, run) == ([gap] if numbers[-1] < 5 else [])


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


def test_rounds_cut_out_of_an_ended_run_are_named(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds)
    sound = (folder(tmp_path, run) / WHOLE).read_bytes()
    last = made.records[-1].finished[0].job_id
    forge(folder(tmp_path, run) / WHOLE, lambda rows: rows.pop())
    assert [problem for _, problem in problems(tmp_path, run)] == [
        f"{WHOLE} the run was closed, yet job {last} has no end",
        f"{WHOLE} was changed: {LEDGER} has another checksum",
    ]
    (folder(tmp_path, run) / WHOLE).write_bytes(sound)
    forge(folder(tmp_path, run) / WHOLE, lambda rows: rows.pop(2))
    found = problems(tmp_path, run)
    assert found[0] == (2, f"{WHOLE}, row 2 holds round 3 of run {run!r}")
    assert (2, "round 2 is missing") in found


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
    rounds = [*made.rounds[:3], (forged, hash_record(forged), timings), *made.rounds[4:]]
    run = write(tmp_path, made.start, rounds)
    assert problems(tmp_path, run) == [
        (4, "round=all.parquet, row 4 does not follow round 3, which has another hash")
    ]


def test_an_edited_header_is_found(kept: tuple[Path, str]) -> None:
    forge(
        folder(*kept) / "header.parquet",
        lambda rows: rows[0]["settings"].update(seed=rows[0]["settings"]["seed"] + 1),
    )
    changed, content, (number, link), *_ = problems(*kept)
    assert changed == (None, f"header.parquet was changed: {LEDGER} has another checksum")
    assert content == (None, "header.parquet was changed: its contents have another hash")
    assert number == 0
    assert "does not follow the header" in link


@pytest.mark.parametrize("edit", ["spec", "truth", "left out"])
def test_an_edited_job_is_found(kept: tuple[Path, str], edit: str) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        if edit == "left out":
            rows.pop()
        else:
            rows[1][edit]["budget" if edit == "spec" else "isolated_seconds"] *= 2

    forge(folder(*kept) / WORKLOAD_FILE, change)
    assert problems(*kept) == [
        (None, f"{WORKLOAD_FILE} was changed: {LEDGER} has another checksum"),
        (None, f"{WORKLOAD_FILE} was changed after it was recorded"),
    ]
    for read in (Reader(kept[0]).start, lambda run: replay(run, kept[0])):
        with pytest.raises(WarehouseError, match="workload: was changed after it was recorded"):
            read(kept[1])


def test_a_workload_that_is_gone_or_damaged_is_named(kept: tuple[Path, str]) -> None:
    path = folder(*kept) / WORKLOAD_FILE
    sound = path.read_bytes()
    path.write_bytes(sound[: len(sound) // 2])
    assert {problem.split()[0] for _, problem in problems(*kept)} == {WORKLOAD_FILE}
    with pytest.raises(WarehouseError, match="cannot be read") as caught:
        Reader(kept[0]).start(kept[1])
    assert caught.value.place == str(path)
    path.unlink()
    assert (None, f"{WORKLOAD_FILE} is gone, and {LEDGER} has it") in problems(*kept)
    for runs in (None, [kept[1]]):
        with pytest.raises(WarehouseError, match=f"{WORKLOAD_FILE}: is missing"):
            Analytics(kept[0]).query("FROM jobs", runs)


def test_a_file_that_was_added_or_lost_its_checksum_is_found(kept: tuple[Path, str]) -> None:
    shutil.copy(folder(*kept) / "header.parquet", folder(*kept) / "other.parquet")
    assert problems(*kept) == [(None, f"other.parquet is not in {CHECKSUMS}")]
    (folder(*kept) / "other.parquet").unlink()
    (folder(*kept) / CHECKSUMS).unlink()
    assert problems(*kept) == [(None, f"{CHECKSUMS} is gone")]


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
        self.findings: list[AuditFinding] = []
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


def test_a_line_after_a_torn_one_is_whole(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds[:6], compact=False)
    sums = folder(tmp_path, run) / CHECKSUMS
    sums.write_text(sums.read_text()[:-100])
    add_sum(folder(tmp_path, run) / "round=000005.parquet")
    assert problems(tmp_path, run) == [
        (4, f"round=000004.parquet is not in {CHECKSUMS}"),
        (None, f"{CHECKSUMS} has a line that is not a checksum"),
    ]


# What must hold of every round; each record here has the hash that belongs to it.


def twice(record: RoundRecord) -> dict[str, Any]:
    first, second, *rest = record.leases
    return {"leases": (first, Lease(second.job_id, first.gpus), *rest)}


def nowhere(record: RoundRecord) -> dict[str, Any]:
    first, *rest = record.leases
    moved = Lease(first.job_id, tuple(gpu + 100 for gpu in first.gpus))
    return {"leases": (moved, *rest)}


BROKEN: dict[str, tuple[Callable[[RoundRecord], dict[str, Any]], str]] = {
    "a GPU twice": (twice, "GPU {gpu} is given to 2 jobs"),
    "no such GPU": (nowhere, "there is no GPU"),
    "no event": (lambda record: {"events": record.events[1:]}, "without an event"),
    "an early end": (lambda record: {"reports": ()}, "ends after"),
    "a clock that runs back": (lambda record: {"clock_seconds": 1.0}, "the clock goes from"),
    "an objective above its bound": (
        lambda record: {"solve": replace(record.solve, objective=2.0, bound=1.0)},
        "the objective 2 is above its bound 1",
    ),
}
"""Changes of a round, and what is found."""


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_round_is_found(tmp_path: Path, made: Made, kind: str) -> None:
    change, problem = BROKEN[kind]
    records = [*made.records]
    number = next(
        n
        for n, record in enumerate(records)
        if len(record.leases) > 1 and record.events and n > 1
        if kind != "an early end" or record.finished
    )
    gpu = records[number].leases[0].gpus[0]
    records[number] = replace(records[number], **change(records[number]))
    run = write(tmp_path, made.start, chained(made.start, records))
    found = [finding for finding in audit(tmp_path, run).findings if finding.round == number]
    assert any(problem.format(gpu=gpu) in finding.problem for finding in found), found
