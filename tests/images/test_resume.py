"""Stopped or killed processes, which resume as if nothing had happened."""

import json
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from harness.waiting import HANG_SECONDS, handles
from tests.images.trainers import (
    After,
    lines,
    program,
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

FAST = {"model": "ResNet-18", "samples_per_epoch": 48, "epochs": 4}


def state(folder: Path) -> dict[str, int]:
    """Where the checkpoint stands."""
    payload = torch.load(folder / "checkpoint.pt", weights_only=True)
    position: dict[str, int] = json.loads(payload["state"])["position"]
    return position


@pytest.mark.parametrize(("mode", "workers"), [("static", 1), ("accordion", 2), ("gns", 2)])
def test_stopped_and_killed(tmp_path: Path, mode: str, workers: int) -> None:
    straight = put_job(tmp_path / "straight", mode=mode, scale_factor=workers, **FAST)
    # Two workers compute the halves of a step, a single one in turn: the same bits.
    assert train_here(straight) == 0
    folder = put_job(tmp_path / "stopped", mode=mode, scale_factor=workers, **FAST)

    # Stopped at some step, most likely in the middle of an epoch.
    process = start(folder)
    wait_for((folder / "progress.json").exists, process)
    time.sleep(0.06)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 75, said
    stopped = state(folder)
    assert stopped["epoch"] < 4
    assert stopped["step"] + stopped["epoch"] > 0
    assert progress(folder)["step"] == stopped["step"]

    # Killed at a random moment, perhaps between a line and its checkpoint.
    process = start(folder)
    wait_for(lambda: progress(folder)["attempt"] == 2, process)
    time.sleep(random.Random(f"{mode}{workers}").uniform(0.0, 0.15))
    process.kill()
    process.communicate(timeout=HANG_SECONDS)

    assert train_here(folder) == 0
    same(folder, straight)
    assert progress(folder)["attempt"] in (2, 3)  # the second may have been faster than the kill
    attempts = [line["attempt"] for line in lines(folder)]
    assert attempts == sorted(attempts)
    assert attempts[-1] > 1
    # Time of the epochs is the time of their steps, whatever happened in between.
    spent = sum(line["seconds"] for line in lines(folder))
    assert progress(folder)["run_seconds"] == pytest.approx(spent)


def test_it_goes_on_with_other_workers(tmp_path: Path) -> None:
    """Each sample is trained once, and the weights are the same up to rounding."""
    job = {"mode": "gns", "batch_size": 4, "epochs": 3}
    straight = put_job(tmp_path / "straight", **job)
    assert train_here(straight) == 0
    folder = tmp_path / "resized"
    assert train_here(put_job(folder, **job), After(20)) == 75
    put_job(folder, scale_factor=3, **job)
    process = start(folder)
    wait_for(lambda: progress(folder)["attempt"] == 2, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode in (0, 75), said
    put_job(folder, scale_factor=1, **job)
    assert train_here(folder) == 0
    for one, other in zip(trained(straight), trained(folder), strict=True):
        for key in ("epoch", "batch_size", "steps", "samples"):
            assert one[key] == other[key]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    left, right = weights(straight), weights(folder)
    assert all(left[name].sub(right[name]).abs().max() < 1e-3 for name in left)


def test_killed_before_the_first_checkpoint(tmp_path: Path) -> None:
    """It costs the work since, and nothing else; the lines of epochs are reported again."""
    straight = put_job(tmp_path / "straight", **FAST)
    assert train_here(straight) == 0
    folder = put_job(tmp_path / "killed", **FAST)
    process = start(folder, SHOCKWAVE_CHECKPOINT_SECONDS="1000")
    telemetry = folder / "telemetry.jsonl"
    wait_for(lambda: telemetry.exists() and telemetry.read_text(), process)
    process.kill()
    process.communicate(timeout=HANG_SECONDS)
    assert not (folder / "checkpoint.pt").exists()
    twice = len(telemetry.read_text().splitlines())
    assert twice
    assert train_here(folder) == 0
    same(folder, straight)
    assert progress(folder)["attempt"] == 2
    rows = [json.loads(row) for row in telemetry.read_text().splitlines()]
    assert len(rows) == 4 + twice
    first = [row["loss"] for row in rows if row["epoch"] == 0]
    assert first == [first[0]] * 2


def test_stopped_before_the_first_step(tmp_path: Path) -> None:
    """A signal while PyTorch loads is not lost: nothing is trained, and nothing is wrong."""
    folder = put_job(tmp_path / "job", epochs=1000)
    process = program(folder)
    # The handler is there before PyTorch, which takes far longer to load.
    wait_for(lambda: handles(process.pid, signal.SIGTERM), process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 75, said
    assert not (folder / "telemetry.jsonl").exists()


def test_done_is_done(tmp_path: Path) -> None:
    folder = put_job(tmp_path / "job")
    assert train_here(folder) == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert progress(folder)["epoch"] == 4
    # It does not even load PyTorch.
    code, imports = run(folder, variables={"PYTHONPROFILEIMPORTTIME": "1"})
    assert code == 0
    assert "trainer.telemetry" in imports
    assert "torch.nn" not in imports
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    # Without its progress the checkpoint says so.
    (folder / "progress.json").unlink()
    assert train_here(folder) == 0
    assert progress(folder)["epoch"] == 4
    assert len(trained(folder)) == 4
    assert (folder / "telemetry.jsonl").read_bytes() == before["telemetry.jsonl"]
