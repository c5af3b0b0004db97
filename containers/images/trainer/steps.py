"""One training step: parts of a batch on every worker, one sum, one update of the weights."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from trainer import models
from trainer.adaptation import decay
from trainer.collective import Collective
from trainer.data import DataSet, Ints
from trainer.flat import FlatModel, Optimiser
from trainer.job import Job
from trainer.noise import NoiseScale, estimate
from trainer.shapes import RECIPES

LEAST_PARTS = 2
"""Parts of a step on a single worker, the fewest that the noise scale can be estimated from; in a
gang, each worker has one part."""


@dataclass(slots=True)
class TrainingPosition:
    """A position in training, with the sums of the current epoch.

    Attributes:
        loss: Sum of the losses of the samples of the current epoch.
        seconds: Training time of the current epoch.
    """

    batch_size: int
    epoch: int = 0
    step: int = 0
    samples: int = 0
    loss: float = 0.0
    seconds: float = 0.0
    run_seconds: float = 0.0
    attempt: int = 0


class Stepper:
    """Takes training steps and holds the state that they change.

    Workers sum one message: the gradient, followed by the sum of the losses, the sum of the parts'
    squared norms, the sum of their inverse sizes, the number of parts, and the number of workers
    signalled to stop. Steps have the same parts in all modes, so that modes cost the same.

    Attributes:
        accumulated: Sum of the gradients of the epoch's samples, shaped as the weights.
    """

    def __init__(self, job: Job, gang: Collective, data: DataSet) -> None:
        self._job = job
        self._gang = gang
        self._data = data
        module = models.build(job.model, job.size, job.seed).to(gang.device)
        self.flat = FlatModel(module)
        self.optimiser = Optimiser(RECIPES[job.model], self.flat.weights)
        self.accumulated = torch.zeros_like(self.flat.weights)
        self.noise = NoiseScale()
        self._message = torch.zeros(len(self.flat.weights) + 5, device=gang.device)
        self._gradient, self._numbers = self._message[:-5], self._message[-5:]

    def step(self, at: TrainingPosition, samples: Ints, stop: bool) -> bool:
        """Train on one step's samples (indices), and update the position.

        Returns whether any worker was signalled to stop; all workers get the same answer.

        Raises:
            ArithmeticError: The loss is no longer finite.
        """
        self._message.zero_()
        parts = max(LEAST_PARTS, self._gang.size)
        for part in range(self._gang.rank, parts, self._gang.size):
            bounds = slice(part * len(samples) // parts, (part + 1) * len(samples) // parts)
            if len(samples[bounds]):
                self._seed(at, part)
                self._add(samples[bounds], len(samples))
        self._numbers[4] = float(stop)
        self._gang.sum(self._message)
        loss, squares, inverses, count, stops = self._numbers.tolist()
        if not math.isfinite(loss):
            raise ArithmeticError(f"the loss is {loss} in epoch {at.epoch}, step {at.step}")
        norm = self._gradient.norm().item()
        # count / inverses is the harmonic mean of the parts' sizes.
        if count > 1 and len(samples) > count / inverses:
            self.noise.add(*estimate(count / inverses, squares / count, len(samples), norm**2))
        self.accumulated.add_(self._gradient, alpha=len(samples))
        growth = at.batch_size / self._job.batch_size
        rate = self.optimiser.rate(decay(self._job.epochs, at.epoch), growth)
        self.optimiser.step(self._gradient, norm, rate)
        at.step += 1
        at.samples += len(samples)
        at.loss += loss
        return bool(stops > 0.0)

    def _seed(self, at: TrainingPosition, part: int) -> None:
        """Seed the generators from the position in training, so that no random state is stored."""
        seed = np.random.SeedSequence((self._job.seed, at.epoch, at.step, part))
        torch.manual_seed(int(seed.generate_state(1)[0]))

    def _add(self, samples: Ints, of: int) -> None:
        """Add a part's share of the step's gradient to the message."""
        part = self.flat.part
        part.zero_()
        batch = tuple(tensor.to(self._gang.device) for tensor in self._data.batch(samples))
        loss = models.losses(self.flat.module, batch).sum()
        torch.autograd.backward(loss / of)
        self._gradient.add_(part)
        self._numbers[0] += loss.detach()
        # The part's gradient is divided by `of`; the noise scale needs that of its mean loss.
        self._numbers[1] += (part.norm() * (of / len(samples))) ** 2
        self._numbers[2] += 1.0 / len(samples)
        self._numbers[3] += 1.0
