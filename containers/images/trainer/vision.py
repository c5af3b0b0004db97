"""Residual networks for small pictures, after He et al. (CVPR 2016).

They normalise groups of channels (Wu & He, ECCV 2018), since batch statistics would depend on how a
batch is divided among workers.
"""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from trainer.shapes import ModelShape


def _convolution(inputs: int, outputs: int, side: int, stride: int = 1) -> nn.Sequential:
    groups = min(32, outputs // 4)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, side, stride, padding=side // 2, bias=False),
        nn.GroupNorm(groups, outputs),
    )


class Basic(nn.Module):
    """Two convolutions and a skip connection."""

    expansion: ClassVar[int] = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(inputs, width, 3, stride)
        self.second = _convolution(width, width, 3)
        self.around = _around(inputs, width, stride)

    def forward(self, features: Tensor) -> Tensor:
        """Transform features of shape (samples, channels, side, side)."""
        inner = self.second(functional.relu(self.first(features)))
        return functional.relu(inner + self.around(features))


class Bottleneck(nn.Module):
    """A convolution between two that narrow and widen, and a skip connection."""

    expansion: ClassVar[int] = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.first = _convolution(inputs, width, 1)
        self.second = _convolution(width, width, 3, stride)
        self.third = _convolution(width, outputs, 1)
        self.around = _around(inputs, outputs, stride)

    def forward(self, features: Tensor) -> Tensor:
        """Transform features of shape (samples, channels, side, side)."""
        inner = functional.relu(self.second(functional.relu(self.first(features))))
        return functional.relu(self.third(inner) + self.around(features))


def _around(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return _convolution(inputs, outputs, 1, stride)


class ResidualNetwork(nn.Module):
    """A classifier of pictures, with four stages of residual blocks of doubling width."""

    def __init__(self, shape: ModelShape, block: type[Basic] | type[Bottleneck]) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(3, shape.width, 3), nn.ReLU()]
        channels = shape.width
        for stage, blocks in enumerate(shape.blocks):
            width = shape.width << stage
            for number in range(blocks):
                stride = 2 if stage and not number else 1
                layers.append(block(channels, width, stride))
                channels = width * block.expansion
        self.features = nn.Sequential(*layers)
        self.label = nn.Linear(channels, shape.classes)

    def losses(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """Return the cross entropy of each sample.

        `pictures` have shape (samples, 3, side, side), `labels` (samples,).
        """
        scores = self.label(self.features(pictures).mean((2, 3)))
        return functional.cross_entropy(scores, labels, reduction="none")
