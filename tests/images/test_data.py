"""Data sets in the formats they are published in, whole and damaged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.images.trainers import lines, put_job, run, train_here
from trainer.data import DataSet, open_data
from trainer.errors import InvalidInput
from trainer.job import MODELS, read_job
from trainer.readers import read_pairs, read_pictures, read_ratings, read_words
from trainer.text import BEGIN, END, PADDING, UNKNOWN

WORDS = "the cat sat on the mat \n the dog sat \n \n a cat ran \n"
ENGLISH = "a dog runs .\na man sits .\na dog sits on a bench .\n"
GERMAN = "ein hund rennt .\nein mann sitzt .\nein hund sitzt auf einer bank .\n"
RATINGS = (
    "userId,movieId,rating,timestamp\n1,50,4.0,9\n1,7,3.5,9\n2,7,5.0,8\n3,9,1.0,8\n3,7,2.0,8\n"
)


def pictures(records: int, first: int = 0) -> bytes:
    """CIFAR-10 records: a label and a picture of that brightness."""
    return b"".join(
        bytes([n % 10]) + bytes([n % 256]) * 3072 for n in range(first, first + records)
    )


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a small data set for each model."""
    folder = tmp_path / "data"
    for model in ("ResNet-18", "ResNet-50"):
        batches = folder / model / "cifar-10-batches-bin"
        batches.mkdir(parents=True)
        for number in (1, 2):
            (batches / f"data_batch_{number}.bin").write_bytes(pictures(7, 100 * number))
    for model, files in {
        "LM": {"ptb.train.txt": WORDS * 20},
        "Transformer": {"train.en": ENGLISH, "train.de": GERMAN},
        "Recommendation": {"ratings.csv": RATINGS},
    }.items():
        (folder / model).mkdir()
        for name, text in files.items():
            (folder / model / name).write_text(text)
    monkeypatch.setenv("SHOCKWAVE_DATA_FOLDER", str(folder))
    return folder


def opened(tmp_path: Path, **changes: Any) -> DataSet:
    return open_data(read_job(put_job(tmp_path / "job", **changes)))


def test_pictures(root: Path) -> None:
    folder = root / "ResNet-18" / "cifar-10-batches-bin"
    shown, labels = read_pictures(folder, 100)
    assert shown.shape == (14, 3, 32, 32)
    assert labels.tolist() == [*range(7), *range(7)]
    assert shown[8].min() == shown[8].max() == 201
    assert read_pictures(folder, 9)[1].tolist() == [*range(7), 0, 1]


def test_words(root: Path) -> None:
    path = root / "LM" / "ptb.train.txt"
    samples = read_words(path, 3, 4, 8)
    assert samples.shape == (3, 5)
    # Three lines are read; the empty line is left out. Of the vocabulary's four words, a line's
    # end and "the" come first, three times each, then "cat" and "sat".
    text = ["the", "cat", "sat", "on", "the", "mat", "\n", "the", "dog", "sat", "\n", "a", "cat"]
    names = {word: number for number, word in enumerate(["\n", "the", "cat", "sat"], UNKNOWN + 1)}
    coded = [names.get(word, UNKNOWN) for word in text]
    assert samples.tolist() == [coded[0:5], coded[4:9], coded[8:13]]
    assert len(read_words(path, 1000, 4, 8)) == 74


def test_pairs(root: Path) -> None:
    folder = root / "Transformer"
    source, target = read_pairs(folder / "train.en", folder / "train.de", 9, 5, 30)
    assert source.shape == (3, 5)
    assert target.shape == (3, 6)
    assert source[:, -1].tolist() == [END] * 3
    assert (source[0, 0], source[2, 0]) == (source[1, 0], source[1, 0])
    assert target[:, 0].tolist() == [BEGIN] * 3
    assert len(read_pairs(folder / "train.en", folder / "train.de", 2, 5, 30)[0]) == 2
    longer, _ = read_pairs(folder / "train.en", folder / "train.de", 9, 9, 30)
    assert (longer == PADDING).sum(1).tolist() == [4, 4, 1]
    assert UNKNOWN not in longer
    few, _ = read_pairs(folder / "train.en", folder / "train.de", 9, 9, 6)
    # A vocabulary of two words: "a", four times, and ".", three times.
    assert (few == UNKNOWN).sum(1).tolist() == [2, 2, 4]


def test_ratings(root: Path) -> None:
    path = root / "Recommendation" / "ratings.csv"
    items, starts = read_ratings(path, 10, 10)
    # By how often they are rated, then by name: 7, 50, 9.
    assert items.tolist() == [0, 1, 0, 0, 2]
    assert starts.tolist() == [0, 2, 3, 5]
    items, starts = read_ratings(path, 2, 1)
    assert (items.tolist(), starts.tolist()) == ([0, 0], [0, 1, 2])


@pytest.mark.parametrize("model", MODELS)
def test_jobs_train_on_them(tmp_path: Path, root: Path, model: str) -> None:
    """A data set smaller than an epoch is repeated, a larger one is used in part."""
    folder = put_job(tmp_path / "job", model=model, epochs=1, samples_per_epoch=20)
    data = open_data(read_job(folder))
    expected = {"LM": 14, "Transformer": 3, "Recommendation": 3}.get(model, 14)
    assert data.samples == expected
    seen = np.bincount(data.order(read_job(folder), 0), minlength=data.samples)
    assert seen.sum() == 20
    assert seen.max() - seen.min() == 1
    assert train_here(folder) == 0
    assert (root / lines(folder)[0]["data"]).exists()
    assert lines(folder)[0]["samples"] == 20
    part = opened(tmp_path, model=model, samples_per_epoch=2, batch_size=2)
    assert part.samples == 2


def test_recommendation_batch(tmp_path: Path, root: Path) -> None:
    (rows,) = opened(tmp_path).batch(np.array([2, 0]))
    assert rows.shape == (2, 4000)
    assert rows.nonzero().tolist() == [[0, 0], [0, 2], [1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("path", "content", "problem"),
    [
        ("ResNet-18/cifar-10-batches-bin/data_batch_2.bin", pictures(3)[:-1], "not whole pictures"),
        ("ResNet-18/cifar-10-batches-bin/data_batch_1.bin", b"", "0 bytes"),
        ("ResNet-50/cifar-10-batches-bin/data_batch_1.bin", b"\x0b" * 3073, "label 11 is above 9"),
        ("LM/ptb.train.txt", b"too short\n", "less than a sample"),
        ("LM/ptb.train.txt", b"caf\xe9 " * 50, "no UTF-8"),
        ("LM/train.txt", b"two files", "2 files"),
        ("Transformer/train.de", b"ein hund .\n", "fewer lines than train.en"),
        ("Transformer/train.en", b"", "fewer lines than train.de"),
        ("Transformer/train.de", None, "No such file"),
        ("Recommendation/ratings.csv", b"userId,movieId\n1,2\n1\n", r"csv:3: no userId"),
        ("Recommendation/ratings.csv", b"userId,movieId\n", "no ratings"),
    ],
)
def test_damaged(
    tmp_path: Path, root: Path, path: str, content: bytes | None, problem: str
) -> None:
    if content is None:
        (root / path).unlink()
    else:
        (root / path).write_bytes(content)
    with pytest.raises(InvalidInput, match=problem) as refused:
        opened(tmp_path, model=path.partition("/")[0])
    assert "\n" not in str(refused.value)


def test_damage_ends_the_process(tmp_path: Path, root: Path) -> None:
    (root / "Recommendation" / "ratings.csv").write_bytes(b"\xff")
    folder = put_job(tmp_path / "job", scale_factor=2)
    code, said = run(folder, variables={"SHOCKWAVE_DATA_FOLDER": str(root)})
    assert code == 2
    assert "ratings.csv: no UTF-8 text; fetch the data set again\n" in said
    assert "Traceback" not in said
    assert [path.name for path in folder.iterdir()] == ["job.json"]


def test_missing_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOCKWAVE_DATA_FOLDER", str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match="is not a folder; mount it"):
        opened(tmp_path)
    monkeypatch.setenv("SHOCKWAVE_DATA_FOLDER", str(tmp_path))
    assert opened(tmp_path).source == "synthetic"


@pytest.mark.parametrize("model", MODELS)
def test_synthetic(tmp_path: Path, model: str) -> None:
    """The same for the same seed, in the shapes of the real sets, and marked as synthetic."""
    first, other = (opened(tmp_path, model=model, seed=seed) for seed in (1, 2))
    again = opened(tmp_path, model=model, seed=1)
    indices = np.array([3, 1, 59])
    batch = first.batch(indices)
    assert all(len(tensor) == 3 for tensor in batch)
    assert all(a.equal(b) for a, b in zip(batch, again.batch(indices), strict=True))
    assert not batch[0].equal(other.batch(indices)[0])
    assert first.source == "synthetic"
    assert first.samples == 60
    shapes = {"LM": [21], "Transformer": [24], "Recommendation": [4000]}
    assert list(batch[0].shape[1:]) == shapes.get(model, [3, 32, 32])
