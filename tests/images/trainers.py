"""Runs of the trainer: as a process of its own, as in a container, or step by step in this one."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.waiting import HANG_SECONDS
from tests.images.forked import Forked
from trainer.checkpoint import CURRENT
from trainer.collective import Collective
from trainer.gang import Stop
from trainer.job import read_job
from trainer.loop import train
from trainer.place import WorkerPlace

IMAGES = Path(__file__).parents[2] / "containers" / "images"

JOB = {
    "job_id": 7,
    "model": "Recommendation",
    "batch_size": 8,
    "max_batch_size": 32,
    "scale_factor": 1,
    "mode": "static",
    "epochs": 4,
    "samples_per_epoch": 60,
    "seed": 5,
}

SIGNED = {"seconds", "attempt", "at"}
"""Keys of a line about time and attempts, not about the training."""


def put_job(folder: Path, **changes: Any) -> Path:
    """A folder with a job in it."""
    folder.mkdir(exist_ok=True)
    job = {key: value for key, value in {**JOB, **changes}.items() if value is not None}
    (folder / "job.json").write_text(json.dumps(job))
    return folder


def variables_of(**more: str) -> dict[str, str]:
    """A container's environment: no home, nothing of this one."""
    return {
        "PYTHONPATH": str(IMAGES),
        "PATH": os.environ["PATH"],
        # Where files may not grow, it would leave half of a module's bytecode to all others.
        "PYTHONDONTWRITEBYTECODE": "1",
        "SHOCKWAVE_CHECKPOINT_SECONDS": "0",
        **more,
    }


def start(folder: Path, **variables: str) -> Forked:
    """The trainer in a process of its own, which has loaded PyTorch."""
    return Forked(folder, variables_of(**variables))


def program(folder: Path, **options: Any) -> "subprocess.Popen[str]":
    """The trainer as containers start it."""
    return subprocess.Popen(
        [*options.pop("prefix", ()), sys.executable, "-m", "trainer", str(folder)],
        env=variables_of(**options.pop("variables", {})),
        cwd="/",
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def run(folder: Path, **options: Any) -> tuple[int, str]:
    """The program to its end: exit code and output."""
    process = program(folder, **options)
    _, said = process.communicate(timeout=HANG_SECONDS)
    return process.returncode, said


class After(Stop):
    """Asks to stop after a number of steps, as a signal would."""

    def __init__(self, steps: int) -> None:
        self._asked = -1
        self._steps = steps

    @property
    def requested(self) -> bool:  # type: ignore[override]
        # It is asked once before the first step, then at each.
        self._asked += 1
        return self._asked >= self._steps


def train_here(folder: Path, stop: Stop | None = None) -> int:
    """Train in this process, to the end or until a signal to stop."""
    return train(read_job(folder), folder, Collective(WorkerPlace(), 1), stop or Stop())


def wait_for(
    what: Callable[[], object],
    process: "Forked | subprocess.Popen[str]",
    seconds: float = HANG_SECONDS,
) -> None:
    """Wait until something holds; the process must live on until then."""
    deadline = time.monotonic() + seconds
    while not what():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)


def lines(folder: Path) -> list[dict[str, Any]]:
    """Telemetry as readers take it: the last complete line of each epoch."""
    last = {}
    for text in (folder / "telemetry.jsonl").read_text().splitlines():
        line = json.loads(text)
        last[line["epoch"]] = line
    return list(last.values())


def trained(folder: Path) -> list[dict[str, Any]]:
    """The lines without the keys of time and attempts."""
    return [
        {key: value for key, value in line.items() if key not in SIGNED} for line in lines(folder)
    ]


def progress(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "progress.json").read_text())
    return content


def weights(folder: Path) -> dict[str, torch.Tensor]:
    model: dict[str, torch.Tensor] = torch.load(folder / CURRENT, weights_only=True)["model"]
    return model


def same(one: Path, other: Path) -> None:
    """Two runs are bit-equal."""
    assert trained(one) == trained(other)
    left, right = weights(one), weights(other)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
