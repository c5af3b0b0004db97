"""The models: a sample's loss is its own, and the full sizes are the published ones."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.images.trainers import put_job
from trainer import models
from trainer.data import open_data
from trainer.flat import FlatModel, Optimiser
from trainer.job import MODELS, read_job
from trainer.shapes import SHAPES, ModelShape, TrainingRecipe
from trainer.text import PADDING
from trainer.translation import Translator
from trainer.vision import Basic, Bottleneck, ResidualNetwork


@pytest.mark.parametrize("model", MODELS)
def test_losses_are_their_samples_own(tmp_path: Path, model: str) -> None:
    """Alone or among others, a sample has the same loss; weights follow from the seed."""
    data = open_data(read_job(put_job(tmp_path / "job", model=model)))
    module, again = (models.build(model, "small", 3) for _ in range(2))
    together = models.losses(module, data.batch(np.arange(4)))
    assert together.shape == (4,)
    alone = [models.losses(module, data.batch(np.array([index]))) for index in range(4)]
    assert together.tolist() == pytest.approx(torch.cat(alone).tolist(), rel=1e-4)
    assert models.losses(again, data.batch(np.arange(4))).equal(together)
    assert len({round(loss, 6) for loss in together.tolist()}) == 4


def test_published_widths() -> None:
    """About as many weights as in He et al., for 1,000 classes."""
    for block, name, millions in ((Basic, "ResNet-18", 11.2), (Bottleneck, "ResNet-50", 23.5)):
        with torch.device("meta"):  # weights without numbers
            network = ResidualNetwork(SHAPES[name, "full"], block)
        count = sum(parameter.numel() for parameter in network.parameters())
        assert count / 1e6 == pytest.approx(millions, abs=0.1)


def test_translator_sees_no_padding_and_no_future() -> None:
    torch.manual_seed(0)
    translator = Translator(ModelShape(30, 6, 16, (1, 1)))
    source = torch.tensor([[7, 8, 2, PADDING, PADDING, PADDING]])
    target = torch.tensor([[1, 9, 2, PADDING, PADDING]])
    loss = translator.losses(source, target)
    assert torch.allclose(translator.losses(source[:, :3], target[:, :3]), loss, rtol=1e-5)
    scores: list[torch.Tensor] = []
    translator.word.register_forward_hook(lambda _module, _given, out: scores.append(out))
    for words in ([1, 9, 5, 2, PADDING], [1, 9, 6, 7, 2]):
        translator.losses(source, torch.tensor([words]))
    one, other = (score[0] for score in scores)
    assert torch.allclose(one[:2], other[:2], rtol=1e-5)
    assert not torch.allclose(one[2], other[2], rtol=1e-2)


def test_descent_with_momentum() -> None:
    """Computed by hand: momentum keeps nine tenths, weights decay, long gradients are cut."""
    weights = torch.tensor([1.0, 0.0])
    descent = Optimiser(TrainingRecipe(0.1, adam=False, weight_decay=0.5, clip=1.0), weights)
    descent.step(torch.tensor([0.3, 0.4]), 0.5, 0.1)
    # 0.3 and half of the weight 1; 0.4.
    assert weights.tolist() == pytest.approx([1.0 - 0.08, -0.04])
    descent.step(torch.tensor([3.0, 4.0]), 5.0, 0.1)
    # A fifth of the gradient, half of the weights, nine tenths of 0.8 and 0.4.
    moved = [0.6 + 0.46 + 0.72, 0.8 - 0.02 + 0.36]
    assert weights.tolist() == pytest.approx([0.92 - 0.1 * moved[0], -0.04 - 0.1 * moved[1]])


def test_adam() -> None:
    """The first step is as long as the rate says, in every direction; then moments count."""
    weights = torch.zeros(3)
    adam = Optimiser(TrainingRecipe(0.1, adam=True, weight_decay=0.0, clip=100.0), weights)
    gradients = np.array([[2.0, -0.5, 1e-3], [1.0, 0.5, 1e-3], [-3.0, 0.5, 1e-3]])
    first, second, expected = np.zeros(3), np.zeros(3), np.zeros(3)
    for step, gradient in enumerate(gradients, 1):
        adam.step(torch.tensor(gradient, dtype=torch.float32), 1.0, 0.1)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        root = np.sqrt(second / (1 - 0.999**step)) + 1e-8
        expected -= 0.1 * first / (1 - 0.9**step) / root
        assert weights.tolist() == pytest.approx(expected.tolist(), rel=1e-4)
        if step == 1:
            assert weights.tolist() == pytest.approx([-0.1, 0.1, -0.1], rel=1e-4)


def test_rates_follow_batch_sizes() -> None:
    for adam, growth in ((False, 4.0), (True, 2.0)):
        recipe = TrainingRecipe(0.5, adam=adam, weight_decay=0.0, clip=1.0)
        assert Optimiser(recipe, torch.zeros(1)).rate(0.1, 4.0) == pytest.approx(0.05 * growth)


def test_one_vector() -> None:
    """Weights and gradients are views of it, and the module computes with them."""
    torch.manual_seed(0)
    module = torch.nn.Linear(5, 3)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    flat = FlatModel(module)
    assert all(flat.named[name].equal(weights) for name, weights in before.items())
    torch.autograd.backward(module(torch.ones(1, 5)).sum())
    assert flat.part.sum().item() == pytest.approx(15.0 + 3.0)
    flat.weights.zero_()
    assert module(torch.ones(1, 5)).abs().sum().item() == 0.0
