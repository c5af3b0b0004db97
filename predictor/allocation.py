"""What a job trains on, as far as its speed and its price depend on it."""

from dataclasses import dataclass

from predictor.errors import InputError


@dataclass(frozen=True, slots=True, order=True)
class Allocation:
    """GPUs of one type, as they are bid for and priced: how many, not which.

    Which GPUs these are is a placement.

    Attributes:
        gpu_type: Their type, a key of the throughput table.
        gpus: How many.
        nodes: Nodes that they are on.
        shared_with: Jobs that train on the same GPUs, ascending; none where they are the
            job's alone.
    """

    gpu_type: str
    gpus: int
    nodes: int = 1
    shared_with: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Demand:
    """Which allocations a job can train on.

    Attributes:
        least: GPUs that it needs at least.
        most: GPUs that it can use at most; a gang needs as many as it can use, all or none.
        types: GPU types that it can run on; any where there are none.

    Raises:
        InputError: `least` is not positive, or above `most`.
    """

    least: int
    most: int
    types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.least < 1:
            raise InputError("demand", f"{self.least} GPUs is not positive", "give at least one")
        if self.most < self.least:
            raise InputError(
                "demand",
                f"at most {self.most} GPUs is below the {self.least} needed",
                "give a larger number",
            )

    @classmethod
    def gang(cls, gpus: int) -> "Demand":
        """That of a job which holds a fixed number of GPUs, all or none, of any type."""
        return cls(gpus, gpus)

    def allows(self, gpu_type: str) -> bool:
        """Whether a job can run on GPUs of a type."""
        return not self.types or gpu_type in self.types
