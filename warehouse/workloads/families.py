"""The generator's model families, with the costs of their epochs.

The five kinds are those of the public traces; sizes and costs are our own. An epoch takes seconds
to minutes, the largest batch size on one GPU is 1.5 to 3.5 times as fast as the smallest, and more
GPUs are always faster. `docs/traces.md` tabulates the families.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from predictor.throughput import Profile

SCALE_FACTORS = (1, 2, 4, 8)
"""Default scale factors of generated jobs: those of the public traces."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of model with a parametric cost per step.

    A step of batch size b on g GPUs takes

        overhead + sample · b / g + exchange · (g − 1) / g   seconds.

    The terms are the launch of kernels and loading of data, each GPU's share of the batch, and a
    ring all-reduce of the gradients, whose traffic per GPU grows with (g − 1) / g. The first and
    last terms do not depend on b, so larger batches train more samples/s.

    Attributes:
        name: Key of the profile.
        samples: Samples per epoch.
        smallest: Smallest initial batch size.
        largest: Largest batch size, `smallest` times a power of two.
        overhead_seconds: Cost of a step independent of its batch size.
        sample_seconds: Cost of a sample on one GPU.
        exchange_seconds: Cost of an all-reduce among very many GPUs.
    """

    name: str
    samples: int
    smallest: int
    largest: int
    overhead_seconds: float
    sample_seconds: float
    exchange_seconds: float

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Batch sizes from the smallest to the largest, doubling."""
        doublings = (self.largest // self.smallest).bit_length()
        return tuple(self.smallest << doubling for doubling in range(doublings))

    def steps_per_second(self, batch_size: int, gpus: int) -> float:
        """Return the throughput of the whole job."""
        compute = self.sample_seconds * batch_size / gpus
        exchange = self.exchange_seconds * (gpus - 1) / gpus
        return 1.0 / (self.overhead_seconds + compute + exchange)


FAMILIES = (
    Family("conv-small", 40_000, 32, 512, 0.014, 0.000_25, 0.006),
    Family("conv-large", 24_000, 16, 128, 0.030, 0.002, 0.024),
    Family("recurrent-lm", 24_000, 16, 256, 0.030, 0.000_6, 0.006),
    Family("translator", 16_000, 16, 256, 0.040, 0.000_9, 0.010),
    Family("autoencoder", 120_000, 512, 8_192, 0.045, 0.000_16, 0.050),
)
"""Two convolutional networks, a recurrent language model, a transformer, and a recommender."""


def generated_profile(scale_factors: Iterable[int] = SCALE_FACTORS) -> Profile:
    """Return the throughput of each family at each batch size and scale factor."""
    return Profile.of_type(
        {
            (family.name, size, gpus): family.steps_per_second(size, gpus)
            for family in FAMILIES
            for size in family.batch_sizes
            for gpus in scale_factors
        },
        source="generated profile",
    )
