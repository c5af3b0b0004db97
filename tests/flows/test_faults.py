"""Whole runs of real training jobs under faults, and the watch over their invariants."""

from pathlib import Path
from typing import Any

import pytest

from harness.dockerd import dockerd
from harness.faults.docker import DockerMachinery
from harness.faults.jobs import workload
from harness.faults.trial import STORAGE_BYTES, file_system, trial
from harness.faults.watch import Watch
from tests.daemons import need_daemon

SHARE, JOBS = 0.7, (1, 2, 4, 5)
"""Of the jobs' epochs, and the jobs, of each mode: they are to last for 14 faults, not for 200."""


@pytest.mark.docker
def test_nothing_is_lost_or_doubled_by_a_fault_of_every_kind(tmp_path: Path) -> None:
    need_daemon()
    with file_system(STORAGE_BYTES) as small, dockerd() as own:
        machinery, jobs = DockerMachinery(own), workload(SHARE, JOBS, ("cpu",))
        found = trial(machinery, small, tmp_path, jobs, faults=14, seed=7)
    assert found.broken == []
    assert found.injected.total() == len(found.injected) == 14  # every kind


def container(name: str, **labels: str) -> dict[str, Any]:
    """A row of Docker's list of containers."""
    own = {f"shockwave.{key}": text for key, text in labels.items()}
    return {"Id": name, "Names": [f"/{name}"], "Labels": own}


def test_the_watch_reports_shared_gpus_doubled_leases_and_missing_labels() -> None:
    def broken(*rows: dict[str, Any]) -> list[str]:
        watch = Watch(daemon=None)
        watch.look([*rows])
        watch.look([*rows])  # what is still broken is reported once
        return watch.broken

    first = container("a", run="x", job="1", round="3", gpus="0,1")
    assert broken(first, container("b", run="x", job="2", round="3", gpus="2")) == []
    assert broken(first, container("postgres"), {"Id": "c", "Names": None, "Labels": None}) == []
    assert broken(first, container("b", run="x", job="2", round="3", gpus="1")) == [
        "GPU 1 is in containers of x 1 and x 2"
    ]
    assert broken(first, container("b", run="x", job="1", round="4", gpus="2")) == [
        "x 1 runs in leases of round 3 and round 4"
    ]
    assert broken(first, container("shockwave-x-job-1")) == [
        "container shockwave-x-job-1 lacks the labels "
        "shockwave.gpus, shockwave.job, shockwave.round, shockwave.run"
    ]
