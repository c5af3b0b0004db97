"""A gang under torchrun, whose nodes come and go, in the variables that containers get."""

import json
import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest
import torch

from harness.waiting import HANG_SECONDS, wait_for
from tests.images.test_gang import nodes
from tests.images.trainers import put_job

EXAMPLE = Path(__file__).parents[2] / "examples" / "training"
COMMAND = (EXAMPLE / "torchrun.sh").read_text()

pytestmark = pytest.mark.slow


def start(folder: Path, variables: dict[str, str]) -> "subprocess.Popen[bytes]":
    """A node of the gang, as its container runs it."""
    with (folder / f"node-{variables['NODE_RANK']}.log").open("ab") as log:
        return subprocess.Popen(
            ["sh", "-c", COMMAND],
            env={
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(folder),
                "SHOCKWAVE_JOB_FOLDER": str(folder),
                "SHOCKWAVE_LEASE": "lease",
                "GLOO_SOCKET_IFNAME": "lo",
                "REST": "0.02",
                **variables,
            },
            cwd=EXAMPLE,
            stdout=log,
            stderr=log,
        )


def lines(folder: Path) -> list[dict[str, float]]:
    """Lines of telemetry; a kill before the checkpoint repeats an epoch."""
    told = folder / "telemetry.jsonl"
    text = told.read_text() if told.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def train_alone(epochs: int, size: int, samples: int) -> list[float]:
    """The losses of the program's line, by hand."""
    weights = torch.zeros(2, dtype=torch.float64)
    inputs = torch.linspace(-1, 1, samples, dtype=torch.float64)
    points, losses = torch.stack([inputs, torch.ones_like(inputs)], 1), list[float]()
    for epoch in range(epochs):
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(epoch))
        total = 0.0
        for batch in torch.split(order, size):
            errors = points[batch] @ weights - (2 * inputs + 1)[batch]
            weights -= 0.1 * points[batch].T @ errors / len(batch)
            total += errors.square().sum().item()
        losses.append(total / samples)
    return losses


def test_a_node_joins_and_leaves_and_training_continues(tmp_path: Path) -> None:
    folder = put_job(tmp_path / "job", epochs=100_000, batch_size=16, samples_per_epoch=64)
    one, other = nodes([1, 1])
    first = start(folder, one)

    def wait_for_workers(count: int) -> None:
        def trained() -> bool:
            assert first.poll() is None, (folder / "node-0.log").read_text()
            return [line["workers"] for line in lines(folder)[-1:]] == [count]

        wait_for(trained)

    try:
        wait_for_workers(1)
        second = start(folder, other)
        wait_for_workers(2)
        second.terminate()
        assert second.wait(HANG_SECONDS) == 1  # torchrun has no other code for SIGTERM
        wait_for_workers(1)
    finally:
        first.terminate()
        first.wait(HANG_SECONDS)
    told = lines(folder)
    assert [count for count, _ in groupby(line["workers"] for line in told)] == [1, 2, 1]
    assert sorted({line["epoch"] for line in told}) == list(range(int(told[-1]["epoch"]) + 1))
    repeats = len(told) - len({line["epoch"] for line in told})
    assert repeats <= 2  # at most one whenever workers were started again
    alone = train_alone(len(told) - repeats, 16, 64)
    for line in told:
        assert line["loss"] == pytest.approx(alone[int(line["epoch"])], rel=1e-6, abs=1e-12)
