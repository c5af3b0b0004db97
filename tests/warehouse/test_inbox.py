"""The inbox keeps accepted entries once and in order, despite retries and kills."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from predictor.allocation import Demand
from predictor.errors import InputError, WarehouseBusy, WarehouseError
from predictor.job import JobSpec, Mode
from tasks.commands import CommandKind, TenantTerms
from warehouse.inbox.accepting import KeyUsed
from warehouse.inbox.database import Database
from warehouse.inbox.entries import SUBMIT, Submission
from warehouse.inbox.inbox import FILE, Inbox
from warehouse.inbox.lease import Leases
from warehouse.inbox.tables import ENTRIES, VERSIONS

JOB = JobSpec(0, "conv-small", 32, 32, Demand.gang(1), Mode.STATIC, 5, 40_000, 0.0, "a")
POSTGRES = os.environ.get("SHOCKWAVE_POSTGRES", "")
URLS = ("", *([POSTGRES] if POSTGRES else []))


@pytest.fixture(params=URLS)
def inbox(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Inbox]:
    with Inbox(tmp_path, request.param) as made:
        yield made


def test_entries_are_numbered_in_order_and_a_job_has_its_number_as_id(inbox: Inbox) -> None:
    before = inbox.last()
    first = inbox.submit(JOB, by="ann")
    second = inbox.command(CommandKind.HOLD, first.number, by="bob")
    assert [first.number, second.number] == [before + 1, before + 2]
    assert first.job == replace(JOB, job_id=first.number)
    assert inbox.entries_after(before) == [first, second]
    assert inbox.entries_after(first.number, most=1) == [second]
    assert inbox.find(str(first.number)) == first
    assert inbox.find(str(second.number)) is None
    named = [inbox.submit(replace(JOB, name="train")) for _ in range(2)]
    assert inbox.find("train") == named[1] != named[0]
    assert inbox.find("other") is None


def test_a_similar_name_that_the_caller_sees_is_suggested(inbox: Inbox) -> None:
    inbox.submit(replace(JOB, name="first", tenant="a"))
    inbox.submit(replace(JOB, name="fist", tenant="b"))
    assert inbox.suggest("frist") in ("did you mean first? ", "did you mean fist? ")
    assert inbox.suggest("frist", "a") == "did you mean first? "
    assert inbox.suggest("frist", "c") == inbox.suggest("nightly") == ""


def test_a_key_is_accepted_once(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        first = inbox.submit(JOB, key="k1")
        assert inbox.submit(JOB, key="k1") == first
        held = inbox.command(CommandKind.HOLD, 1, key="k2")
        assert inbox.command(CommandKind.HOLD, 1, key="k2") == held
        with pytest.raises(InputError, match="key: was used before, for entry 1"):
            inbox.submit(replace(JOB, tenant="b"), key="k1")
        with pytest.raises(InputError, match="key: was used before, for entry 2"):
            inbox.command(CommandKind.CANCEL, 1, key="k2")
        assert inbox.last() == 2


@pytest.mark.parametrize(
    "request_",
    [
        Submission(SUBMIT),
        Submission("launch", target=1),
        Submission(CommandKind.REFUSED.value, target=1),
        Submission(SUBMIT, replace(JOB, name="7")),
        Submission(SUBMIT, JOB, key="x" * 300),
        Submission(SUBMIT, JOB, by="\n"),
    ],
)
def test_an_invalid_submission_is_refused(tmp_path: Path, request_: Submission) -> None:
    with Inbox(tmp_path) as inbox:
        with pytest.raises(InputError):
            inbox.accept([request_])
        assert inbox.last() == 0


def test_an_inbox_is_of_one_run_and_its_file_of_one_user(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        assert inbox.run == ""
        inbox.claim("service-1")
        inbox.claim("service-1")
        with pytest.raises(InputError, match="is the inbox of run 'service-1'"):
            inbox.claim("service-2")
        assert inbox.run == "service-1"
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


def test_a_damaged_database_is_an_error_of_a_line(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(WarehouseBusy, match="not a database"):
        Inbox(tmp_path)
    with pytest.raises(InputError, match="is no URL"):
        Inbox(tmp_path, "::")


@pytest.mark.parametrize(
    "change",
    [
        *("job = '{'", "job = '[]'", "job = '{}'", "job = ''", "job = replace(job, '32', '-1')"),
        *(
            "job = replace(job, '\"a\"', '5')",
            "kind = 'hold'",
            "kind = 'other'",
            "kind = 'refused'",
        ),
        *("target = 'x'", "value = 'x'", "accepted_at = 'x'", "number = 'x'"),
    ],
)
def test_a_changed_entry_is_an_error_of_a_line(tmp_path: Path, change: str) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.execute(f"UPDATE {ENTRIES.name} SET {change}")
        database.commit()
    with Inbox(tmp_path) as inbox, pytest.raises(WarehouseError, match=r"entry . of the inbox"):
        inbox.entries_after(0)


def test_an_inbox_of_another_version_is_refused(tmp_path: Path) -> None:
    Inbox(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.execute(f"UPDATE {VERSIONS.name} SET version = 9999")
        database.commit()
    with pytest.raises(InputError, match="is of an unknown version"):
        Inbox(tmp_path)


def test_an_inbox_is_no_link(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WarehouseError, match="cannot be written"):
        Inbox(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_parallel_submissions_are_accepted_once_each(inbox: Inbox) -> None:
    before = inbox.last()
    keys = [f"r{before}.{number % 60}" for number in range(120)]
    with ThreadPoolExecutor(6) as pool:
        accepted = list(pool.map(lambda key: inbox.submit(JOB, key=key), keys))
    there = inbox.entries_after(before)
    assert [entry.number for entry in there] == [*range(before + 1, before + 61)]
    assert {entry.number: entry for entry in accepted} == {entry.number: entry for entry in there}


SUBMITTER = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.warehouse.test_inbox import JOB
from warehouse.inbox.inbox import Inbox
with Inbox(Path(sys.argv[1])) as inbox:
    for number in range(int(sys.argv[2]), 10_000):
        job = replace(JOB, name=f"n-{number}")
        print(inbox.submit(job, key=job.name).job.name, flush=True)
"""


@pytest.mark.process
def test_acknowledged_entries_survive_kills(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    for kill in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", SUBMITTER, str(tmp_path), str(len(acknowledged))],
            stdout=subprocess.PIPE,
            text=True,
        ) as submitter:
            assert submitter.stdout
            lines = submitter.stdout
            acknowledged += [lines.readline().strip() for _ in range(5 + kill)]
            with suppress(ProcessLookupError):
                os.kill(submitter.pid, signal.SIGKILL)
            acknowledged += submitter.stdout.read().split()
    with Inbox(tmp_path) as inbox:
        there = [entry.job.name for entry in inbox.entries_after(0) if entry.job]
    assert len({*there}) == len(there)
    assert {*acknowledged} <= {*there}
    assert len(there) <= len({*acknowledged}) + 3


@pytest.mark.process
def test_entries_are_visible_to_other_processes(tmp_path: Path) -> None:
    asked = (
        "import sqlite3, sys; base = sqlite3.connect(sys.argv[1]);"
        "print(base.execute('SELECT count(*) FROM shockwave_entries').fetchone()[0]); base.close()"
    )

    def seen() -> int:
        command = [sys.executable, "-c", asked, str(tmp_path / FILE)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    with Inbox(tmp_path) as first, Inbox(tmp_path) as second:
        first.command(CommandKind.DRAIN, 0)
        assert seen() == 1  # it closes the file as if it were the last process
        second.command(CommandKind.DRAIN, 1)
        first.command(CommandKind.DRAIN, 2)
        assert seen() == 3
    assert seen() == 3


@pytest.mark.parametrize("url", URLS)
def test_the_lease_is_renewed_while_others_write(tmp_path: Path, url: str) -> None:
    others, leases = Database(tmp_path / FILE, url), Leases(tmp_path, url)
    with closing(others), closing(leases):
        token = leases.take(alone=True)
        assert token
        others.write(lambda connection: leases.renew(token))
        leases.check(token)


def test_terms_given_in_parallel_are_merged(inbox: Inbox) -> None:
    before, given = (
        inbox.last(),
        [{"budget": 2.0}, {"gpu_hours": 5.0}, {"images": ("x",)}, {"rollover": 3.0}],
    )
    with ThreadPoolExecutor(4) as threads:
        entries = [*threads.map(lambda terms: inbox.tenant("a", terms, key=str(terms)), given)]
    assert inbox.terms("a") == TenantTerms("a", 2.0, 5.0, rollover=3.0, images=("x",))
    again = [inbox.tenant("a", terms, key=str(terms)) for terms in given]
    assert (again, inbox.last()) == (entries, before + 4)
    with pytest.raises(KeyUsed, match=r"^key: was used before, for entry .* something else"):
        inbox.tenant("a", {"budget": 3.0}, key=str(given[0]))
