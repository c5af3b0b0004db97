"""A model's weights and gradients as one vector each, and steps of gradient descent on them.

A single vector makes a gang's sum one message and a step a few operations. PyTorch's own optimisers
import its compiler, which doubles the time of every resume.
"""

import math

import torch
from torch import Tensor, nn

from trainer.shapes import TrainingRecipe

ALIGNMENT = 16
"""Each parameter starts at a multiple of this many numbers, one cache line."""

MOMENTUM, SECOND_MOMENT, EPSILON = 0.9, 0.999, 1e-8
"""Decay rates of the moments and epsilon of the denominator: Adam's defaults (Kingma and Ba, 2015);
0.9 is also the momentum of SGD."""


class FlatModel:
    """A module whose parameters and gradients are views of two vectors.

    Attributes:
        module: The module, already on its device.
        weights: All parameters, padded with zeros, shape (numbers,).
        part: Gradient that `backward` adds to, of the same shape.
        named: Views of the weights by the parameters' names.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = dict(module.named_parameters())
        starts = [0]
        for parameter in parameters.values():
            starts.append(starts[-1] + -(-parameter.numel() // ALIGNMENT) * ALIGNMENT)
        device = next(iter(parameters.values())).device
        self.module = module
        self.weights = torch.zeros(starts[-1], device=device)
        self.part = torch.zeros_like(self.weights)
        self.named: dict[str, Tensor] = {}
        for (name, parameter), start in zip(parameters.items(), starts, strict=False):
            span = slice(start, start + parameter.numel())
            view = self.weights[span].view_as(parameter)
            view.copy_(parameter.detach())
            parameter.data = self.named[name] = view
            parameter.grad = self.part[span].view_as(parameter)


class Optimiser:
    """Gradient descent with momentum, or Adam (Kingma & Ba, 2015)."""

    def __init__(self, recipe: TrainingRecipe, weights: Tensor) -> None:
        self._recipe = recipe
        self._weights = weights
        names = ("first", "second") if recipe.adam else ("first",)
        self.moments = {name: torch.zeros_like(weights) for name in names}
        self.steps = 0

    def rate(self, decay: float, growth: float) -> float:
        """Return the learning rate.

        Args:
            decay: Factor of the decay schedule.
            growth: Batch size over the initial one. Descent scales the rate linearly (Goyal et al.,
                2017), as Accordion does; Adam, with the square root (Malladi et al., NeurIPS 2022).
        """
        return self._recipe.rate * decay * (math.sqrt(growth) if self._recipe.adam else growth)

    def step(self, gradient: Tensor, norm: float, rate: float) -> None:
        """Update the weights with the gradient of a step's mean loss, which is overwritten."""
        self.steps += 1
        if norm > self._recipe.clip:
            gradient.mul_(self._recipe.clip / norm)
        if self._recipe.weight_decay:
            gradient.add_(self._weights, alpha=self._recipe.weight_decay)
        first = self.moments["first"]
        if not self._recipe.adam:
            first.mul_(MOMENTUM).add_(gradient)
            self._weights.sub_(first, alpha=rate)
            return
        second = self.moments["second"]
        first.lerp_(gradient, 1.0 - MOMENTUM)
        second.mul_(SECOND_MOMENT).addcmul_(gradient, gradient, value=1.0 - SECOND_MOMENT)
        # Both divisions by 1 - decay**steps correct the bias of moments that start at zero.
        root = (second / (1.0 - SECOND_MOMENT**self.steps)).sqrt_().add_(EPSILON)
        self._weights.addcdiv_(first, root, value=-rate / (1.0 - MOMENTUM**self.steps))
