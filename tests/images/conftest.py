"""PyTorch for all tests of the trainer, loaded as the trainer does."""

from trainer import pytorch

pytorch.load()
