"""An encoder-decoder for translation, after Vaswani et al. (NIPS 2017), with pre-normalisation.

PyTorch's own attention layers import a computer algebra system at their first step, which adds half
a second to every resume.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.shapes import ModelShape
from trainer.text import PADDING


class Attention(nn.Module):
    """Multi-head attention, with layer normalisation of the queries."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, state: Tensor, seen: Tensor | None, mask: Tensor) -> Tensor:
        """Return the output of the heads, shape (samples, length, width).

        Args:
            state: The queries, shape (samples, length, width).
            seen: Keys and values, shape (samples, places, width); None for self-attention.
            mask: Where attention is allowed, broadcastable to (samples, 1, length, places).
        """
        state = self.norm(state)
        key, value = self.key_value(state if seen is None else seen).chunk(2, dim=-1)
        found = functional.scaled_dot_product_attention(
            self._split(self.query(state)), self._split(key), self._split(value), mask
        )
        brought: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return brought

    def _split(self, vectors: Tensor) -> Tensor:
        samples, length, width = vectors.shape
        return vectors.view(samples, length, self.heads, width // self.heads).transpose(1, 2)


class Layer(nn.Module):
    """Self-attention, cross-attention in a decoder, and a feed-forward network."""

    def __init__(self, shape: ModelShape, decoder: bool) -> None:
        super().__init__()
        width, heads = shape.width, max(1, shape.width // 64 * 2)
        self.own = Attention(width, heads)
        self.other = Attention(width, heads) if decoder else None
        self.forth = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(shape.dropout)

    def forward(
        self, state: Tensor, mask: Tensor, memory: Tensor | None, present: Tensor
    ) -> Tensor:
        """Return the next state, shape (samples, length, width); masks as for `Attention`."""
        state = state + self.dropout(self.own(state, None, mask))
        if self.other is not None:
            state = state + self.dropout(self.other(state, memory, present))
        forth: Tensor = state + self.dropout(self.forth(state))
        return forth


class Translator(nn.Module):
    """An encoder of the source and a decoder that writes the target."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.source = nn.Embedding(shape.classes, shape.width)
        self.target = nn.Embedding(shape.classes, shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        encoder, decoder = shape.blocks
        self.encoder = nn.ModuleList(Layer(shape, decoder=False) for _ in range(encoder))
        self.decoder = nn.ModuleList(Layer(shape, decoder=True) for _ in range(decoder))
        self.encoded, self.decoded = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.word = nn.Linear(shape.width, shape.classes)

    def losses(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the cross entropy of each sample's target words, averaged without padding.

        Args:
            source: Shape (samples, length), padded.
            target: Shape (samples, length + 1), padded, from `BEGIN` to `END`.
        """
        given, asked = target[:, :-1], target[:, 1:]
        present = (source != PADDING)[:, None, None, :]
        memory = self._embedded(self.source, source)
        for layer in self.encoder:
            memory = layer(memory, present, None, present)
        memory = self.encoded(memory)
        length = given.shape[1]
        earlier = torch.ones(length, length, dtype=torch.bool, device=given.device).tril()
        state = self._embedded(self.target, given)
        for layer in self.decoder:
            state = layer(state, earlier, memory, present)
        scores = self.word(self.decoded(state)).transpose(1, 2)
        losses = functional.cross_entropy(scores, asked, reduction="none", ignore_index=PADDING)
        return losses.sum(1) / (asked != PADDING).sum(1)

    def _embedded(self, embedding: nn.Embedding, words: Tensor) -> Tensor:
        """Return vectors of words and their positions, shape (samples, length, width)."""
        width = embedding.embedding_dim
        place = torch.arange(words.shape[1], device=words.device, dtype=torch.float32)
        wave = torch.arange(0, width, 2, device=words.device, dtype=torch.float32)
        angle = place[:, None] * torch.exp(wave * (-math.log(10_000.0) / width))
        places = torch.cat((angle.sin(), angle.cos()), dim=1)
        embedded: Tensor = self.dropout(embedding(words) + places)
        return embedded
