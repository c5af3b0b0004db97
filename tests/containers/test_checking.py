"""Checks of hosts, on a real daemon."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from containers.docker.checking import Finding, check_before_run, check_cluster
from containers.docker.health import parse_system_time
from containers.docker.nodes import Gpu, Nodes
from harness.dockerd import Dockerd, cluster, with_slots
from predictor.errors import InputError


def findings(nodes: Nodes) -> dict[tuple[str, str], Finding]:
    """What was found, by node and check."""
    return {(finding.node, finding.check): finding for finding in check_cluster(nodes)}


def two(daemon: Dockerd, storage: Path, *gpus: tuple[str, ...]) -> Nodes:
    """One daemon under two names, with these GPUs."""
    nodes = cluster(daemon, storage, nodes=dict.fromkeys(("one", "two"), daemon.endpoint), gpus=2)
    given = zip(nodes.nodes, gpus, strict=True)
    return replace(
        nodes,
        nodes=tuple(
            replace(node, gpus=tuple(Gpu(device=device) for device in mine)) for node, mine in given
        ),
    )


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01T12:00:00.123456789Z",
        "2026-03-01T14:00:00.123456789+02:00",
        "2026-03-01T06:30:00.123456-05:30",
        "2026-03-01T12:00:00.1234Z",
    ],
)
def test_the_time_of_a_host_is_read_with_its_offset(text: str) -> None:
    noon = datetime.fromisoformat("2026-03-01T12:00:00+00:00").timestamp()
    assert parse_system_time(text) == pytest.approx(noon + 0.123456, abs=1e-3)


def test_a_sound_cluster_is_sound_and_tells_that_two_nodes_are_one_daemon(
    daemon: Dockerd, storage: Path
) -> None:
    datasets = storage / "data"
    datasets.mkdir()
    (datasets / "LM").mkdir()
    endpoints = dict.fromkeys(("one", "two"), daemon.endpoint)
    jobs = storage / "jobs"
    nodes = cluster(daemon, jobs, nodes=endpoints, gpus=1, datasets=datasets)
    nodes = with_slots(nodes, 0.4)
    found = findings(nodes)
    assert [finding for finding in found.values() if not finding.sound] == []
    assert found["one", "daemon"].found == "its own"
    assert found["two", "daemon"].found == "is the daemon of one, with other GPUs"
    assert found["one", "versions"].found.startswith(
        f"Engine {daemon.client().version()['Version']}, "
    )
    assert list(jobs.iterdir()) == []
    check_before_run(nodes)


def test_slots_of_a_daemon_are_reckoned_over_all_its_nodes(daemon: Dockerd, storage: Path) -> None:
    processors = daemon.client().info()["NCPU"]
    nodes = with_slots(two(daemon, storage, ("", ""), ("", "")), 0.3 * processors)
    found = findings(nodes)
    assert found["one", "gpus"].sound
    assert not found["two", "gpus"].sound
    far = Gpu(cpuset=f"0,{processors}", cpus=0.1)
    outside = replace(nodes, nodes=tuple(replace(node, gpus=(far,) * 2) for node in nodes.nodes))
    there = findings(outside)["one", "gpus"]
    assert not there.sound
    assert there.found.startswith(f"a cpuset names processor {processors}, and there are")
    expected = f"4 emulated GPUs take {1.2 * processors:g} of {processors} processors"
    assert found["two", "gpus"].found == expected


def test_a_gpu_of_one_daemon_is_not_given_twice(daemon: Dockerd, storage: Path) -> None:
    shared = "GPU-0a"  # an index and a UUID may be the same GPU
    nodes = two(daemon, storage, ("0", "1"), ("GPU-0a", "GPU-0b"))
    finding = findings(nodes)["two", "daemon"]
    assert (finding.sound, finding.found) == (
        False,
        f"is the daemon of node one, and both have GPU {shared}",
    )
    assert finding.remedy.startswith("give each GPU once")
    with pytest.raises(InputError, match="node two: is the daemon of node one"):
        check_before_run(nodes)
    named = two(daemon, storage, ("0", "1"), ("nvidia.com/gpu=GPU-0a", "nvidia.com/gpu=2"))
    assert "both have GPU nvidia.com/gpu=GPU-0a" in findings(named)["two", "daemon"].found
    for first, second in (
        (("0", "1"), ("2", "3")),
        (("0", "1"), ("amd.com/gpu=0", "amd.com/gpu=GPU-1")),
    ):
        apart = two(daemon, storage, first, second)
        assert findings(apart)["two", "daemon"].sound
        check_before_run(apart)


def test_a_daemon_without_the_device_interface_is_reported(daemon: Dockerd, storage: Path) -> None:
    folders = daemon.client().info().get("CDISpecDirs") or []  # none before Docker 25
    finding = findings(two(daemon, storage, ("amd.com/gpu=0",), ("a/b=0",)))["one", "gpus"]
    assert finding.sound == bool(folders)
    assert finding.found == f"1 GPUs, CDI {'in ' + ', '.join(folders) if folders else 'is off'}"


@pytest.mark.parametrize("there", [False, True], ids=["missing", "empty"])
def test_missing_data_sets_are_reported(daemon: Dockerd, storage: Path, there: bool) -> None:
    datasets = storage / "data"
    if there:
        datasets.mkdir()
    found = findings(cluster(daemon, storage / "jobs", gpus=1, datasets=datasets))
    finding = found["one", "container"]
    assert not finding.sound
    assert str(datasets) in finding.found
    assert finding.remedy
    assert list((storage / "jobs").iterdir()) == []


def test_a_missing_network_is_reported(daemon: Dockerd, storage: Path) -> None:
    finding = findings(cluster(daemon, storage, gpus=1, network="jobs"))["one", "network"]
    assert (finding.sound, finding.found) == (False, "network jobs not found")
    assert finding.remedy.startswith("docker network create")
