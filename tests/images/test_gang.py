"""Gangs: workers of one container, and of several that meet over the network."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from harness.waiting import HANG_SECONDS
from tests.images.trainers import (
    progress,
    put_job,
    run,
    same,
    start,
    train_here,
    trained,
    wait_for,
    weights,
)
from trainer.collective import first_rank
from trainer.errors import InvalidInput
from trainer.job import read_job
from trainer.place import WorkerPlace, read_place


def nodes(workers: list[int]) -> list[dict[str, str]]:
    """Variables of containers with these numbers of workers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "NNODES": str(len(workers)),
            "NODE_RANK": str(rank),
            "LOCAL_WORKERS": str(count),
        }
        for rank, count in enumerate(workers)
    ]


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def test_workers_share_the_batch(tmp_path: Path) -> None:
    """Three workers equal a single worker up to rounding; batches of five have uneven shares."""
    job = {"mode": "accordion", "batch_size": 5, "samples_per_epoch": 32, "epochs": 3}
    alone = put_job(tmp_path / "alone", **job)
    gang = put_job(tmp_path / "gang", scale_factor=3, **job)
    assert train_here(alone) == 0
    assert run(gang)[0] == 0
    for one, other in zip(trained(alone), trained(gang), strict=True):
        assert one.keys() == other.keys()
        for key in ("batch_size", "steps", "samples"):
            assert one[key] == other[key]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert one["gradient_norm"] == pytest.approx(other["gradient_norm"], rel=1e-3)
    left, right = weights(alone), weights(gang)
    assert all(left[name].sub(right[name]).abs().max() < 1e-3 for name in left)


def test_several_nodes(tmp_path: Path) -> None:
    """Two containers, one of them stopped: both stop after the same step.

    Only the first one's folder is written; the other need not see it.
    """
    job = {"scale_factor": 2, "model": "ResNet-18", "epochs": 3, "samples_per_epoch": 64}
    straight = put_job(tmp_path / "straight", **job)
    assert train_here(straight) == 0
    folders = [put_job(tmp_path / name, **job) for name in ("first", "second")]
    processes = [
        start(folder, **variables) for folder, variables in zip(folders, nodes([1, 1]), strict=True)
    ]
    wait_for((folders[0] / "progress.json").exists, processes[0])
    processes[1].send_signal(signal.SIGTERM)
    said = [process.communicate(timeout=HANG_SECONDS)[1] for process in processes]
    assert [process.returncode for process in processes] == [75, 75], said
    assert progress(folders[0])["epoch"] < 3
    assert [path.name for path in folders[1].iterdir()] == ["job.json"]
    assert train_here(folders[0]) == 0
    same(folders[0], straight)


def test_a_worker_dies(tmp_path: Path) -> None:
    """The others cannot go on: the container ends at once, with the worker's code."""
    folder = put_job(tmp_path / "job", scale_factor=2, epochs=10_000)
    process = start(folder)
    wait_for((folder / "progress.json").exists, process)
    workers = children(process.pid)
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGKILL)
    process.communicate(timeout=HANG_SECONDS)
    assert process.returncode in (1, 137)
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def test_the_supervisor_dies(tmp_path: Path) -> None:
    """Its workers end with it; else they would train on beside their successors."""
    folder = put_job(tmp_path / "job", scale_factor=2, epochs=10_000)
    process = start(folder)
    wait_for((folder / "progress.json").exists, process)
    workers = children(process.pid)
    process.kill()
    process.communicate(timeout=HANG_SECONDS)

    def alive(worker: int) -> bool:
        try:
            stat = Path(f"/proc/{worker}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return stat.rpartition(")")[2].split()[0] != "Z"

    deadline = time.monotonic() + HANG_SECONDS
    while any(alive(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"LOCAL_WORKERS": "3"}, "LOCAL_WORKERS: 3 workers, but the job has 2"),
        ({"NNODES": "two"}, "NNODES: it is 'two'"),
        ({"NNODES": "2"}, "NODE_RANK: it is missing"),
        ({"NNODES": "2", "NODE_RANK": "2"}, "NODE_RANK: 2 of 2 nodes"),
        ({"NNODES": "2", "NODE_RANK": "0"}, "MASTER_PORT: it is missing"),
        ({"NNODES": "2", "NODE_RANK": "0", "MASTER_PORT": "9"}, "MASTER_ADDR: it is missing"),
    ],
)
def test_wrong_places(tmp_path: Path, variables: dict[str, str], problem: str) -> None:
    job = read_job(put_job(tmp_path / "job", scale_factor=2))
    with pytest.raises(InvalidInput, match=problem):
        read_place(job, variables)


def test_places(tmp_path: Path) -> None:
    job = read_job(put_job(tmp_path / "job", scale_factor=4))
    assert read_place(job, {}) == WorkerPlace(workers=4)
    assert read_place(job, nodes([3, 1])[1]) == WorkerPlace(node=1, nodes=2, workers=1)


def test_ranks_of_nodes() -> None:
    """Nodes may have different numbers of workers, all of them together the job's."""
    table = HashStore()
    table.set("workers of 0", "3")
    assert first_rank(table, WorkerPlace(node=1, nodes=2, workers=1), 4) == 3
    assert first_rank(table, WorkerPlace(node=0, nodes=2, workers=3), 4) == 0
    with pytest.raises(InvalidInput, match=r"the nodes have 3 \+ 1 workers, the job 5"):
        first_rank(table, WorkerPlace(node=0, nodes=2, workers=3), 5)
