"""The gradient noise scale where it is known."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.images.trainers import put_job
from trainer import models
from trainer.collective import Collective
from trainer.data import open_data
from trainer.job import read_job
from trainer.noise import NoiseScale, estimate
from trainer.place import WorkerPlace
from trainer.steps import Stepper, TrainingPosition


@pytest.mark.parametrize("parts", [(8, 8), (4, 4, 4, 4), (3, 5), (1, 2, 13)])
def test_estimates_have_no_bias(parts: tuple[int, ...]) -> None:
    """Samples whose loss is half their squared distance from the weights have gradients
    with a known mean and covariance; the parts of a step need not be of one size."""
    generator = np.random.default_rng(2)
    mean, deviation = np.array([0.5, -1.0, 0.25]), np.array([2.0, 1.0, 0.5])
    steps = 40_000
    gradients = mean + deviation * generator.standard_normal((steps, sum(parts), 3))
    ends = np.cumsum(parts)[:-1]
    squares = [(part.mean(1) ** 2).sum(1).mean() for part in np.split(gradients, ends, axis=1)]
    whole = (gradients.mean(1) ** 2).sum(1).mean()
    small = len(parts) / sum(1.0 / part for part in parts)
    signal, noise = estimate(small, float(np.mean(squares)), sum(parts), float(whole))
    assert signal == pytest.approx((mean**2).sum(), rel=0.02)
    assert noise == pytest.approx((deviation**2).sum(), rel=0.02)


def test_moving_averages_find_the_ratio() -> None:
    averages = NoiseScale()
    assert averages.scale is None
    assert not averages.reaches(1)
    generator = np.random.default_rng(3)
    scales = []
    for _ in range(4_000):
        # Single estimates of |G|^2 = 1 are often negative, and have no ratio at all.
        averages.add(1.0 + 2.0 * generator.standard_normal(), 48.0 + generator.standard_normal())
        scales.append(averages.scale)
    settled = [scale for scale in scales[100:] if scale is not None]
    assert len(settled) > 3_800
    assert np.median(settled) == pytest.approx(48.0, rel=0.1)
    assert NoiseScale(1.0, 48.0).reaches(48)
    assert not NoiseScale(1.0, 48.0).reaches(49)


def test_a_step_measures_its_parts(tmp_path: Path) -> None:
    """A step's estimate equals the plain computation from the gradients of its halves."""
    job = read_job(put_job(tmp_path / "job", model="LM", batch_size=6))
    data, gang = open_data(job), Collective(WorkerPlace(), 1)
    samples = data.order(job, 0)[:6]

    def gradient(of: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> torch.Tensor:
        module = models.build(job.model, job.size, job.seed)
        models.losses(module, data.batch(of)).mean().backward()
        return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])

    halves = [gradient(samples[:3]), gradient(samples[3:])]
    small = float(np.mean([float(half.norm()) ** 2 for half in halves]))
    whole = gradient(samples)
    expected = NoiseScale()
    expected.add(*estimate(3.0, small, 6.0, float(whole.norm()) ** 2))

    stepper, position = Stepper(job, gang, data), TrainingPosition(6)
    assert not stepper.step(position, samples, stop=False)
    assert stepper.noise.signal == pytest.approx(expected.signal, rel=1e-4)
    assert stepper.noise.noise == pytest.approx(expected.noise, rel=1e-4)
    assert float(stepper.accumulated.norm()) == pytest.approx(6 * float(whole.norm()), rel=1e-4)
    assert (position.step, position.samples) == (1, 6)
