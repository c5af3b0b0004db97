"""Checkpoints hold everything, and damaged ones cost no more than the steps since the last."""

import os
import resource
from pathlib import Path

import pytest
import torch

from tests.images.trainers import After, lines, progress, put_job, run, same, train_here, trained
from trainer.checkpoint import CURRENT, PREVIOUS
from trainer.errors import InvalidInput, StorageError
from trainer.job import MODELS
from trainer.shapes import SHAPES, ModelShape


@pytest.fixture(autouse=True)
def _small_and_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model, saved at every epoch's end."""
    monkeypatch.setenv("SHOCKWAVE_CHECKPOINT_SECONDS", "0")
    monkeypatch.setitem(SHAPES, ("Recommendation", "small"), ModelShape(400, 0, 16, ()))


@pytest.fixture
def straight(tmp_path: Path) -> Path:
    """An undisturbed run."""
    folder = put_job(tmp_path / "straight", mode="gns")
    assert train_here(folder) == 0
    return folder


@pytest.mark.parametrize("model", MODELS)
def test_exact_at_any_step(tmp_path: Path, model: str) -> None:
    """Stopped after every third step, also at ends of epochs, each model ends up the same."""
    job = {"model": model, "mode": "accordion", "epochs": 3, "samples_per_epoch": 44}
    straight = put_job(tmp_path / "straight", **job)
    assert train_here(straight) == 0
    folder = put_job(tmp_path / "stopped", **job)
    attempts = 1
    while train_here(folder, After(3)) == 75:
        attempts += 1
    same(folder, straight)
    assert progress(folder)["attempt"] == attempts
    assert attempts == -(-sum(line["steps"] for line in lines(folder)) // 3)


def test_chance_is_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units left out at random are a function of the step, not of how often it was begun."""
    still = put_job(tmp_path / "still", epochs=1)
    assert train_here(still) == 0
    monkeypatch.setitem(
        SHAPES, ("Recommendation", "small"), ModelShape(400, 0, 16, (), dropout=0.5)
    )
    straight = put_job(tmp_path / "straight", epochs=1)
    folder = put_job(tmp_path / "stopped", epochs=1)
    assert train_here(straight) == 0
    assert train_here(folder, After(2)) == 75
    assert train_here(folder) == 0
    same(folder, straight)
    assert trained(still) != trained(straight)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "missing"])
def test_the_checkpoint_before(
    tmp_path: Path, straight: Path, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = put_job(tmp_path / "damaged", mode="gns")
    assert train_here(folder, After(14)) == 75
    path = folder / CURRENT
    whole = path.read_bytes()
    middle = len(whole) // 2
    match damage:
        case "cut":
            path.write_bytes(whole[:middle])
        case "flipped":
            path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :])
        case "empty":
            path.write_bytes(b"")
        case _:
            path.unlink()
    capfd.readouterr()
    before = torch.load(folder / PREVIOUS, weights_only=True)["state"]
    assert train_here(folder, After(0)) == 75
    said = capfd.readouterr().err
    assert ("damaged checkpoint" in said) == (damage != "missing")
    assert "going on from the checkpoint before" in said
    assert torch.load(path, weights_only=True)["state"] == before
    assert train_here(folder) == 0
    same(folder, straight)
    # Epochs trained again are reported again, the same.
    assert len(trained(folder)) == 4


def test_no_whole_checkpoint(
    tmp_path: Path, straight: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = put_job(tmp_path / "damaged", mode="gns")
    assert train_here(folder, After(11)) == 75
    for name in (CURRENT, PREVIOUS):
        (folder / name).write_bytes(b"PK")
    capfd.readouterr()
    assert train_here(folder) == 0
    assert "starting from the beginning" in capfd.readouterr().err
    same(folder, straight)
    # Eight steps are the first epoch, reported before and after the damage.
    reported = (folder / "telemetry.jsonl").read_text().splitlines()
    assert len(reported) == len(lines(folder)) + 1


def test_of_another_job(straight: Path) -> None:
    put_job(straight, mode="static")
    with pytest.raises(InvalidInput, match="of another job"):
        train_here(straight)


def test_a_torn_line(tmp_path: Path, straight: Path) -> None:
    """A line cut by a failing machine does not spoil the next."""
    folder = put_job(tmp_path / "torn", mode="gns")
    assert train_here(folder, After(10)) == 75
    telemetry = folder / "telemetry.jsonl"
    telemetry.write_bytes(telemetry.read_bytes() + b'{"epoch": 1, "batch')
    assert train_here(folder) == 0
    rows = telemetry.read_text().splitlines()
    assert rows.pop(1) == '{"epoch": 1, "batch'
    telemetry.write_text("".join(f"{row}\n" for row in rows))
    same(folder, straight)


@pytest.mark.parametrize("workers", [1, 2])
def test_disk_full(tmp_path: Path, workers: int) -> None:
    """A checkpoint that does not fit leaves the previous one, from which the job resumes."""
    job = {"model": "ResNet-18", "epochs": 2, "samples_per_epoch": 24, "scale_factor": workers}
    folder, straight = put_job(tmp_path / "full", **job), put_job(tmp_path / "straight", **job)
    assert train_here(straight) == 0
    assert train_here(folder, After(4)) == 75
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    # Else modules that it compiles would be cut off in the environment's cache, too.
    kept = {"PYTHONDONTWRITEBYTECODE": "1"}
    code, said = run(folder, preexec_fn=small_files, variables=kept)
    assert code == 74
    assert f"\nerror: {folder / CURRENT}: File too large; make room" in said
    assert "Traceback" not in said
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after.keys() == before.keys()
    assert after[CURRENT] == before[CURRENT]
    assert train_here(folder) == 0
    same(folder, straight)


def test_of_another_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image whose models are of other sizes cannot go on with the job."""
    folder = put_job(tmp_path / "job")
    assert train_here(folder, After(3)) == 75
    monkeypatch.setitem(SHAPES, ("Recommendation", "small"), ModelShape(400, 0, 24, ()))
    with pytest.raises(InvalidInput, match="do not fit the model"):
        train_here(folder)


def test_no_room_for_a_line(tmp_path: Path) -> None:
    folder = put_job(tmp_path / "full")
    (folder / "telemetry.jsonl").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"telemetry.jsonl: .*; make room"):
        train_here(folder)
    assert not (folder / CURRENT).exists()


def test_files_are_replaced_whole(tmp_path: Path, straight: Path) -> None:
    """Nothing temporary stays, and a reader's old file is not written into."""
    assert {path.name for path in straight.iterdir()} == {
        "job.json",
        "telemetry.jsonl",
        "progress.json",
        CURRENT,
        PREVIOUS,
    }
    folder = put_job(tmp_path / "watched")
    assert train_here(folder, After(1)) == 75
    with (folder / "progress.json").open() as file, (folder / CURRENT).open("rb") as held:
        text, size = file.read(), os.fstat(held.fileno()).st_size
        assert train_here(folder) == 0
        file.seek(0)
        assert file.read() == text
        assert os.fstat(held.fileno()).st_size == size
