"""All external failures of a command are reported in a line with exit code 2."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flows.cli.output import print_table, say
from flows.supervisor.config import ListenAddress, Service
from predictor.errors import InputError
from tests.flows.conftest import Command, Finished, assert_refused, tree
from tests.flows.test_scheduler import JOB
from warehouse.inbox.inbox import Inbox
from warehouse.store.folder import place_of, records_folder
from warehouse.store.parts import WHOLE


def linked(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


def folder(path: Path) -> None:
    path.mkdir()


def moved(path: Path) -> Path:
    return path.rename(path.with_name("elsewhere"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "instead"),
    [("header.parquet", os.mkfifo), ("workload.parquet", folder), (WHOLE, linked)],
)
def test_what_is_no_file_is_found_by_audits_and_refused_by_queries(
    here: Command,
    finished: Finished,
    copied: Path,
    file: str,
    instead: Callable[[Path], None],
) -> None:
    path = place_of(copied, finished.run) / file
    moved(path)
    instead(path)
    given = ("--warehouse", copied)
    for asked in (("run", "audit", finished.run), ("run", "audit", "--all")):
        ran = here(*asked, *given)
        assert (ran.code, ran.err) == (1, "")
        assert file in ran.out
    for asked in (("sql", "FROM run_summary"), ("views",)):
        assert_refused(here(*asked, *given), file, "is not a regular file")
    assert_refused(here("run", "replay", finished.run, *given))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "column"), [("header.parquet", "run"), ("workload.parquet", "spec"), (WHOLE, "bids")]
)
def test_a_column_that_is_gone_is_found_by_audits_and_refused_by_readers(
    here: Command, finished: Finished, copied: Path, file: str, column: str
) -> None:
    path = place_of(copied, finished.run) / file
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns([column]), path)
    ran = here("run", "audit", "--all", "--warehouse", copied)
    assert (ran.code, ran.err) == (1, "")
    assert file in ran.out
    if column != "run":  # readers go by the folder's name
        assert_refused(here("run", "replay", finished.run, "--warehouse", copied), file)


@pytest.mark.parametrize("above", range(3))
def test_a_folder_that_is_a_link_is_refused_by_all(
    here: Command, finished: Finished, tmp_path: Path, copied: Path, above: int
) -> None:
    run = place_of(copied, finished.run)
    place = (run, *run.parents)[above]
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    for asked in (
        ("run", "audit", finished.run),
        ("run", "audit", "--all"),
        ("sql", "FROM runs"),
        ("views",),
    ):
        assert_refused(here(*asked, "--warehouse", copied), str(place), "is a link")


@pytest.mark.parametrize(("file", "said"), [("", "FILE: is empty"), (".", ".: exists")])
def test_an_output_without_a_name_is_refused(
    here: Command, finished: Finished, file: str, said: str
) -> None:
    assert_refused(
        here("run", "export", finished.run, file, "--warehouse", finished.warehouse), said
    )


@pytest.mark.slow
def test_a_run_that_was_copied_within_the_warehouse_is_refused(
    here: Command, finished: Finished, copied: Path
) -> None:
    folder = place_of(copied, finished.run)
    copy = folder.with_name("run=copy-000000-1")
    shutil.copytree(folder, copy)
    given = ("--warehouse", copied)
    for asked in (("run", "list"), ("sql", "FROM run_summary"), ("views",), ("report", "x")):
        assert_refused(here(*asked, *given), copy.name, finished.run)
    assert_refused(here("why", 0, "--run", "copy-000000-1", *given), finished.run)
    assert here("run", "audit", "--all", *given).code == 1


@pytest.mark.parametrize("lock", [".views.lock", "ledger.jsonl", "run=_/.lock"])
def test_a_lock_that_is_a_link_makes_no_file_elsewhere(
    here: Command, finished: Finished, tmp_path: Path, copied: Path, lock: str
) -> None:
    records = records_folder(copied)
    place = records / lock if "run=" in lock else copied / lock
    for changed in (place, copied / ".views", records / "run=_" / "header.parquet"):
        changed.unlink(missing_ok=True)  # to be made anew
    place.symlink_to(tmp_path / "elsewhere")
    assert_refused(here("simulate", "--gpus", 4, "--jobs", 1, "--warehouse", copied), lock)
    assert not (tmp_path / "elsewhere").exists()


def test_a_warehouse_may_be_a_link(here: Command, finished: Finished, tmp_path: Path) -> None:
    (tmp_path / "w").symlink_to(finished.warehouse)
    assert here("run", "audit", "--all", "--warehouse", tmp_path / "w").code == 0
    assert here("sql", "FROM runs", "--warehouse", tmp_path / "w", "--json").rows


@pytest.mark.parametrize("name", ["a?b#c%41", "[a]*'b"])
@pytest.mark.slow
def test_a_warehouse_may_be_named_anything(here: Command, tmp_path: Path, name: str) -> None:
    given = ("--warehouse", tmp_path / name, "--json")
    (ran,) = here("simulate", "--gpus", 4, "--jobs", 1, "--round-seconds", 3600, *given).rows
    assert here("views", *given[:2]).code == 0
    (row,) = here("sql", "SELECT run, makespan_s FROM run_summary", *given).rows
    assert row == {"run": ran["run"], "makespan_s": ran["makespan_s"]}
    assert here("run", "audit", "--all", *given[:2]).code == 0


@pytest.mark.parametrize("command", ["campaign run", "cluster check"])
def test_a_file_nested_too_deeply_is_refused(here: Command, tmp_path: Path, command: str) -> None:
    file = tmp_path / "deep.toml"
    file.write_text(f"a = {'[' * 2000}{']' * 2000}\n")
    assert_refused(here(*command.split(), file), str(file), "nested too deeply")


@pytest.mark.slow
def test_a_prefect_server_that_is_not_there_costs_no_run(here: Command, tmp_path: Path) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    asked, url = ("--jobs", 2, "--warehouse", tmp_path / "w"), "http://127.0.0.1:9/api"
    with temporary_settings({PREFECT_API_URL: url}):
        ran = here("simulate", "--gpus", 4, "--driver", "prefect", *asked)
    assert_refused(ran, "PREFECT_API_URL", url)
    assert tree(tmp_path) == {}


@pytest.mark.process
def test_too_few_open_files_are_named(finished: Finished) -> None:
    code = (
        "import resource; from flows.cli.main import main; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5)); main()"
    )
    asked = ("sql", "FROM run_summary", "--warehouse", str(finished.warehouse))
    ran = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.endswith("allow more open files (ulimit -n)\n")


def test_control_characters_of_data_are_shown_and_not_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "\x1b[31mred\x07\r\x9b2J\u202e"
    print_table([name, "jobs"], [[name, 1], [f"a\nb{name}", 2]])
    say(f"{name}\nnext")
    out = capsys.readouterr().out
    assert out.count("\\x1b[31mred\\x07\\r\\x9b2J\\u202e") == 4
    assert "".join(out.split("\n")).isprintable()
    assert len(out.splitlines()) == 5


def test_there_is_a_folder_of_reports_before_the_first(tmp_path: Path) -> None:
    listening = ListenAddress("127.0.0.1", 0, None, None, "")
    service = Service(listening, "", tmp_path / "w")
    service.warehouse.mkdir()  # an empty folder becomes one, as by a simulation
    service.check()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with Inbox(tmp_path / "filled") as inbox:  # before the first start
        inbox.submit(JOB)
    Service(listening, "", tmp_path / "filled").check()
    wrong = {"other": "is not a warehouse", "other/notes.txt": "is a file, not a folder"}
    for place, said in wrong.items():
        with pytest.raises(InputError, match=said):
            Service(listening, "", tmp_path / place).check()
    assert service.reports.is_dir()
