"""The models by name. Add a model of your own as a class with `losses` and a line in `build`."""

from typing import Protocol, cast

import torch
from torch import Tensor, nn

from trainer.recommendation import Autoencoder
from trainer.shapes import SHAPES, ModelShape
from trainer.text import LanguageModel
from trainer.translation import Translator
from trainer.vision import Basic, Bottleneck, ResidualNetwork


class Model(Protocol):
    """What the loop asks of a module.

    A sample's loss must depend on that sample alone, or it would change with the number
    of workers; so no normalisation over batches.
    """

    def losses(self, *batch: Tensor) -> Tensor:
        """Loss of each sample of a batch, shape (samples,)."""
        ...


def build(name: str, size: str, seed: int) -> nn.Module:
    """A model with fresh weights, the same for the same seed."""
    shape = SHAPES[name, size]
    torch.manual_seed(seed)
    return _module(name, shape)


def losses(module: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Loss of each sample of a batch, shape (samples,)."""
    return cast("Model", module).losses(*batch)


def _module(name: str, shape: ModelShape) -> nn.Module:
    match name:
        case "ResNet-18":
            return ResidualNetwork(shape, Basic)
        case "ResNet-50":
            return ResidualNetwork(shape, Bottleneck)
        case "LM":
            return LanguageModel(shape)
        case "Transformer":
            return Translator(shape)
        case _:
            return Autoencoder(shape)
