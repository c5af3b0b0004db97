"""Checkpoints: one file with everything that the next step depends on.

`torch.load` reads the file and finds the weights by name under "model". A digest over its content
reveals damage. The previous file is kept.
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
    """The state of a job between two steps.

    Attributes:
        state: Numbers and names, as JSON.
        vectors: Moments and sums of gradients by name, on the CPU.
    """

    state: dict[str, Any]
    model: dict[str, Tensor]
    vectors: dict[str, Tensor]


class _Damaged(Exception):
    """A file is not a complete checkpoint."""


def write(folder: Path, job: Job, checkpoint: Checkpoint) -> None:
    """Replace the job's checkpoint.

    Raises:
        StorageError: It cannot be written; the previous one is unharmed.
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
    """Return the newest intact checkpoint for `parse`, or None to start from the beginning.

    A damaged checkpoint is reported on stderr, and the previous one replaces it.

    Raises:
        InvalidInput: It is another job's.
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
        # Only the number of workers may differ.
        if {**found.state["job"], "scale_factor": job.scale_factor} != job.identity():
            raise InvalidInput(str(path), "it is of another job", "give each job its own folder")
        if name == PREVIOUS:
            print(f"warning: {path}: going on from the checkpoint before", file=sys.stderr)
            # Restore its name, or the next write would keep the damaged file as the previous one.
            files.replace(folder / CURRENT, payload, durable=True)
        return payload
    if (folder / CURRENT).exists():
        print("warning: no whole checkpoint, starting from the beginning", file=sys.stderr)
        (folder / CURRENT).unlink()
    return None


def parse(payload: bytes) -> Checkpoint:
    """Parse the bytes of a checkpoint's file; raise if they are damaged."""
    try:
        found = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
        checkpoint = Checkpoint(json.loads(found["state"]), found["model"], found["vectors"])
        digest = _digest(found["state"], checkpoint)
    except Exception as error:  # torch.load raises many types for damaged files
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
