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
        """Return the negative log likelihood of each user's items, averaged over the items.

        `items` has shape (users, items): 1 if the user has the item, else 0.
        """
        hidden = self.encode(self.dropout(functional.normalize(items))).tanh()
        likelihood = functional.log_softmax(self.decode(hidden), dim=1)
        return -(likelihood * items).sum(1) / items.sum(1)
