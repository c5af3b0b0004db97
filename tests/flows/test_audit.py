"""`shockwave run audit`, of a run and of all."""

import shutil
from pathlib import Path

import pytest

from tests.flows.conftest import Command, Finished
from warehouse.store import warehouse_audit
from warehouse.store.folder import place_of
from warehouse.store.ledger import LEDGER


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warehouse_audit, "WAIT_SECONDS", 0.0)


def test_a_run_is_whole_and_in_the_ledger(here: Command, finished: Finished) -> None:
    ran = here("run", "audit", finished.run, "--warehouse", finished.warehouse)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith(" files: chain and rounds are intact\n")
    (row,) = here("run", "audit", finished.run, "--warehouse", finished.warehouse, "--json").rows
    assert (row["findings"], row["entered"]) == (0, row["rounds"])
    asked = ("run", "audit", finished.run, "--warehouse", finished.warehouse, "--expect")
    assert here(*asked, row["last_hash"]).code == 0
    other = here(*asked, "0" * 64)
    assert other.code == 1
    assert other.out.startswith(f"{finished.run}: has no record with the hash 000")


def test_all_is_whole_and_as_the_ledger_has_it(here: Command, finished: Finished) -> None:
    asked = ("run", "audit", "--all", "--warehouse", finished.warehouse)
    ran = here(*asked)
    assert (ran.code, ran.err) == (0, "")
    (row,) = here(*asked, "--json").rows
    assert (row["findings"], row["runs"]) == (0, 1)
    first, second = ran.out.splitlines()
    assert first.startswith(f"{finished.warehouse}: 1 run, {row['rounds']} rounds, {row['files']}")
    assert first.endswith(": intact and as in the ledger")
    assert second.endswith(f"{row['entries']} entries, last hash {row['last_hash']}")
    assert here(*asked, "--expect", row["last_hash"]).code == 0
    assert here(*asked, "--expect", "0" * 64).code == 1


def test_what_is_found_is_named_with_its_run(
    here: Command, finished: Finished, copied: Path
) -> None:
    (place_of(copied, finished.run) / "header.parquet").write_bytes(b"")
    ran = here("run", "audit", "--all", "--warehouse", copied)
    assert ran.code == 1
    assert ran.out.startswith(f"{finished.run}, header.parquet: was changed: ")
    *rows, summary = here("run", "audit", "--all", "--warehouse", copied, "--json").rows
    assert {row["run"] for row in rows} == {finished.run}
    assert summary["findings"] == len(rows)


def test_a_run_that_is_gone_or_unknown_can_be_accepted(
    here: Command, finished: Finished, copied: Path
) -> None:
    asked = ("run", "audit", "--all", "--warehouse", copied)
    (copied / LEDGER).unlink()
    assert here(*asked).out.startswith(f"{LEDGER}: is missing\n")
    ran = here("run", "audit", finished.run, "--warehouse", copied)
    assert (ran.code, ran.out.rstrip().rpartition("; ")[2]) == (0, "not in the ledger")
    assert here(*asked, "--accept").code == 0
    shutil.rmtree(place_of(copied, finished.run))
    gone = here(*asked)
    assert gone.code == 1
    assert f"is gone, and {LEDGER} has it" in gone.out
    assert here(*asked, "--accept").code == 0
    assert here(*asked).code == 0


@pytest.mark.parametrize(
    "arguments", [[], ["{run}", "--all"], ["{run}", "--accept"], ["--accept"], ["--expect", "0"]]
)
def test_a_run_or_all_is_asked_for(here: Command, finished: Finished, arguments: list[str]) -> None:
    given = [part.format(run=finished.run) for part in arguments]
    ran = here("run", "audit", *given, "--warehouse", finished.warehouse)
    assert ran.code == 2
    assert "give a RUN, or --all with or without --accept" in ran.err


def test_what_is_no_warehouse_is_refused(here: Command, tmp_path: Path) -> None:
    ran = here("run", "audit", "--all", "--warehouse", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {tmp_path}: is not a warehouse")
    assert list(tmp_path.iterdir()) == []
