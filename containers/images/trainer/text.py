"""Words as numbers, and a recurrent language model."""

from torch import Tensor, nn
from torch.nn import functional

from trainer.shapes import ModelShape

PADDING, BEGIN, END, UNKNOWN = range(4)
"""Special tokens of every vocabulary."""


class LanguageModel(nn.Module):
    """A recurrent network that predicts the next word, after Zaremba et al. (2014)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.classes, shape.width)
        self.recurrent = nn.LSTM(
            shape.width, shape.width, shape.blocks[0], batch_first=True, dropout=shape.dropout
        )
        self.dropout = nn.Dropout(shape.dropout)
        self.word = nn.Linear(shape.width, shape.classes)

    def losses(self, words: Tensor) -> Tensor:
        """Return each sample's mean cross entropy for `words` of shape (samples, length + 1)."""
        hidden, _ = self.recurrent(self.dropout(self.embedding(words[:, :-1])))
        scores = self.word(self.dropout(hidden))
        return functional.cross_entropy(
            scores.transpose(1, 2), words[:, 1:], reduction="none"
        ).mean(1)
