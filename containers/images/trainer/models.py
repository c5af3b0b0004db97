"""The models by name. To add a model, write a class with `losses` and add it to `_module`."""

from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.shapes import SHAPES, ModelShape
from trainer.text import LanguageModel
from trainer.translation import Translator
from trainer.vision import Basic, Bottleneck, ResidualNetwork


class Model(Protocol):
    """A module that the training loop can train.

    A sample's loss must depend only on that sample, so that it does not change with the number of
    workers; hence no batch normalisation.
    """

    def losses(self, *batch: Tensor) -> Tensor:
        """Return the loss of each sample of a batch, shape (samples,)."""
        ...


class Autoencoder(nn.Module):
    """A denoising recommender with multinomial likelihood, after Liang et al. (WWW 2018)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.dropout = nn.Dropout(shape.dropout)
        self.encode = nn.Linear(shape.classes, shape.width)
        self.decode = nn.Linear(shape.width, shape.classes)

    def losses(self, items: Tensor) -> Tensor:
        """Return the negative log likelihood of each user's items, averaged over the items.

        `items` has shape (users, items): 1 if the user has the item, else 0.
        """
        hidden = self.encode(self.dropout(functional.normalize(items))).tanh()
        likelihood = functional.log_softmax(self.decode(hidden), dim=1)
        return -(likelihood * items).sum(1) / items.sum(1)


def build(name: str, size: str, seed: int) -> nn.Module:
    """Build a model with fresh weights, which the seed determines."""
    shape = SHAPES[name, size]
    torch.manual_seed(seed)
    return _module(name, shape)


def losses(module: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Return the loss of each sample of a batch, shape (samples,)."""
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
