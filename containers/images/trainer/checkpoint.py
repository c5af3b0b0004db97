"""Checkpoints: everything that the next step depends on, in one file.

`torch.load` reads the file, and finds the weights by name under "model". A digest over all
of it shows whether it is damaged. The file before it is kept.
"""

import hashlib
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer import files
from trainer.errors import InvalidInput, StorageError
from trainer.job import Job

CURRENT = "checkpoint.pt"
PREVIOUS = "checkpoint.previous.pt"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a job stands.

    Attributes:
        state: Numbers and names, as JSON.
        model: Weights by the names that the module gives them.
        vectors: Moments and sums of gradients by name, on the processor.
    """

    state: dict[str, Any]
    model: dict[str, Tensor]
    vectors: dict[str, Tensor]


class _Damaged(Exception):
    """A file is no whole checkpoint."""


def write(folder: Path, job: Job, checkpoint: Checkpoint) -> None:
    """Replace the job's checkpoint.

    Raises:
        StorageError: It cannot be written; the one before is still there.
    """
    state = json.dumps({"job": job.identity(), **checkpoint.state})
    payload = {
        "state": state,
        "model": checkpoint.model,
        "vectors": checkpoint.vectors,
        "digest": _digest(state, checkpoint),
    }
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    files.replace(folder / CURRENT, buffer.getvalue(), durable=True, keep=folder / PREVIOUS)


def read(folder: Path, job: Job) -> bytes | None:
    """The newest whole checkpoint as `parse` takes it, or None to start from the beginning.

    A damaged checkpoint is reported on stderr; the previous one takes its place.

    Raises:
        InputError: It is of another job.
        StorageError: The folder cannot be read or written.
    """
    for name in (CURRENT, PREVIOUS):
        path = folder / name
        try:
            payload = path.read_bytes()
            found = parse(payload)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(path, error) from error
        except _Damaged as error:
            print(f"warning: {path}: damaged checkpoint ({error}), left aside", file=sys.stderr)
            continue
        if found.state["job"] != job.identity():
            raise InvalidInput(str(path), "it is of another job", "give each job its own folder")
        if name == PREVIOUS:
            print(f"warning: {path}: going on from the checkpoint before", file=sys.stderr)
            # In its place, so that the next one does not keep the damaged file instead.
            files.replace(folder / CURRENT, payload, durable=True)
        return payload
    if (folder / CURRENT).exists():
        print("warning: no whole checkpoint, starting from the beginning", file=sys.stderr)
        (folder / CURRENT).unlink()
    return None


def parse(payload: bytes) -> Checkpoint:
    """A checkpoint from the bytes of its file; raises if they are damaged."""
    try:
        found = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
        checkpoint = Checkpoint(json.loads(found["state"]), found["model"], found["vectors"])
        digest = _digest(found["state"], checkpoint)
    except Exception as error:  # torch.load has no error of its own for damaged files
        raise _Damaged(type(error).__name__) from error
    if digest != found["digest"]:
        raise _Damaged("its digest is another")
    return checkpoint


def _digest(state: str, checkpoint: Checkpoint) -> str:
    digest = hashlib.sha256(state.encode())
    for tensors in (checkpoint.model, checkpoint.vectors):
        for name, tensor in tensors.items():
            digest.update(name.encode())
            digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
