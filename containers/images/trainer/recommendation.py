"""Recommendation of items to users by an autoencoder."""

from torch import Tensor, nn
from torch.nn import functional

from trainer.shapes import ModelShape


class Autoencoder(nn.Module):
    """A denoising autoencoder with multinomial likelihood, after Liang et al. (WWW 2018)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.dropout = nn.Dropout(shape.dropout)
        self.encode = nn.Linear(shape.classes, shape.width)
        self.decode = nn.Linear(shape.width, shape.classes)

    def losses(self, items: Tensor) -> Tensor:
        """Negative log likelihood of each user's items, mean over the items.

        Args:
            items: 1 where a user has an item, else 0; shape (users, items).
        """
        hidden = self.encode(self.dropout(functional.normalize(items))).tanh()
        likelihood = functional.log_softmax(self.decode(hidden), dim=1)
        return -(likelihood * items).sum(1) / items.sum(1)
