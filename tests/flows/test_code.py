"""Code of jobs: packed where it is submitted, stored by its tenant, found by the job in /code."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import httpx
import pytest

from flows.api.client import Client
from flows.api.code import pack, store_fields
from flows.prefect_server.secret import authorization
from flows.scheduler.options import ServiceOptions
from harness.dockerd import PLAIN, Dockerd, node_table, python
from harness.waiting import HANG_SECONDS, wait_for
from predictor.errors import InputError
from tests.flows.served import SECRET, drive, head, served
from warehouse.inbox.inbox import Inbox
from warehouse.inbox.tokens import Role, Tokens


def packed(code: str | Path, base: Path = Path()) -> tuple[str, bytes]:
    with pack(str(code), base) as (origin, archive):
        archive.seek(0)
        return origin, archive.read()


def names(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        return sorted(member.name for member in tar if member.isreg())


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=ann", "-c", "user.email=ann@example")
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (folder := tmp_path / "repository").mkdir()
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("*.bin\n")
    (folder / "train.py").write_text("print('first')")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "tag", "v1")
    (folder / "train.py").write_text("print('second')")
    git(folder, "commit", "-q", "-a", "-m", "second")
    return folder


def test_a_folder_is_packed_alike_whenever_it_is(tmp_path: Path) -> None:
    (folder := tmp_path / "mine").mkdir()
    (folder / "b.py").write_text("")
    os.link(folder / "b.py", folder / "a.py")
    first = packed("mine", tmp_path)
    os.utime(folder / "b.py", (0, 0))
    assert packed(folder) == first
    assert (first[0], names(first[1])) == ("mine", ["a.py", "b.py"])
    (tmp_path / "mine.tar.gz").write_bytes(first[1])
    assert packed("mine.tar.gz", tmp_path) == ("mine.tar.gz", first[1])
    (folder / "c.py").symlink_to("/etc/hostname")
    with pytest.raises(InputError, match=r"c\.py is a link or a device"):
        packed(folder)
    with pytest.raises(InputError, match="'none' cannot be read: No such file"):
        packed("none", tmp_path)


def test_a_work_tree_is_packed_without_what_git_ignores(repository: Path) -> None:
    for name in ("data.bin", "new.py"):
        (repository / name).write_text("")
    assert names(packed(repository)[1]) == [".gitignore", "new.py", "train.py"]


def test_work_trees_below_a_folder_are_packed_as_work_trees(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "secret.bin").write_text("secret")
    (folder := tmp_path / "mine" / "deep").mkdir(parents=True)
    (folder / "own.py").write_text("")
    repository.rename(folder / "repository")
    inner = [f"deep/repository/{name}" for name in (".gitignore", "train.py")]
    assert names(packed(tmp_path / "mine")[1]) == ["deep/own.py", *inner]


def test_what_git_cannot_list_is_not_packed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "secret.bin").write_text("secret")
    (inner := repository / "inner").mkdir()
    (inner / "new.py").write_text("")
    (plain := tmp_path / "plain").mkdir()
    (plain / "new.py").write_text("")
    for name, problem in (
        ("GIT_TEST_ASSUME_DIFFERENT_OWNER", "git cannot list .*: git config .*safe.directory"),
        ("PATH", "is in a work tree of git, which is not installed"),
    ):
        with monkeypatch.context() as patched:
            patched.setenv(name, "1")
            for folder in (repository, inner):
                with pytest.raises(InputError, match=problem):
                    packed(folder)
            assert names(packed(plain)[1]) == ["new.py"]


def test_links_of_a_revision_are_refused_where_it_is_packed(repository: Path) -> None:
    (repository / "link.py").symlink_to("train.py")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "link")
    git(repository, "tag", "v2")
    with pytest.raises(InputError, match=r"'link\.py' of v2 is a link"):
        packed(f"git+file://{repository}@v2")


def test_a_revision_is_packed_by_its_commit(repository: Path) -> None:
    commit = git(repository, "rev-parse", "v1")
    origin, archive = packed(f"git+file://{repository}@v1")
    assert origin == f"git+file://{repository}@{commit}"
    assert packed(f"git+file://{repository}@{commit}") == (origin, archive)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        found = tar.extractfile("train.py")
        assert found
        assert found.read() == b"print('first')"
    for code, problem in (
        (f"git+file://{repository}@v9", "v9 of file://.* cannot be fetched: .*v9"),
        (f"git+file://{repository}", "is not a revision of a repository"),
        ("git+https://ann:secret@host/r@v1", "names a user or a password"),
        ("git+ssh://ann:secret@host/r@v1", "names a user or a password"),
        ("git+https://secret@host/r@v1", "names a user or a password"),
        ("git+ssh://git@127.0.0.1:1/r@v1", "cannot be fetched"),
        ("git+HTTPS://secret@host/r", "names a user or a password"),
        ("git+https://[host/r@v1", "cannot be fetched"),
        ("git+ext::touch% x@v1", "is not a revision"),
        ("git+ext::touch@v1", "cannot be fetched: fatal: transport 'ext' not allowed"),
        ("git+--upload-pack=touch@v1", "cannot be fetched"),
    ):
        with pytest.raises(InputError, match=problem) as refused:
            packed(code)
        assert "secret" not in str(refused.value)


SHOW = """
import os, pathlib, train
print(os.getcwd(), os.environ["SHOCKWAVE_CODE"].partition("#")[0])
try:
    pathlib.Path("made").touch()
except OSError as error:
    print(error.strerror)
"""


def test_a_job_finds_its_tenant_s_code(
    daemon: Dockerd, storage: Path, tmp_path: Path, repository: Path
) -> None:
    (file := tmp_path / "cluster.toml").write_text(
        f'''{head(storage)}images = ["{PLAIN.partition(":")[0]}:*"]
{node_table("one", daemon.endpoint)}'''
    )
    options = ServiceOptions(cluster=file, round_seconds=1.0, restart_seconds=0.5, driver="plain")
    job = {"image": PLAIN, "kind": "opaque", "max_seconds": 600.0, "code": "repository"}
    job |= {"command": [python(), "-c", SHOW], "tenant": "a"}
    with Inbox(tmp_path) as inbox, served(tmp_path) as url, Client(url, SECRET) as client:

        def go(rounds: int) -> None:
            drive(tmp_path, inbox, options, rounds)

        go(0)
        fields = store_fields(job, client, tmp_path)
        client.submit(fields)
        go(1)
        wait_for(lambda: b"system" in b"".join(client.read_logs("1")))
        said = b"".join(client.read_logs("1")).decode().splitlines()
        assert said[-3:] == ["second", "/code repository", "Read-only file system"]
        (container,) = daemon.containers(inbox.run)
        source = {at["Destination"]: at["Source"] for at in container.attrs["Mounts"]}["/code"]
        digest = str(fields["code"])[-64:]
        assert source == f"{storage}/code/a/{digest}"

        for change, problem in (
            ({"tenant": "b"}, "tenant b has stored no code"),
            ({"code": "repository"}, "'repository' is not stored by a service"),
            ({"code": f"x#sha256={digest[:-1]}"}, "is not stored by a service"),
            ({"code": f"x#sha256={'0' * 64}"}, "has stored no code 000000000000"),
            ({"environment": {"SHOCKWAVE_CODE": fields["code"]}}, "is set by code"),
        ):
            with pytest.raises(InputError, match=problem):
                client.submit(fields | change)

        with Tokens(tmp_path) as tokens:
            given = {
                "reader": tokens.add("reader", Role.READER),
                "tenant": tokens.add("bob", Role.TENANT, "b"),
            }
        archive = packed(repository)[1]
        with httpx.Client(base_url=url, timeout=HANG_SECONDS) as asked:
            for who, query, status in (
                ("reader", "", 403),
                ("tenant", "?tenant=a", 403),
                ("tenant", "?tenant=..", 403),
                ("tenant", "", 201),
            ):
                headers = {"Authorization": authorization(given[who])}
                answer = asked.post(f"/v1/code{query}", content=archive, headers=headers)
                assert answer.status_code == status, answer.text
            assert answer.json() == {"sha256": digest}
            headers = {"Authorization": authorization(SECRET)}
            answer = asked.post("/v1/code?tenant=..", content=archive, headers=headers)
            assert answer.status_code == 422
            assert answer.json()["place"] == "tenant"
        with Client(url, given["tenant"]) as other:
            assert other.submit(fields | {"tenant": "b"}).kind == "submit"
        assert sorted(os.listdir(storage / "code")) == ["a", "b"]
