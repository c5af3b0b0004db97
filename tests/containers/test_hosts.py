"""Jobs on several hosts are started, read and stopped by host, with the same events as together."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from containers.runtime import EventKind, Lease
from harness.dockerd import COUNTING, Dockerd, cluster
from tests.containers.driver import driven, long

pytestmark = pytest.mark.docker


def test_each_host_is_a_part_of_a_launch_an_observation_and_a_preemption(
    daemon: Dockerd, storage: Path
) -> None:
    hosts = dict.fromkeys(("one", "two"), daemon.endpoint)
    nodes = cluster(daemon, storage, nodes=hosts, gpus=2, image=COUNTING, grace_seconds=1.0)
    calls: list[tuple[str, list[str]]] = []

    def each(name: str, function: Callable[[Any], Any], parts: Mapping[str, Any]) -> list[Any]:
        calls.append((name, [*parts]))
        return [function(part) for part in parts.values()]

    with driven(nodes, "hosts", [long(0), long(1), long(2)]) as driver:
        runtime = driver.runtime
        leases = [Lease(0, (2,)), Lease(1, (0,)), Lease(2, (3,))]
        started = runtime.launch(0, leases, each)
        assert [(event.job_id, event.kind, event.gpus) for event in started] == [
            (lease.job_id, EventKind.STARTED, lease.gpus) for lease in leases
        ]
        runtime.advance(None)
        seen = runtime.observe(each)
        assert [entry.job_id for entry in seen.progress] == [0, 1, 2]
        reasons = {2: "second", 1: "first", 0: "third"}
        stopped = runtime.preempt(reasons, each)
        # A reason may go on with what a job did not do in its second of grace.
        told = [(event.job_id, event.reason.partition(";")[0]) for event in stopped]
        assert told == [*reasons.items()]
        assert daemon.containers("hosts") == []
    name, parts = calls.pop(0)
    assert (name, parts) == ("start", ["two", "one"])  # in the order of the leases
    assert [(name, sorted(parts)) for name, parts in calls] == [
        ("read", ["one", "two"]),
        ("stop", ["one", "two"]),
    ]
