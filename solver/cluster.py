"""The cluster, and which GPUs each job gets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from predictor.errors import InputError


@dataclass(frozen=True, slots=True)
class Cluster:
    """GPUs that jobs are placed on, each a server of its own.

    Attributes:
        gpus: How many.

    Raises:
        InputError: There are none.
    """

    gpus: int

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InputError("--gpus", f"{self.gpus} is not positive", "give at least one GPU")


def place(
    cluster: Cluster, scale_factors: Mapping[int, int], held: Mapping[int, Sequence[int]]
) -> dict[int, tuple[int, ...]]:
    """Assign GPUs to the jobs of a round; a running job stays where it is.

    Args:
        cluster: The GPUs.
        scale_factors: By job of the coming round, the GPUs that it needs.
        held: GPUs that jobs hold now.

    Returns:
        GPU indices by job, ascending, disjoint; in the order of `scale_factors`.

    Raises:
        ValueError: The jobs need more GPUs than there are.
    """
    staying = {job: tuple(held[job]) for job in scale_factors if job in held}
    taken = {gpu for gpus in staying.values() for gpu in gpus}
    free = [gpu for gpu in range(cluster.gpus) if gpu not in taken]
    if sum(scale_factors.values()) > cluster.gpus:
        raise ValueError(f"{sum(scale_factors.values())} GPUs planned of {cluster.gpus}")
    placed: dict[int, tuple[int, ...]] = {}
    for job, need in scale_factors.items():
        if job in staying:
            placed[job] = staying[job]
        else:
            placed[job], free = tuple(free[:need]), free[need:]
    return placed
