"""Throughputs in a run's header: of single jobs, of pairs, of gangs on several nodes."""

from collections.abc import Sequence
from dataclasses import dataclass

from predictor.throughput import Profile


@dataclass(frozen=True, slots=True)
class Measurement:
    """A throughput.

    `restart_seconds` is the measured cost of a restart on these GPUs, on a cluster of several
    types; if 0, the cost in the settings holds.
    """

    model: str
    batch_size: int
    gpu_type: str
    gpus: int
    steps_per_second: float
    restart_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PairMeasurement:
    """The throughput of a job while another job holds the same GPUs."""

    model: str
    batch_size: int
    other_model: str
    other_batch_size: int
    gpu_type: str
    gpus: int
    steps_per_second: float


@dataclass(frozen=True, slots=True)
class SpreadMeasurement:
    """The throughputs of gangs that span at least `nodes` nodes."""

    nodes: int
    profile: tuple[Measurement, ...]
    pairs: tuple[PairMeasurement, ...] = ()


def make_profile(
    rows: Sequence[Measurement],
    pairs: Sequence[PairMeasurement],
    source: str,
    spread: Sequence[SpreadMeasurement] = (),
) -> Profile:
    """Make the profile from rows: of single jobs, of pairs, and of gangs on several nodes."""
    return Profile(
        {(row.model, row.batch_size, row.gpu_type, row.gpus): row.steps_per_second for row in rows},
        source=source,
        pairs={
            (
                row.model,
                row.batch_size,
                row.other_model,
                row.other_batch_size,
                row.gpu_type,
                row.gpus,
            ): row.steps_per_second
            for row in pairs
        },
        restarts={
            (row.gpu_type, row.gpus): row.restart_seconds for row in rows if row.restart_seconds
        },
        by_nodes={on.nodes: make_profile(on.profile, on.pairs, source) for on in spread},
    )
