"""The job as the scheduler describes it in `job.json`."""

import json
import math
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from trainer.errors import InvalidInput

MODELS = ("ResNet-18", "ResNet-50", "LM", "Transformer", "Recommendation")
MODES = ("static", "accordion", "gns")
SIZES = ("small", "full")
SIZE_VARIABLE = "SHOCKWAVE_MODEL_SIZE"
"""Environment variable with the model size of jobs that give none."""


@dataclass(frozen=True, slots=True)
class Job:
    """A training job.

    Attributes:
        batch_size: Samples per step over all workers, in the first epoch.
        scale_factor: Workers of the gang; it may change from one start to the next.
        total_steps: Steps at the initial batch size; the last epoch may be shorter.
        seed: Seed of weights, sample order and synthetic data.
    """

    job_id: int
    model: str
    batch_size: int
    max_batch_size: int
    scale_factor: int
    mode: str
    epochs: int
    samples_per_epoch: int
    total_steps: int
    seed: int
    size: str

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the steps of a full epoch; the last step may have fewer samples."""
        return math.ceil(self.samples_per_epoch / batch_size)

    def steps(self, epoch: int, batch_size: int) -> int:
        """Return the steps of an epoch, counted from 0; the last epoch may have fewer."""
        whole = self.steps_per_epoch(batch_size)
        if epoch < self.epochs - 1:
            return whole
        initial = self.steps_per_epoch(self.batch_size)
        last = self.total_steps - (self.epochs - 1) * initial
        return math.ceil(last * whole / initial)

    def identity(self) -> dict[str, Any]:
        """Return all fields, to check that a checkpoint is of this job."""
        return asdict(self)


def read_job(folder: Path) -> Job:
    """Read and check `job.json`.

    Raises:
        InvalidInput: It is missing, no JSON object, or a value in it is wrong.
    """
    path = folder / "job.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(str(path), error.strerror or str(error), "give a job folder") from None
    except ValueError as error:
        raise InvalidInput(str(path), f"no JSON ({error})", "write the job anew") from None
    if not isinstance(values, dict):
        raise InvalidInput(str(path), "no JSON object", "give keys and values")
    return _checked(str(path), values)


def _checked(place: str, values: dict[str, Any]) -> Job:
    known = [field.name for field in fields(Job)]
    if unknown := sorted(set(values) - set(known)):
        raise InvalidInput(place, f"unknown key {unknown[0]!r}", f"choose from {', '.join(known)}")
    values = {"seed": 0, **values}
    # An empty variable counts as unset.
    values.setdefault("size", os.environ.get(SIZE_VARIABLE) or "small")
    for key in ("batch_size", "max_batch_size", "scale_factor", "epochs", "samples_per_epoch"):
        _whole(place, values, key, least=1)
    for key in ("job_id", "seed"):
        _whole(place, values, key, least=0)
    steps = math.ceil(values["samples_per_epoch"] / values["batch_size"])
    values.setdefault("total_steps", values["epochs"] * steps)
    _whole(place, values, "total_steps", least=1)
    for key, choices in (("model", MODELS), ("mode", MODES), ("size", SIZES)):
        if values.get(key) not in choices:
            problem = f"{key} is {values.get(key)!r}"
            raise InvalidInput(place, problem, f"give one of {', '.join(choices)}")
    if values["max_batch_size"] < values["batch_size"]:
        problem = f"max_batch_size {values['max_batch_size']} is below batch_size"
        raise InvalidInput(place, problem, f"give {values['batch_size']} or more")
    if math.ceil(values["total_steps"] / steps) != values["epochs"]:
        problem = f"{values['total_steps']} steps are not {values['epochs']} epochs of {steps}"
        raise InvalidInput(place, problem, "give total_steps that end in the last epoch")
    return Job(**values)


def _whole(place: str, values: dict[str, Any], key: str, least: int) -> None:
    value = values.get(key)
    # In Python, JSON's true is an int.
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        problem = f"{key} is {value!r}" if key in values else f"{key} is missing"
        raise InvalidInput(place, problem, f"give a whole number from {least} on")
