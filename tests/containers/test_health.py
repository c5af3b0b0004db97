"""Nodes that answer and are unusable: the findings, and their consequences."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from containers.docker.daemon import Daemon
from containers.docker.fleet import Fleet
from containers.docker.health import (
    Room,
    find_lost_here,
    find_lost_there,
    find_problem,
    measure_clock_skew,
)
from containers.docker.nodes import Gpu, Node, Nodes
from harness.dockerd import Dockerd, cluster


@pytest.mark.parametrize(
    ("there", "skew"),
    [("00:00:09.5Z", -0.5), ("00:00:10Z", 0.0), ("00:00:12Z", 0.0), ("00:00:17.5Z", 4.5)],
)
def test_a_clock_is_off_by_what_latency_does_not_explain(there: str, skew: float) -> None:
    info = {"SystemTime": f"1970-01-01T{there}"}
    assert measure_clock_skew(info, 10.0, 13.0) == pytest.approx(skew)


def test_a_gpu_that_is_not_listed_is_lost() -> None:
    listed = ["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-1", "nvidia.com/gpu=all", "amd.com/gpu=2"]
    info = {"DiscoveredDevices": [{"Source": "cdi", "ID": name} for name in listed]}
    assert find_lost_there(["0", "2", "GPU-1"], info) == ("2",)
    there = ["nvidia.com/gpu=0", "amd.com/gpu=2", "nvidia.com/gpu=GPU-2", "amd.com/gpu=3", "a/b=0"]
    assert find_lost_there(there, info) == ("nvidia.com/gpu=GPU-2", "amd.com/gpu=3")
    assert find_lost_there(["0", "2"], {"DiscoveredDevices": None}) == ()
    assert find_lost_there(["0", "2"], {}) == ()
    assert find_lost_here([]) == ()


def test_there_is_room_again_when_twice_as_much_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [100, 99, 150, 199, 200, 100]
    found = (SimpleNamespace(f_bavail=mib, f_frsize=2**20) for mib in free)
    monkeypatch.setattr(os, "statvfs", lambda path: next(found))
    room = Room(Path("/"), 100 * 2**20)
    problems = [room.problem() for _ in free]
    assert [bool(text) for text in problems] == [False, True, True, True, False, False]
    assert problems[1] == "the storage has 99 MiB left"


def test_a_daemon_is_asked_for_its_clock(
    daemon: Dockerd, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = cluster(daemon, storage).nodes
    asked = Daemon(node)
    assert find_problem(node, asked) == ""
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 60.0)
    assert find_problem(node, asked) in ("its clock is 59 s behind", "its clock is 60 s behind")


@contextmanager
def host(says: dict[str, Any]) -> Iterator[str]:
    """The endpoint of a host with GPUs and Docker 28, whose state is given."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"ApiVersion": "1.50", **says}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"tcp://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.process
def test_a_host_whose_gpu_falls_off_the_bus_or_whose_clock_is_off_is_reported(
    storage: Path,
) -> None:
    def has(*gpus: str, ahead: float = 0.0) -> None:
        says["DiscoveredDevices"] = [{"Source": "cdi", "ID": f"nvidia.com/gpu={g}"} for g in gpus]
        says["SystemTime"] = (datetime.now(UTC) + timedelta(seconds=ahead)).isoformat()

    says: dict[str, Any] = {}
    with host(says) as endpoint:
        gpus = tuple(Gpu(device=name) for name in "012")
        nodes = Nodes((Node("one", endpoint, "h100", "image", gpus),), storage, "1000:1000")
        fleet, lacking = Fleet(nodes, "run"), Fleet(replace(nodes, least_free=2**62), "run")
        has("0", "1", "2")
        assert fleet.problems() == {}
        has("0", "2")
        assert fleet.problems() == {0: "GPU 1 fell off the bus"}
        has("1")
        assert fleet.problems() == {0: "GPUs 0, 2 fell off the bus"}
        has("0", "1", "2", ahead=3_600.0)
        assert fleet.problems()[0].endswith("s ahead")
        has("0", "1", "2")
        assert fleet.problems() == {}
        assert lacking.problems()[0].startswith("the storage has ")
        fleet.close()
        lacking.close()
