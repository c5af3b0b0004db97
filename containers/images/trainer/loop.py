"""The training loop, from the last checkpoint to the end of the job or a preemption."""

import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from trainer import checkpoint
from trainer.adaptation import EpochEnd, make_adaptation
from trainer.checkpoint import Checkpoint
from trainer.collective import Collective
from trainer.data import SYNTHETIC, open_data
from trainer.errors import DONE, PREEMPTED, InvalidInput
from trainer.gang import Stop
from trainer.job import Job
from trainer.noise import NoiseScale
from trainer.steps import Stepper, TrainingPosition
from trainer.telemetry import SECONDS_BETWEEN, append_epoch, read_progress, write_progress

CHECKPOINT_VARIABLE = "SHOCKWAVE_CHECKPOINT_SECONDS"
"""Environment variable with the least time between checkpoints at epoch ends."""

CHECKPOINT_SECONDS = 5.0
"""Its default, which bounds the share of checkpoints in short epochs. An engineering choice; no
sweep is recorded."""


def train(job: Job, folder: Path, gang: Collective, stop: Stop) -> int:
    """Train a job as one worker of its gang; return the exit code.

    Raises:
        TrainerError: Data, storage or the gang failed.
        ArithmeticError: The loss is no longer finite.
    """
    torch.set_num_threads(1)
    # Unlike use_deterministic_algorithms, this does not import PyTorch's compiler. GPUs only
    # warn, since some operations have no deterministic kernel there.
    torch.set_deterministic_debug_mode("error" if gang.device.type == "cpu" else "warn")
    training = Training(job, folder, gang)
    if gang.any(stop.requested) and not training.done:
        return PREEMPTED
    training.report()
    while not training.done:
        stopped = training.step(stop.requested)
        if stopped and not training.done:
            training.save()
            break
    # A barrier: no worker ends before worker 0 has written everything.
    gang.any(False)
    return DONE if training.done else PREEMPTED


class Training:
    """A job in training, on one worker of its gang."""

    def __init__(self, job: Job, folder: Path, gang: Collective) -> None:
        self._job = job
        self._folder = folder
        self._gang = gang
        self._writes = gang.rank == 0
        self._pause = _pause()
        self._saved = self._reported = time.monotonic()
        self._data = open_data(job, gang.device)
        if self._writes and self._data.source == SYNTHETIC:
            print(f"no data set of {job.model}: training on synthetic data", file=sys.stderr)
        self._mode = make_adaptation(job)
        self._stepper = Stepper(job, gang, self._data)
        self._position = TrainingPosition(job.batch_size)
        self._restore()
        self._order = self._data.order(job, self._position.epoch)
        self._counted = time.monotonic()

    @property
    def done(self) -> bool:
        """Whether every epoch is trained."""
        return self._position.epoch == self._job.epochs

    def step(self, stop: bool) -> bool:
        """Take a step, and end the epoch if it is complete; return whether any worker must stop."""
        at = self._position
        samples = self._order[at.step * at.batch_size : (at.step + 1) * at.batch_size]
        stopped = self._stepper.step(at, samples, stop)
        now = time.monotonic()
        # The time between steps counts too, since the scheduler plans with the resulting speed.
        at.seconds += now - self._counted
        at.run_seconds += now - self._counted
        self._counted = now
        if at.step == self._job.steps(at.epoch, at.batch_size):
            self._end_epoch()
        elif now - self._reported >= SECONDS_BETWEEN:
            self.report()
        return stopped

    def save(self) -> None:
        """Write a checkpoint and the progress."""
        if self._writes:
            checkpoint.write(self._folder, self._job, self._checkpoint())
            self._saved = time.monotonic()
        self.report()

    def report(self) -> None:
        """Write the progress."""
        at = self._position
        if self._writes:
            progress = {
                "epoch": at.epoch,
                "step": at.step,
                "steps_per_epoch": self._job.steps_per_epoch(at.batch_size),
                "batch_size": at.batch_size,
                "run_seconds": at.run_seconds,
                "attempt": at.attempt,
            }
            write_progress(self._folder, progress)
        self._reported = time.monotonic()

    def _end_epoch(self) -> None:
        """Report the epoch, choose the next batch size, and save if a checkpoint is due."""
        at, noise = self._position, self._stepper.noise
        norm = self._stepper.accumulated.norm().item() / at.samples
        if self._writes:
            epoch = {
                "epoch": at.epoch,
                "batch_size": at.batch_size,
                "samples": at.samples,
                "steps": at.step,
                "seconds": at.seconds,
                "loss": at.loss / at.samples,
                "gradient_norm": norm,
                "noise_scale": noise.scale,
                "data": self._data.source,
                "attempt": at.attempt,
            }
            append_epoch(self._folder, epoch)
        end = EpochEnd(at.epoch, at.batch_size, norm, noise)
        at.batch_size = self._mode.next_batch_size(end)
        at.epoch, at.step, at.samples, at.loss, at.seconds = at.epoch + 1, 0, 0, 0.0, 0.0
        self._stepper.accumulated.zero_()
        if self.done or time.monotonic() - self._saved >= self._pause:
            self.save()
        else:
            self.report()
        self._order = self._data.order(self._job, at.epoch)

    def _checkpoint(self) -> Checkpoint:
        stepper = self._stepper
        state = {
            "position": asdict(self._position),
            "mode": self._mode.state(),
            "noise": asdict(stepper.noise),
            "optimiser_steps": stepper.optimiser.steps,
        }
        return Checkpoint(
            state,
            {name: view.cpu() for name, view in stepper.flat.named.items()},
            {name: vector.cpu() for name, vector in self._vectors().items()},
        )

    def _restore(self) -> None:
        """Restore the checkpoint that worker 0 finds, if any."""
        payload = checkpoint.read(self._folder, self._job) if self._writes else None
        payload = self._gang.share(payload)
        if payload is not None:
            found, stepper = checkpoint.parse(payload), self._stepper
            self._position = TrainingPosition(**found.state["position"])
            self._mode.restore(found.state["mode"])
            stepper.noise = NoiseScale(**found.state["noise"])
            stepper.optimiser.steps = found.state["optimiser_steps"]
            self._fill(stepper.flat.named, found.model)
            self._fill(self._vectors(), found.vectors)
        # An attempt that was killed left no checkpoint, but may have reported progress.
        reported = read_progress(self._folder).get("attempt", 0)
        self._position.attempt = 1 + max(reported, self._position.attempt)

    def _vectors(self) -> dict[str, Tensor]:
        return {**self._stepper.optimiser.moments, "accumulated": self._stepper.accumulated}

    def _fill(self, tensors: dict[str, Tensor], found: dict[str, Tensor]) -> None:
        if {name: t.shape for name, t in tensors.items()} != {
            name: t.shape for name, t in found.items()
        }:
            problem = "its weights do not fit the model"
            remedy = "go on with the image that wrote it"
            raise InvalidInput(str(self._folder / checkpoint.CURRENT), problem, remedy)
        for name, tensor in tensors.items():
            tensor.copy_(found[name])


def _pause() -> float:
    text = os.environ.get(CHECKPOINT_VARIABLE) or str(CHECKPOINT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < float("inf"):
        raise InvalidInput(CHECKPOINT_VARIABLE, f"it is {text!r}", "give 0 or more seconds")
    return seconds
