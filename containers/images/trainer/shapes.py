"""The sizes of models and samples, and the training recipes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Dimensions of a model and of its samples.

    Attributes:
        classes: Distinct labels, words or items.
        length: Pixels per side, or words per sample; 0 if samples have no order.
        width: Channels of the first stage, or units of a layer.
        blocks: Layers, or residual blocks of each stage.
    """

    classes: int
    length: int
    width: int
    blocks: tuple[int, ...]
    dropout: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """The training recipe of a model.

    Attributes:
        rate: Learning rate at the initial batch size.
        adam: Adam (Kingma & Ba, 2015) instead of gradient descent with momentum.
        clip: Largest norm of a step's gradient.
    """

    rate: float
    adam: bool
    weight_decay: float
    clip: float


SHAPES = {
    ("ResNet-18", "small"): ModelShape(10, 32, 8, (2, 2, 2, 2)),
    ("ResNet-18", "full"): ModelShape(10, 32, 64, (2, 2, 2, 2)),
    ("ResNet-50", "small"): ModelShape(10, 32, 8, (1, 2, 2, 1)),
    ("ResNet-50", "full"): ModelShape(10, 32, 64, (3, 4, 6, 3)),
    ("LM", "small"): ModelShape(2_000, 20, 128, (2,)),
    ("LM", "full"): ModelShape(10_000, 35, 650, (2,), 0.5),
    ("Transformer", "small"): ModelShape(2_000, 24, 64, (2, 2)),
    ("Transformer", "full"): ModelShape(10_000, 64, 512, (6, 6), 0.1),
    ("Recommendation", "small"): ModelShape(4_000, 0, 128, ()),
    ("Recommendation", "full"): ModelShape(20_000, 0, 600, (), 0.5),
}
"""Full sizes, for GPUs, have published dimensions: residual networks of He et al. (2016), the
medium language model of Zaremba et al. (2014), the base transformer of Vaswani et al. (2017), the
autoencoder of Liang et al. (2018). Vocabulary and length of translation are conventions. Small
sizes, chosen by hand, train on a fraction of a CPU core."""

RECIPES = {
    "ResNet-18": TrainingRecipe(0.05, adam=False, weight_decay=5e-4, clip=5.0),
    "ResNet-50": TrainingRecipe(0.05, adam=False, weight_decay=5e-4, clip=5.0),
    "LM": TrainingRecipe(1.0, adam=False, weight_decay=0.0, clip=1.0),
    "Transformer": TrainingRecipe(3e-3, adam=True, weight_decay=0.0, clip=1.0),
    "Recommendation": TrainingRecipe(1e-2, adam=True, weight_decay=0.0, clip=5.0),
}
"""Chosen by hand for stable training without batch normalisation; no sweep is recorded."""
