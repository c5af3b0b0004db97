"""The trainer's contract: keys, exit codes, and the container's confines."""

import ast
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.waiting import HANG_SECONDS
from tests.images.trainers import IMAGES, After, lines, progress, put_job, run, start, train_here
from trainer import errors
from trainer.__main__ import main
from trainer.files import LEASE_VARIABLE
from trainer.job import MODELS, read_job
from trainer.loop import CHECKPOINT_VARIABLE
from trainer.shapes import RECIPES, SHAPES


def test_telemetry_and_progress(tmp_path: Path) -> None:
    folder = put_job(tmp_path / "job", total_steps=28)
    began = time.time()
    assert train_here(folder, After(19)) == 75
    now = progress(folder)
    assert set(now) == {
        *("epoch", "step", "steps_per_epoch", "batch_size", "run_seconds", "attempt", "at")
    }
    assert (now["epoch"], now["step"], now["steps_per_epoch"]) == (2, 3, 8)
    assert train_here(folder) == 0
    reported = lines(folder)
    assert list(reported[0]) == [
        *("epoch", "batch_size", "samples", "steps", "seconds", "loss"),
        *("gradient_norm", "noise_scale", "data", "attempt", "at"),
    ]
    assert [line["epoch"] for line in reported] == [0, 1, 2, 3]
    assert [line["attempt"] for line in reported] == [1, 1, 2, 2]
    # The last of eight steps has the four samples that are left; the last epoch is cut short.
    assert [(line["steps"], line["samples"]) for line in reported] == [(8, 60)] * 3 + [(4, 32)]
    assert all(line["seconds"] > 0 and line["data"] == "synthetic" for line in reported)
    assert began <= reported[0]["at"] <= reported[-1]["at"] <= time.time()
    now = progress(folder)
    assert (now["epoch"], now["step"], now["batch_size"], now["attempt"]) == (4, 0, 8, 2)
    assert now["run_seconds"] == pytest.approx(sum(line["seconds"] for line in reported))


@pytest.mark.parametrize(
    ("total_steps", "batch_size", "steps"),
    [(32, 8, 8), (28, 8, 4), (25, 8, 1), (28, 16, 2), (25, 32, 1)],
)
def test_the_last_epoch(tmp_path: Path, total_steps: int, batch_size: int, steps: int) -> None:
    """It keeps its share of an epoch whatever the batch size has become."""
    job = read_job(put_job(tmp_path / "job", total_steps=total_steps))
    assert job.steps(3, batch_size) == steps
    assert job.steps(2, batch_size) == job.steps_per_epoch(batch_size)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model": "BERT"}, "model is 'BERT'; give one of ResNet-18, "),
        ({"mode": None}, "mode is None; give one of static, accordion, gns"),
        ({"size": "huge"}, "size is 'huge'"),
        ({"epochs": 0}, "epochs is 0; give a whole number from 1 on"),
        ({"epochs": 2.5}, "epochs is 2.5"),
        ({"batch_size": True}, "batch_size is True"),
        ({"batch_size": None}, "batch_size is missing"),
        ({"seed": -1}, "seed is -1; give a whole number from 0 on"),
        ({"max_batch_size": 7}, "max_batch_size 7 is below batch_size; give 8 or more"),
        ({"total_steps": 33}, "33 steps are not 4 epochs of 8"),
        ({"total_steps": 24}, "24 steps are not 4 epochs of 8"),
        ({"bath_size": 8}, "unknown key 'bath_size'; choose from job_id, "),
    ],
)
def test_wrong_jobs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], changes: dict[str, Any], problem: str
) -> None:
    folder = put_job(tmp_path / "job", **changes)
    refused(capfd, [str(folder)], f"error: {folder}/job.json: ", problem)
    assert [path.name for path in folder.iterdir()] == ["job.json"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "No such file"), (b"{", "no JSON"), (b"\xff", "no JSON"), (b"[]", "no JSON object")],
)
def test_no_jobs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "job.json").write_bytes(content)
    refused(capfd, [str(tmp_path)], "error: ", problem)
    refused(capfd, [], "error: arguments: 0 were given", "give a job folder")


def refused(capfd: pytest.CaptureFixture[str], arguments: Sequence[str], *said: str) -> None:
    """The trainer says so in one line and ends with code 2."""
    assert main(arguments) == errors.InvalidInput.exit_code == 2
    line = capfd.readouterr().err
    assert line.count("\n") == 1
    assert all(part in line for part in said)


def test_wrong_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHECKPOINT_VARIABLE, "often")
    with pytest.raises(errors.InvalidInput, match="it is 'often'"):
        train_here(put_job(tmp_path / "job"))


NOBODY = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]
# The interpreter may be in root's home: anything may be read, as in an image.
NOBODY += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]


def can_be_nobody() -> bool:
    try:
        return subprocess.run([*NOBODY, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_be_nobody(), reason="only root can become another user")
def test_any_user(tmp_path: Path) -> None:
    """A user without a name or a home, who can write in the job's folder only."""
    folder = put_job(tmp_path / "job", scale_factor=2, epochs=1)
    os.chown(folder, 54321, 54321)
    code, said = run(folder, prefix=NOBODY)
    assert code == 0, said
    assert (folder / "checkpoint.pt").stat().st_uid == 54321


def test_nothing_else_is_imported() -> None:
    """PyTorch, NumPy and the standard library; nor does the project import the trainer."""
    allowed = {"torch", "numpy", "trainer", *sys.stdlib_module_names}
    for path in (IMAGES / "trainer").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert {name.partition(".")[0] for name in names} <= allowed, path
    root = IMAGES.parents[1]
    for package in ("flows", "tasks", "warehouse", "containers", "solver", "predictor"):
        for path in (root / package).rglob("*.py"):
            if IMAGES not in path.parents:
                assert "from trainer" not in path.read_text(), path


def test_each_model_has_a_recipe_and_shapes() -> None:
    assert RECIPES.keys() == {model for model, _ in SHAPES} == {*MODELS}


def test_a_trainer_that_lost_its_lease_writes_nothing_and_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put_job(tmp_path / "job", epochs=5000)
    (folder / "lease").write_text("first")

    def epochs() -> int:
        path = folder / "telemetry.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    process = start(folder, SHOCKWAVE_LEASE="first")
    while epochs() < 2:
        assert process.poll() is None
        time.sleep(0.02)
    (folder / "new").write_text("second")
    (folder / "new").replace(folder / "lease")
    _, said = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 75
    assert "lease second holds, not first" in said
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    # The rest in this process: the code that the exception ends with is the same.
    monkeypatch.setenv(LEASE_VARIABLE, "first")
    with pytest.raises(errors.LeaseLost):
        train_here(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept
    monkeypatch.setenv(LEASE_VARIABLE, "second")
    before = epochs()
    assert train_here(folder, After(30)) == 75
    assert epochs() > before
