"""Allocations: those properties of a job's GPUs on which throughput and price depend."""

from dataclasses import dataclass

from predictor.errors import InputError


@dataclass(frozen=True, slots=True, order=True)
class Allocation:
    """GPUs of one type as jobs bid for them and markets price them: how many, not which.

    `nodes` is the number of nodes that they span. `shared_with` are the ids of jobs that share
    these GPUs, ascending.
    """

    gpu_type: str
    gpus: int
    nodes: int = 1
    shared_with: tuple[int, ...] = ()

    def same_but_for_nodes(self, other: "Allocation") -> bool:
        """Return whether another allocation has the same number of GPUs of the same type."""
        return (self.gpu_type, self.gpus) == (other.gpu_type, other.gpus)


@dataclass(frozen=True, slots=True)
class Demand:
    """The allocations that a job can train on.

    Attributes:
        least: Minimum number of GPUs.
        most: Maximum number of GPUs; equal to `least` for a gang.
        types: GPU types that it can run on; empty for any.
        tuned: Number of GPUs that a policy gives it if it chooses no sizes; 0 for the least.

    Raises:
        InputError: `least` is not positive, or above `most`.
    """

    least: int
    most: int
    types: tuple[str, ...] = ()
    tuned: int = 0

    def __post_init__(self) -> None:
        if self.least < 1:
            raise InputError("demand", f"{self.least} GPUs is not positive", "give at least one")
        if self.most < self.least:
            raise InputError(
                "demand",
                f"the maximum of {self.most} GPUs is below the minimum of {self.least}",
                "give a larger number",
            )
        if self.tuned and not self.least <= self.tuned <= self.most:
            raise InputError(
                "demand",
                f"the tuned number of GPUs, {self.tuned}, is not {self.least} to {self.most}",
                "give one in this range",
            )

    @property
    def size(self) -> int:
        """Number of GPUs that it gets from a policy that chooses no sizes."""
        return self.tuned or self.least

    @property
    def rigid(self) -> "Demand":
        """The demand as a policy that chooses no sizes sees it: of a gang, if tuned."""
        return Demand(self.tuned, self.tuned, self.types) if self.tuned else self

    @classmethod
    def gang(cls, gpus: int) -> "Demand":
        """Return the demand of a gang: a fixed number of GPUs, all or none, of any type."""
        return cls(gpus, gpus)

    def allows(self, gpu_type: str) -> bool:
        """Return whether the demand admits a GPU type."""
        return not self.types or gpu_type in self.types
