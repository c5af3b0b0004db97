"""Exports and imports of runs are atomic."""

import json
import tarfile
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.flows.conftest import Command, tree
from tests.flows.listed import Ask, named, rows_of
from warehouse.store.folder import place_of
from warehouse.store.labels import LABELS, Label, read_labels
from warehouse.store.ledger import read_ledger

pytestmark = pytest.mark.slow


def test_a_run_travels_with_its_label(
    ask: Ask, here: Command, warehouse: Path, tmp_path: Path
) -> None:
    run = named(ask, "themis")
    ask("run", "name", run, "Baseline")
    ask("run", "note", run, "read me")
    for name in ("one.tar", "two.tar"):
        assert ask("run", "export", "Baseline", tmp_path / name).code == 0
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    other = ("--warehouse", tmp_path / "other")
    ran = here("run", "import", tmp_path / "one.tar", *other)
    assert (ran.code, ran.err) == (0, "")
    assert tree(place_of(tmp_path / "other", run)) == {
        name: content
        for name, content in tree(place_of(warehouse, run)).items()
        if not name.startswith(".")
    }
    assert read_labels(tmp_path / "other")[run] == read_labels(warehouse)[run]
    assert here("run", "replay", "Baseline", *other).code == 0
    assert here("run", "audit", "--all", *other).code == 0
    assert [path.name for path in (tmp_path / "other").glob(".import*")] == []
    left = tmp_path / "other" / ".import-0" / "records"  # by an import that was killed
    left.mkdir(parents=True)
    again = here("run", "import", tmp_path / "one.tar", *other)
    assert again.code == 2
    problem = "is in the warehouse already; it is the same run: there is nothing to do"
    assert again.err == f"error: run {run!r}: {problem}\n"
    assert not left.exists()


def test_a_file_that_is_not_whole_is_refused(ask: Ask, warehouse: Path, tmp_path: Path) -> None:
    run, file = named(ask, "themis"), tmp_path / "run.tar"
    ask("run", "export", run, file)
    ask("run", "rm", run, "--yes")
    before = tree(warehouse)
    folder = f"records/{place_of(warehouse, run).parent.name}/run={run}"
    made = ("stranger", "outside", "link", "sparse", "twice", "label.json")
    for damage in ("cut", "flip", "nothing", "gone", *made):
        bad = tmp_path / f"{damage}.tar"
        content = bytearray(file.read_bytes())
        if damage == "cut":
            content = content[: len(content) // 2]
        elif damage == "flip":
            content[len(content) // 2] ^= 1
        elif damage == "nothing":
            content = bytearray(b"hello")
        if damage != "gone":
            bad.write_bytes(content)
        if damage in made:
            names = {"stranger": f"{folder}/run.sh", "outside": "../../header.parquet"}
            names["label.json"] = f"{folder}/label.json"
            member = tarfile.TarInfo(names.get(damage, f"{folder}/header.parquet"))
            text = b'{"name": "no name", "tags": [], "note": ""}' if "label" in damage else b""
            member.size = len(text)
            if damage == "link":
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            if damage == "sparse":
                member.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(2**50)}
            with tarfile.open(bad, "w", format=tarfile.PAX_FORMAT) as archive:
                for _ in range(2 if damage == "twice" else 1):
                    archive.addfile(member, BytesIO(text))
        ran = ask("run", "import", bad)
        assert (ran.code, ran.out) == (2, ""), damage
        assert ran.err.startswith(f"error: {bad}: "), (damage, ran.err)
        assert len(ran.err.splitlines()) == 1
    assert tree(warehouse) == before


def test_an_import_takes_no_name_that_stands_for_another_run(
    ask: Ask, here: Command, warehouse: Path, tmp_path: Path
) -> None:
    run, other, file = named(ask, "themis"), named(ask, "srtf"), tmp_path / "run.tar"
    labels = {run: {"name": other, "tags": ["kept"], "note": ""}}
    (warehouse / LABELS).write_text(json.dumps(labels))
    assert ask("run", "export", run, file).code == 0
    assert rows_of(ask, "run", "show", other)[0]["run"] == other  # an id comes before a name
    assert ask("run", "rm", run, "--yes").code == 0
    assert read_labels(warehouse) == {}
    assert ask("run", "import", file).code == 0
    assert read_labels(warehouse)[run] == Label(tags=("kept",))


@pytest.mark.process
def test_what_an_import_may_take_is_bounded(ask: Ask, warehouse: Path, tmp_path: Path) -> None:
    run, file = named(ask, "themis"), tmp_path / "run.tar"
    assert ask("run", "export", run, file).code == 0
    assert ask("run", "rm", run, "--yes").code == 0
    assert "more memory" in ask("run", "import", file, "--memory", 64).err
    folder = place_of(tmp_path / "other", run)
    folder.mkdir(parents=True)
    with tarfile.open(file) as archive:
        for member in archive:
            (folder / Path(member.name).name).write_bytes(archive.extractfile(member).read())  # type: ignore[union-attr]
    whole = folder / "round=all.parquet"
    round_0 = pq.read_table(whole, partitioning=None).slice(0, 1)
    pq.write_table(pa.concat_tables([round_0] * 10_000).combine_chunks(), whole)  # in some KiB
    with tarfile.open(tmp_path / "long.tar", "w") as archive:
        for path in folder.iterdir():
            archive.add(path, path.relative_to(tmp_path / "other"))
    assert "is not a run that was exported" in ask("run", "import", tmp_path / "long.tar").err
    assert not [*warehouse.glob(".import-*")]
    assert not place_of(warehouse, run).exists()
    assert ask("run", "import", file).code == 0


def test_only_what_is_whole_is_exported(ask: Ask, warehouse: Path, tmp_path: Path) -> None:
    run, file = named(ask, "themis"), tmp_path / "run.tar"
    whole = place_of(warehouse, run) / "round=all.parquet"
    pq.write_table(pq.read_table(whole), whole)
    assert "is not whole (round=all.parquet: was changed" in ask("run", "export", run, file).err
    assert "cannot be written" in ask("run", "export", run, whole / "x" / "run.tar").err
    assert [*tmp_path.iterdir()] == [warehouse]
    file.touch()
    assert "exists; name a new file" in ask("run", "export", run, file).err


def test_the_ledger_records_what_was_done(ask: Ask, warehouse: Path) -> None:
    run, entries = named(ask, "themis"), len(read_ledger(warehouse).entries)
    ask("run", "rm", run, "--yes")
    removal, *_ = read_ledger(warehouse).entries[entries:]
    assert removal.folder == place_of(warehouse, run).relative_to(warehouse).as_posix()
    assert {*removal.files.values()} == {""}
