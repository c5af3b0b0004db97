"""The data sets of the models, and batches of their samples as tensors."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer import readers, synthetic
from trainer.errors import InvalidInput
from trainer.job import Job
from trainer.shapes import SHAPES, ModelShape

PROCESSOR = torch.device("cpu")

FOLDER_VARIABLE = "SHOCKWAVE_DATA_FOLDER"
"""Environment variable with the data folder, which has a folder for each model."""

FOLDER = Path("/data")
MOST_SYNTHETIC = 2_048
"""Distinct synthetic samples; longer epochs repeat them. An engineering bound on memory and start
time."""

SYNTHETIC = "synthetic"

Ints = npt.NDArray[np.int64]
Batch = Callable[[Ints], tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class DataSet:
    """Samples to train on.

    Attributes:
        source: "synthetic", or their path in the data folder.
        batch: Returns the tensors of the samples with given indices.
    """

    source: str
    samples: int
    batch: Batch

    def order(self, job: Job, epoch: int) -> Ints:
        """Return an epoch's samples in the order of training, shape (samples_per_epoch,).

        A larger set contributes its first samples; a smaller one repeats its samples.
        """
        generator = np.random.default_rng((job.seed, epoch))
        return generator.permutation(job.samples_per_epoch) % self.samples


def open_data(job: Job, device: torch.device = PROCESSOR) -> DataSet:
    """Return the model's data set, or a synthetic one; very wide rows are built on the device.

    Raises:
        InvalidInput: The data set is damaged, or the configured data folder is missing.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    root = Path(named) if named else FOLDER
    if named and not root.is_dir():
        raise InvalidInput(FOLDER_VARIABLE, f"{named} is not a folder", "mount it, or leave it out")
    shape = SHAPES[job.model, job.size]
    folder = root / job.model
    try:
        if folder.is_dir():
            return _published(job, folder, shape, device)
    except OSError as error:
        problem = error.strerror or str(error)
        raise InvalidInput(str(error.filename or folder), problem, readers.REMEDY) from None
    return _synthetic(job, shape, device)


def _published(job: Job, folder: Path, shape: ModelShape, device: torch.device) -> DataSet:
    most = job.samples_per_epoch
    match job.model:
        case "LM":
            source = _text_file(folder)
            words = readers.read_words(source, most, shape.length, shape.classes)
            return DataSet(f"LM/{source.name}", len(words), _words(words))
        case "Transformer":
            source, target = folder / "train.en", folder / "train.de"
            pairs = readers.read_pairs(source, target, most, shape.length, shape.classes)
            return DataSet("Transformer/train.en", len(pairs[0]), _words(*pairs))
        case "Recommendation":
            source = folder / "ratings.csv"
            rated = readers.read_ratings(source, most, shape.classes)
            users = _users(rated, shape, device)
            return DataSet("Recommendation/ratings.csv", len(rated[1]) - 1, users)
        case _:
            source = folder / "cifar-10-batches-bin"
            pictures = readers.read_pictures(source, most)
            return DataSet(f"{job.model}/{source.name}", len(pictures[1]), _pictures(pictures))


def _synthetic(job: Job, shape: ModelShape, device: torch.device) -> DataSet:
    samples = min(job.samples_per_epoch, MOST_SYNTHETIC)
    generator = np.random.default_rng((job.seed, 0, 1))
    match job.model:
        case "LM":
            batch = _words(synthetic.make_words(generator, samples, shape.length))
        case "Transformer":
            batch = _words(*synthetic.make_pairs(generator, samples, shape.length))
        case "Recommendation":
            rated = synthetic.make_ratings(generator, samples, shape.classes)
            batch = _users(rated, shape, device)
        case _:
            batch = _pictures(synthetic.make_pictures(generator, samples, shape.classes))
    return DataSet(SYNTHETIC, samples, batch)


def _text_file(folder: Path) -> Path:
    found = sorted({*folder.glob("train.txt"), *folder.glob("*.train.t*")})
    if len(found) != 1:
        problem = f"{len(found)} files train.txt, *.train.txt or *.train.tokens"
        raise InvalidInput(str(folder), problem, "leave one there")
    return found[0]


# Batches copy their rows into tensors that PyTorch aligns, since float sums depend on alignment.


def _pictures(pictures: tuple[npt.NDArray[np.uint8], Ints]) -> Batch:
    def batch(indices: Ints) -> tuple[Tensor, ...]:
        shown = torch.tensor(pictures[0][indices], dtype=torch.float32)
        return shown.sub_(127.5).div_(64.0), torch.tensor(pictures[1][indices])

    return batch


def _words(*texts: Ints) -> Batch:
    def batch(indices: Ints) -> tuple[Tensor, ...]:
        return tuple(torch.tensor(text[indices]) for text in texts)

    return batch


def _users(rated: tuple[Ints, Ints], shape: ModelShape, device: torch.device) -> Batch:
    # For a GPU, filling and sending rows as wide as all items would take longer than a step.
    items, starts = rated

    def batch(indices: Ints) -> tuple[Tensor, ...]:
        counts = starts[indices + 1] - starts[indices]
        rows = np.repeat(np.arange(len(indices)), counts)
        columns = np.concatenate([items[starts[user] : starts[user + 1]] for user in indices])
        dense = torch.zeros(len(indices), shape.classes, device=device)
        dense[torch.tensor(rows, device=device), torch.tensor(columns, device=device)] = 1.0
        return (dense,)

    return batch
