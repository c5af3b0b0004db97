"""Changes of batch sizes: sequences computed by hand, and real jobs."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.images.trainers import JOB, lines, put_job, train_here
from trainer.adaptation import EpochEnd, decay, make_adaptation
from trainer.job import MODELS, Job
from trainer.noise import NoiseScale


def job(**changes: Any) -> Job:
    values = {**JOB, "total_steps": 1, "size": "small", **changes}
    return Job(**values)


def sizes(mode: str, epochs: int, norms: list[float], noises: list[NoiseScale]) -> list[int]:
    """Batch sizes that follow epochs with these gradient norms and noises."""
    chosen, size = make_adaptation(job(mode=mode, epochs=epochs, max_batch_size=40)), 8
    sequence = []
    for epoch, (norm, noise) in enumerate(zip(norms, noises, strict=True)):
        size = chosen.next_batch_size(EpochEnd(epoch, size, norm, noise))
        sequence.append(size)
        # A successor goes on where it stood.
        restored = make_adaptation(job(mode=mode, epochs=epochs, max_batch_size=40))
        restored.restore(chosen.state())
        chosen = restored
    return sequence


def test_learning_rate_decays_at_a_half_and_five_sixths() -> None:
    rates = [decay(12, epoch) for epoch in range(12)]
    assert rates == pytest.approx([1.0] * 6 + [0.1] * 4 + [0.01] * 2)


def test_accordion() -> None:
    norms = [
        4.0,  # nothing to compare with: critical
        3.0,  # a quarter less
        2.0,  # a third less
        1.0,  # half less: critical
        1.4,  # 40 % more
        1.4,  # the same, but the learning rate decays after six of twelve epochs
        1.4,
        2.1,  # half more: critical
        1.2,  # 43 % less
        1.2,  # before the second decay
        1.3,
        1.3,
    ]
    assert sizes("accordion", 12, norms, [NoiseScale()] * 12) == [
        *(8, 40, 40, 8, 40, 8),
        *(40, 8, 40, 8, 40, 40),
    ]


def test_accordion_looks_every_tenth_epoch_of_long_jobs() -> None:
    norms = [float(epoch) for epoch in range(1, 101)]
    after = sizes("accordion", 100, norms, [NoiseScale()] * 100)
    # After 10 epochs the first look, after 20 the norm has doubled, after 30 it grew by half,
    # after 40 by a third; after 50 the learning rate decays, after 84 again.
    assert after[:50] == [8] * 39 + [40] * 10 + [8]
    assert after[50:] == [8] * 9 + [40] * 24 + [8] * 6 + [40] * 11


def test_gradient_noise() -> None:
    def noise(scale: float) -> NoiseScale:
        return NoiseScale(signal=2.0, noise=2.0 * scale)

    noises = [
        noise(15.9),
        noise(16.0),  # reaches twice 8
        noise(20.0),
        noise(1.0),  # never shrinks
        noise(32.0),  # reaches twice 16
        noise(63.0),
        NoiseScale(signal=-1.0, noise=1.0),  # no gradient to be seen: 64 at least, 40 at most
        noise(500.0),
        NoiseScale(signal=-1.0, noise=-1.0),
    ]
    expected = [8, 16, 16, 16, 32, 32, 40, 40, 40]
    assert sizes("gns", 20, [1.0] * 9, noises) == expected
    assert sizes("static", 20, [1.0] * 9, noises) == [8] * 9
    assert sizes("gns", 20, [1.0], [NoiseScale(signal=-1.0, noise=-1.0)]) == [8]


@pytest.mark.parametrize("model", MODELS)
def test_jobs_adapt(tmp_path: Path, model: str) -> None:
    """Within six epochs every model changes its batch size in both modes, within bounds."""
    sizes = {}
    for mode in ("accordion", "gns"):
        # Noise shows late in what pictures teach.
        samples = 64 if mode == "gns" and model.startswith("ResNet") else 32
        job = {"model": model, "mode": mode, "epochs": 6, "samples_per_epoch": samples}
        folder = put_job(tmp_path / mode, batch_size=4, max_batch_size=16, **job)
        assert train_here(folder) == 0
        sizes[mode] = [line["batch_size"] for line in lines(folder)]
        assert len(sizes[mode]) == 6
        for line in lines(folder):
            assert line["samples"] == samples
            assert line["steps"] == samples // line["batch_size"]
        # It learns on the way.
        assert lines(folder)[-1]["loss"] < 0.9 * lines(folder)[0]["loss"]
    assert set(sizes["accordion"]) == {4, 16}
    assert sizes["accordion"][0] == 4
    climbed = sizes["gns"]
    assert climbed[0] == 4
    assert climbed[-1] in (8, 16)
    assert all(after in (before, 2 * before) for before, after in pairwise(climbed))


def test_modes_cost_the_same_steps(tmp_path: Path) -> None:
    """Until batch sizes part, every mode trains the same, its statistics included."""
    figures = []
    for mode in ("static", "accordion", "gns"):
        folder = put_job(tmp_path / mode, mode=mode, epochs=2)
        assert train_here(folder) == 0
        first = lines(folder)[0]
        figures.append((first["loss"], first["gradient_norm"], first["noise_scale"]))
    assert figures[0] == figures[1] == figures[2]
