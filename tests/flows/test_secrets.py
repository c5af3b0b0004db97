"""A secret reaches a job's containers in a file, and appears nowhere else."""

import io
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as parquet
import pytest

from flows.api.client import Client
from flows.explain.replay import replay
from flows.prefect_server.secret import authorization
from flows.runs import snapshot
from flows.scheduler.options import ServiceOptions
from flows.scheduler.scheduler import open_run, schedule
from flows.web.api import PREFIX
from harness.dockerd import PLAIN, Dockerd, mounts, node_table, python
from harness.waiting import HANG_SECONDS, wait_for
from predictor.errors import InputError
from tasks.commands import CommandKind
from tests.flows.served import SECRET, served
from tests.flows.test_live_page import Browser
from warehouse.analytics.questions import Analytics
from warehouse.inbox.inbox import Inbox
from warehouse.store.audit import audit
from warehouse.store.folder import SNAPSHOT

LOOK = """
import hashlib, json, os, pathlib, signal, sys, time
job, file = pathlib.Path('/job'), pathlib.Path('/run/secrets/wandb')
def tried(work):
    try:
        work()
    except OSError as error:
        return error.strerror
def stop(*_):
    (job / 'saved').touch()
    os._exit(75)
signal.signal(signal.SIGTERM, stop)
found = file.stat()
print(json.dumps({
    'digest': hashlib.sha256(file.read_bytes()).hexdigest(),
    'mode': oct(found.st_mode), 'owner': [found.st_uid, found.st_gid],
    'files': os.listdir(file.parent),
    'write': tried(lambda: file.write_text('')), 'remove': tried(file.unlink),
    'again': (job / 'saved').exists(),
}), flush=True)
while not (job / 'over').exists():
    time.sleep(0.05)
"""
"""It reports all about its secret but the content, and ends on request."""


@pytest.fixture
def options(daemon: Dockerd, storage: Path, tmp_path: Path) -> ServiceOptions:
    """A service on Docker, on whose host tenants a and b have a secret of the same name."""
    read = ", ".join(f'"{path}"' for path in mounts())
    (file := tmp_path / "cluster.toml").write_text(
        f'''storage = "{storage}/jobs"
secrets = "{storage}/secrets"
images = ["{PLAIN.partition(":")[0]}:*"]
user = "1000:1000"
mounts = [{read}]
grace_seconds = 10
{node_table("one", daemon.endpoint)}'''
    )
    (storage / "jobs").mkdir(mode=0o755)
    return ServiceOptions(cluster=file, round_seconds=1.0, restart_seconds=0.5, driver="plain")


def put(storage: Path, tenant: str, name: str) -> str:
    """Put a secret where docs/jobs.md says; returns its content."""
    (folder := storage / "secrets" / tenant).mkdir(mode=0o700, parents=True, exist_ok=True)
    content = secrets.token_hex(20)
    (file := folder / name).unlink(missing_ok=True)
    file.write_text(content)
    file.chmod(0o400)
    os.chown(file, 1000, 1000)
    return content


def kept_in(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """All files below a folder, those of tables uncompressed, too."""
    for parent, _, names in os.walk(folder):  # which goes on where a folder is gone meanwhile
        for path in (Path(parent, name) for name in names):
            with suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    content = path.read_bytes()
                    yield path, content
                    if path.suffix == ".parquet":
                        rows = parquet.read_table(io.BytesIO(content)).to_pylist()
                        yield path, repr(rows).encode()


def seen_in_processes() -> Iterator[tuple[Path, bytes]]:
    """Arguments and environments of all processes, those in containers among them."""
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with suppress(OSError):  # ended meanwhile
                yield process / name, (process / name).read_bytes()


def mounted_somewhere(storage: Path) -> bool:
    """Whether any process has a secret in its file system."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile
            if f"{storage.name}/secrets/" in (process / "mountinfo").read_text():
                return True
    return False


def seen_over_http(url: str) -> Iterator[tuple[str, bytes]]:
    """All answers of the API and all pages, about job 1 where they are about a job."""
    headers = {"Authorization": authorization(SECRET)}
    with httpx.Client(base_url=url, headers=headers, timeout=HANG_SECONDS) as asked:
        paths = asked.get(f"{PREFIX}/openapi.json").json()["paths"]
        ending = (path for path in paths if "get" in paths[path] and not path.endswith("/stream"))
        asked_for = [re.sub(r"{\w+}", "1", path) for path in ending]
        answers = [asked.get(path) for path in asked_for]
    browser = Browser(url)
    with browser.client:
        browser.log_in(SECRET)
        answers += [browser.get(path) for path in ("/live", "/live/jobs/1", "/live/jobs/1/logs")]
    for answer in answers:
        assert answer.status_code == 200, (answer.url, answer.text)
        yield str(answer.url), answer.content


class Everything:
    """All observable places of a service and its Docker host."""

    def __init__(self, daemon: Dockerd, folders: Mapping[str, Path], url: str) -> None:
        self._daemon, self._folders, self._url = daemon, folders, url

    def search(self, values: Iterable[bytes]) -> dict[str, bytes]:
        """The content by place; fails if a value is in any."""
        listed = self._daemon.client().containers.list(all=True)
        containers = [container.attrs for container in listed]
        places: dict[str, list[tuple[Any, bytes]]] = {
            "inspect": [("", json.dumps(containers).encode())],
            "processes": list(seen_in_processes()),
            "http": list(seen_over_http(self._url)),
            **{name: list(kept_in(folder)) for name, folder in self._folders.items()},
        }
        parts = [(name, str(at), part) for name, found in places.items() for at, part in found]
        assert [part[:2] for part in parts for value in values if value in part[2]] == []
        return {name: b"\n".join(part for _, part in found) for name, found in places.items()}


def test_a_secret_is_in_its_file_and_nowhere_else(
    daemon: Dockerd,
    storage: Path,
    tmp_path: Path,
    options: ServiceOptions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot, "EVERY", 1)  # a snapshot with each round
    value, *others = (
        put(storage, tenant, name).encode()
        for tenant, name in (("a", "wandb"), ("a", "other"), ("b", "wandb"))
    )
    folders = {name: tmp_path / name for name in ("records", "inbox")}
    folders |= {"warehouse": tmp_path, "jobs": storage / "jobs", "docker": daemon.folder}
    asked = {"image": PLAIN, "kind": "checkpointing", "max_seconds": 600.0, "tenant": "a"}
    asked |= {"command": [python(), "-c", LOOK], "secrets": ["wandb"]}
    with (
        Inbox(tmp_path) as inbox,
        served(tmp_path) as url,
        Client(url, SECRET) as client,
    ):
        everything = Everything(daemon, folders, url)

        def go(rounds: int = 1) -> str:
            with open_run(tmp_path, inbox, options) as run:
                schedule(run, tmp_path, rounds=rounds)
                return run.name

        def answers() -> list[dict[str, Any]]:
            lines = b"".join(client.read_logs("1")).splitlines()
            return [json.loads(line) for line in lines if line.startswith(b"{")]

        go(0)
        client.submit(asked)
        name = go()
        wait_for(lambda: len(answers()) == 1)
        (container,) = daemon.containers(name)
        mounted = {mount["Destination"]: mount for mount in container.attrs["Mounts"]}
        assert not mounted["/run/secrets/wandb"]["RW"]
        assert mounted["/run/secrets/wandb"]["Source"] == f"{storage}/secrets/a/wandb"
        assert mounted_somewhere(storage)
        found = everything.search([value, *others])
        digest, searched = sha256(value).hexdigest().encode(), ("http", "docker")
        assert all(
            digest in found[at] for at in searched
        )  # so the search would find the value, too
        assert all(b"wandb" in found[at] for at in ("inspect", "records", "inbox"))

        client.send_command(CommandKind.HOLD, "1")
        while daemon.containers(name):
            go()
        assert not mounted_somewhere(storage)
        everything.search([value, *others])

        others += [(new := put(storage, "a", "wandb").encode())]
        client.send_command(CommandKind.RELEASE, "1")
        while len(answers()) < 2:
            go()
        everything.search([value, *others])
        (storage / "jobs" / name / "job-1" / "over").touch()
        while client.get_job("1").status != "finished":
            go()
        assert daemon.containers(name) == []
        assert not mounted_somewhere(storage)
        everything.search([value, *others])
        first, again = answers()
    assert first == {
        "digest": sha256(value).hexdigest(),
        "mode": "0o100400",
        "owner": [1000, 1000],
        "files": ["wandb"],
        "write": "Read-only file system",
        "remove": "Read-only file system",
        "again": False,
    }
    assert again == first | {"again": True, "digest": sha256(new).hexdigest()}
    assert (tmp_path / SNAPSHOT).exists()
    assert audit(tmp_path, name).findings == ()
    assert replay(name, tmp_path).differences == []


def test_what_cannot_start_is_refused_or_ends_with_its_reason_and_costs_nothing(
    daemon: Dockerd, storage: Path, tmp_path: Path, options: ServiceOptions
) -> None:
    (storage / "secrets").mkdir()
    asked = {"image": PLAIN, "kind": "opaque", "max_seconds": 60.0, "secrets": ["wandb"]}
    with (
        Inbox(tmp_path) as inbox,
        served(tmp_path) as url,
        Client(url, SECRET) as client,
    ):
        with open_run(tmp_path, inbox, options) as run:
            job = {**asked, "command": ["true"], "tenant": "a"}
            with pytest.raises(InputError, match="secrets: there is no secret 'wandb'"):
                client.submit(job)
            with pytest.raises(InputError, match="image: no node can start it: no such image"):
                client.submit({**job, "image": PLAIN.replace("plain", "plane")})
            put(storage, "a", "wandb")
            client.submit(job)
            (storage / "secrets/a/wandb").unlink()
            while not (events := [e for e in client.list_events() if e.kind == "unstarted"]):
                schedule(run, tmp_path, rounds=1)
            schedule(run, tmp_path, rounds=2)
        assert events[0].reason is not None
        assert events[0].reason.endswith(f"source path does not exist: {storage}/secrets/a/wandb")
        assert daemon.containers(run.name) == []
        assert [tenant.gpu_hours for tenant in client.list_tenants()] == [0.0]
    seconds = Analytics(tmp_path).query("SELECT DISTINCT seconds FROM leases")[1]
    assert seconds == [(0.0,)]
