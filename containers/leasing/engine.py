"""What a runtime of leases needs of the engine that runs them, such as Docker hosts."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from containers.runtime import Lease
from predictor.job import JobSpec
from predictor.parts import Mapper

Item = TypeVar("Item")
Result = TypeVar("Result")

STOPPED, KILLED, TERMINATED = 75, 137, 143
"""Exit codes: stopped with a checkpoint (EX_TEMPFAIL), SIGKILL, SIGTERM that was not handled."""

UNSAVED = "it did not handle SIGTERM, so its work since its last checkpoint may be lost"
"""Remark about a program that SIGTERM ended: a shell that started it, for example."""


class NodeGone(Exception):
    """A node does not answer; the message is the cause."""


class Refused(Exception):
    """An engine refuses a request; the message is the reason."""


class Unstartable(Refused):
    """An engine cannot start a job on the nodes of its lease, for a reason of the job's own."""


class Lacking(Refused):
    """A node lacks an image; the message is what to do about it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A lease's program on a node, as its engine knows it: a container of Docker.

    Attributes:
        id: The engine's own identity of it.
        name: A function of run, job, round and rank.
        round: Round in which its lease began.
        gpus: All GPUs of the lease, in the cluster's numbering.
        begun: Whether it ever ran.
        node: Index of its node in the cluster.
    """

    id: str
    name: str
    job_id: int
    round: int
    rank: int
    gpus: tuple[int, ...]
    running: bool
    begun: bool
    node: int = 0


@dataclass(frozen=True, slots=True)
class Exit:
    """The exit of a lease's program on a node.

    Attributes:
        code: Exit code; 128 + n after signal n.
        last_words: Last line that it printed, truncated.
        memory_bytes: Its limit of memory.
        by_engine: Why its engine ended it through no fault of the job, in words; else empty.
    """

    code: int
    out_of_memory: bool
    last_words: str
    memory_bytes: float
    by_engine: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """A program's processor time since its start, and its memory in use."""

    cpu_seconds: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """A lease that can be started.

    Attributes:
        name: Name of its first program, a function of run, job and round.
        image: The id of its job's own image; empty without one.
        parts: The engine's description of what runs on each node.
        needs: Files and networks of the job's own without which it cannot be started.
    """

    name: str
    image: str
    parts: tuple[Any, ...]
    needs: tuple[str, ...] = ()


class Cluster(Protocol):
    """Nodes on which an engine runs leases, and the storage that all of them share."""

    @property
    def grace_seconds(self) -> float:
        """Time from SIGTERM to SIGKILL, for writing a checkpoint."""

    @property
    def hung_rounds(self) -> int:
        """Consecutive rounds without a completed step or epoch after which a job counts as hung."""

    @property
    def folder_bytes(self) -> int:
        """Space of a job's folder in the storage."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the nodes."""

    def by_node(self, gpus: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Convert the cluster's GPU numbers to those of nodes, by index of the node."""

    def folder(self, run: str, job_id: int) -> Path:
        """Return the folder of a job, kept between its leases."""

    def hand_over(self, folder: Path) -> None:
        """Give a folder to the user of jobs."""


class Engine(Protocol):
    """Starts, ends and watches the programs of one run's leases.

    Attributes:
        program: What it calls a lease's program on a node.
        gone: Causes, by node that did not answer the last query.
    """

    program: str
    gone: dict[int, str]

    def check(self, jobs: Iterable[JobSpec]) -> None:
        """Refuse jobs that it never could start.

        Raises:
            InputError: A job is refused.
        """

    def look(self, *, again: bool = False) -> list[Found]:
        """Return the run's programs on all nodes that answer, ended ones included.

        `again` also queries unreachable nodes, each up to its timeout.
        """

    def prepare(self, number: int, lease: Lease, spec: JobSpec, *, shared: bool) -> Attempt:
        """Return a lease that begins in round `number`, ready to be started.

        `shared` tells whether another job has the same GPUs.

        Raises:
            NodeGone: A node does not answer.
            Refused: It cannot be started.
            OSError: The storage cannot be written.
        """

    def start(self, attempt: Attempt) -> None:
        """Start a lease's programs; those that run already are left alone.

        Raises:
            NodeGone: A node does not answer.
            Refused: A node refuses one.
        """

    def end(
        self, found: Iterable[Found], grace_seconds: float, each: Mapper | None = None
    ) -> tuple[dict[int, str], list[Found]]:
        """Stop programs, with SIGKILL after the grace period.

        Returns remarks on kills and failures by job id, and the programs that may still run.
        """

    def exit(self, found: Found) -> Exit | None:
        """Return the exit of a program; None if its node does not answer."""

    def usage(self, found: Found) -> Usage | None:
        """Return a program's latest resource usage; None before the first measurement."""

    def gpu_share(self, gpus: Sequence[int]) -> float:
        """Return the mean utilization of a lease's GPUs, in [0, 1]; 0 where it is unknown."""

    def divide(self, found: Found, *, shared: bool) -> bool:
        """Set a program's share of processors; return whether its node answered.

        It is that of its GPUs, halved if another job has the same.
        """

    def problems(self) -> dict[int, str]:
        """Return the problems of nodes, unreachable ones included, in words."""

    def leave(self, nodes: Collection[int]) -> None:
        """Stop querying nodes once they report no programs of the run."""

    def map(
        self,
        name: str,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        node_of: Callable[[Item], int],
        each: Mapper | None = None,
    ) -> list[Result]:
        """Apply a function to items in parallel; return the results in order.

        `each`, if given, gets the items of each host as a part.
        """

    def close(self) -> None:
        """Close the connections; programs keep running."""
