"""Networks, volumes and images of a registry, as jobs name them; on a real daemon and registry."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from containers.docker.checking import check_cluster, pull_images
from containers.docker.grants import JobNetwork, Volume
from containers.docker.own_images import check_present
from containers.runtime import EventKind
from harness.dockerd import OUTSIDE, PLAIN, Dockerd, cluster, python
from harness.waiting import HANG_SECONDS, wait_for
from predictor.errors import InputError
from predictor.options import JobOptions
from tests.containers.driver import Driver, driven
from tests.containers.test_kinds import log, others
from tests.daemons import give_up

REGISTRY = "127.0.0.1:5099"
"""In the daemon's namespace; daemons need no TLS for registries of their own machine."""
PULLED = f"{REGISTRY}/team/plain:1"

USER, PASSWORD = "puller", "swordfish"
HASHED = "$2y$04$B.u6nl7NYqOf7tJR2uZzF.AjJU4Z48yItKDm1wtGIwDqY0SD3kpoi"

FETCH = """
import os, pathlib, urllib.request
data = urllib.request.urlopen("http://data.example/numbers", timeout=20).read()
pathlib.Path("/volumes/results/sum").write_text(str(sum(map(int, data.split()))))
try:
    pathlib.Path("/volumes/shared/made").write_text("")
except OSError as error:
    print(error.strerror, os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize)
"""
"""The name of the machine is known to the proxy alone."""


def test_a_job_gets_the_network_and_the_volumes_that_it_names(
    daemon: Dockerd, storage: Path
) -> None:
    results, shared = storage / "results", storage / "shared"
    for folder in (results, shared):
        folder.mkdir()
    os.chown(results, 1000, 1000)
    nodes = cluster(
        daemon,
        storage / "jobs",
        gpus=1,
        networks=(JobNetwork("internet", ("team-*",), "egress", f"http://{OUTSIDE}:8099"),),
        volumes=(
            Volume("results", ("team-a",), results, writable=True),
            Volume("shared", path=shared),
        ),
    )
    options = JobOptions(network="internet", volumes=("results", "shared"))
    spec = replace(others(0, python(), "-c", FETCH, limit=60.0), tenant="team-a", options=options)
    missing = {f.check: f for f in check_cluster(nodes) if not f.sound}
    assert [(*missing, missing["network internet"].remedy)] == [
        ("network internet", "docker network create egress")
    ]
    with driven(nodes, "granted", [spec]) as driver:
        driver.play({0: (0,)})
        assert driver.last(0).kind is EventKind.UNSTARTED
        assert driver.last(0).reason == "could not be started: network egress not found"
        daemon.client().networks.create("egress")
        with serving(daemon, storage / "served"):
            driver.dispatch({0: (0,)})
            driver.until_over()
    assert driver.last(0).kind is EventKind.FINISHED, log(nodes, "granted", 0)
    assert (results / "sum").read_text() == "42"
    assert f"Read-only file system {2**30}" in log(nodes, "granted", 0)
    assert [finding for finding in check_cluster(nodes) if not finding.sound] == []
    daemon.client().networks.get("egress").remove()


@contextmanager
def serving(daemon: Dockerd, folder: Path) -> Iterator[None]:
    """A proxy on the machine outside that serves files by the names of other machines."""
    data = folder / "http:" / "data.example"
    data.mkdir(parents=True)
    (data / "numbers").write_text("40 2")
    serve = (python(), "-m", "http.server", "8099", "--directory", str(folder))
    with serving_outside(daemon, 8099, *serve):
        yield


@contextmanager
def serving_outside(daemon: Dockerd, port: int, *program: str) -> Iterator[None]:
    """A program on the machine outside that listens at a port."""
    command = ["ip", "netns", "exec", "outside", *program]
    with subprocess.Popen(
        daemon.within(*command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            connect = f"import socket; socket.create_connection(('{OUTSIDE}', {port}))"
            asked = daemon.within(python(), "-c", connect)
            wait_for(
                lambda: subprocess.run(asked, capture_output=True).returncode,
                lambda code: code == 0,
                every=0.05,
            )
            yield
        finally:
            server.kill()


def test_a_job_gets_only_what_its_tenant_may_name(daemon: Dockerd, storage: Path) -> None:
    nodes = cluster(
        daemon,
        storage,
        networks=(JobNetwork("internet", ("team-*",), "egress"),),
        volumes=(Volume("results", ("team-a",), Path("/srv/results")),),
    )
    for options, tenant, problem in (
        (JobOptions(network="lan"), "team-b", "'lan' is no network for jobs of tenant 'team-b'"),
        (JobOptions(network="internet"), "b", "'internet' is no network for jobs of tenant 'b'"),
        (JobOptions(volumes=("results",)), "b", "'results' is no volume for jobs of tenant 'b'"),
    ):
        spec = replace(others(0, "true", limit=60.0), options=options, tenant=tenant)
        with pytest.raises(InputError, match=problem), driven(nodes, "refused", [spec]):
            pass
    with pytest.raises(InputError, match=r"would show .* to every job"):
        replace(nodes, volumes=(Volume("all", path=storage.parent),))


def test_an_image_is_pulled_where_it_is_missing(
    daemon: Dockerd, storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = cluster(daemon, storage, images=(f"{REGISTRY}/*",), grace_seconds=1.0)
    pulling = replace(nodes, pull=True)
    spec = replace(others(0, "true", limit=60.0), image=PULLED, model=PULLED)
    absent = replace(spec, image=f"{REGISTRY}/team/other:1")
    with registry(daemon, tmp_path):
        client = daemon.client()
        client.images.get(PLAIN).tag(PULLED)
        credentials = {"username": USER, "password": PASSWORD}
        pushed = client.images.push(PULLED, auth_config=credentials)
        assert "error" not in pushed, pushed
        client.images.remove(PULLED)

        with pytest.raises(InputError, match=r"no node can start it: .*build or load the image"):
            check_present(nodes, spec)
        with pytest.raises(InputError, match=r"no node can start it: .*no basic auth credentials"):
            check_present(pulling, spec)
        log_in(tmp_path, monkeypatch)
        check_present(pulling, spec)
        with pytest.raises(InputError, match=r"no node can start it: .*manifest unknown"):
            check_present(pulling, absent)
        with driven(pulling, "pulled", [spec, replace(absent, job_id=1)]) as driver:
            until_ended(driver, 0, (0,))
            assert driver.last(0).kind is EventKind.FINISHED
            first, *_ = [event for event in driver.events if event.kind is EventKind.UNSTARTED]
            assert first.reason == (
                f"could not be started: the pull of image {PULLED} on node one has begun"
            )
            assert driver.kinds(0)[-2:] == ["resumed", "finished"]
            until_said(driver, 1, "could not be pulled")
        client.images.remove(PULLED)
        (finding,) = pull_images(pulling, [PULLED])
        assert finding.sound
        assert finding.found == client.images.get(PULLED).id
        (finding,) = pull_images(pulling, [absent.image])
        assert not finding.sound
        client.images.remove(PULLED)


def until_ended(driver: Driver, job_id: int, gpus: tuple[int, ...]) -> None:
    """Give a job GPUs until it ends for good."""
    deadline = time.monotonic() + HANG_SECONDS
    while EventKind.FINISHED not in driver.kinds(job_id):
        assert time.monotonic() < deadline, driver.events
        driver.play({job_id: gpus})


def until_said(driver: Driver, job_id: int, words: str) -> None:
    """Give a job a GPU until an event of it says something."""
    deadline = time.monotonic() + HANG_SECONDS
    while not any(words in event.reason for event in driver.events if event.job_id == job_id):
        assert time.monotonic() < deadline, driver.events
        driver.play({job_id: (1,)})


def log_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave credentials as `docker login` does."""
    from base64 import b64encode

    entry = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {REGISTRY: {"auth": entry}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))


@contextmanager
def registry(daemon: Dockerd, folder: Path) -> Iterator[None]:
    """A registry on the daemon's machine that asks for a password."""
    if shutil.which("docker-registry") is None:
        give_up("no docker-registry on this machine")
    (folder / "users").write_text(f"{USER}:{HASHED}\n")
    storage = {"filesystem": {"rootdirectory": str(folder / "registry")}}
    access = {"htpasswd": {"realm": "shockwave", "path": str(folder / "users")}}
    settings = {"version": "0.1", "storage": storage, "http": {"addr": REGISTRY}, "auth": access}
    (folder / "registry.yml").write_text(json.dumps(settings))
    command = daemon.within("docker-registry", "serve", str(folder / "registry.yml"))
    with (
        (folder / "log").open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out) as server,
    ):
        try:
            host, port = REGISTRY.split(":")
            asked = daemon.within(
                python(), "-c", f"import socket; socket.create_connection(('{host}', {port}))"
            )
            wait_for(
                lambda: subprocess.run(asked, capture_output=True).returncode,
                lambda code: code == 0,
                every=0.05,
            )
            yield
        finally:
            server.kill()
