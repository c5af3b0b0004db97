"""The vocabulary of jobs: declarations and observations."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.image import check_launch
from predictor.options import NO_OPTIONS, JobOptions, array_of

LATEST_ARRIVAL = 1e11
"""Latest arrival in seconds, after three thousand years. An engineering bound; milliseconds since
1970 exceed it."""


class JobKind(StrEnum):
    """What a job promises its scheduler (docs/jobs.md)."""

    ADAPTIVE = "adaptive"
    """Reports its epochs, and can be preempted: the telemetry contract of docs/images.md."""
    CHECKPOINTING = "checkpointing"
    """Saves on SIGTERM, and resumes from its folder."""
    OPAQUE = "opaque"
    """Promises nothing; it is never preempted."""


MOST_BUDGET = 1e12
"""Largest budget; the least is one over it. A numerical bound: in the even cluster, shares of
budgets further apart are rounded."""


class Mode(StrEnum):
    """How a job adapts its batch size while it trains."""

    STATIC = "static"
    ACCORDION = "accordion"
    """Alternates between two batch sizes (Agarwal et al., MLSys 2021)."""
    GNS = "gns"
    """Doubles with the gradient noise scale (McCandlish et al., 2018)."""
    GOODPUT = "goodput"
    """Follows the goodput of a measured application (Qiao et al., Pollux, OSDI '21), if the policy
    adapts it; else it is static."""


TABLE_MODES = (Mode.STATIC, Mode.ACCORDION, Mode.GNS)
"""Modes of jobs whose speeds stand in a table."""


@dataclass(frozen=True, slots=True)
class Regime:
    """A batch size held over consecutive epochs."""

    batch_size: int
    epochs: float


@dataclass(frozen=True)
class JobSpec:
    """A job as its user declares it; it says nothing about its future.

    Attributes:
        job_id: Unique within a run; ids ascend in the order of submission.
        model: Model family, a key of the profile.
        batch_size: Batch size of the first epoch, in samples per step over all GPUs.
        max_batch_size: Largest batch size that adaptation may reach.
        arrival_seconds: Submission time, from the start of the run.
        budget: Its budget in the Fisher market, relative to other jobs.
        total_steps: Training steps at the initial batch size; by default those of whole
            epochs. The last epoch may be cut short.
        consolidate: Whether it must run on as few nodes as possible, because a single large
            tensor dominates its gradients (Tiresias, NSDI '19, section 3.3).
        max_seconds: Limit on the time that it holds GPUs, over all its leases; 0 for none. Rows
            omit this and the fields below at their defaults, to keep old hashes valid.
        kind: What it promises its scheduler. The work of an adaptive job is its epochs; that of
            a `timed` job is seconds on its own allocation.
        name: Its name; jobs of the same name, tenant and image are expected to take as long.
        image: Image of its containers; by default that of the node.
        command: Arguments of its containers, never a shell's text. The default is the image's;
            for an adaptive job, its folder.
        environment: Environment variables of its containers, as `NAME=VALUE`.
        opportunistic: Whether it runs on idle GPUs only: it uses none of its tenant's cells, and
            beside a guaranteed job it gets the time that the guaranteed job leaves.

    Raises:
        InputError: A field is out of range; the message names it.
    """

    job_id: int
    model: str
    batch_size: int
    max_batch_size: int
    demand: Demand
    mode: Mode
    epochs: int
    samples_per_epoch: int
    arrival_seconds: float
    tenant: str = "default"
    budget: float = 1.0
    total_steps: int = 0
    consolidate: bool = False
    max_seconds: float = 0.0
    kind: JobKind = JobKind.ADAPTIVE
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    options: JobOptions = NO_OPTIONS
    opportunistic: bool = False

    def __post_init__(self) -> None:
        if self.name or self.image or self.command or self.environment:
            place = f"job {self.job_id}"
            check_launch(place, self.name, self.image, self.command, self.environment)
        if self.options != NO_OPTIONS:
            self.options.check(f"job {self.job_id}", self.tenant)
        for name in ("batch_size", "epochs", "samples_per_epoch", "budget"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise InputError(
                    f"job {self.job_id}, {name}",
                    f"{value} is not {'finite' if value > 0 else 'positive'}",
                    "give a positive number",
                )
        if not 1 / MOST_BUDGET <= self.budget <= MOST_BUDGET:
            raise InputError(
                f"job {self.job_id}, budget",
                f"{self.budget} is not between {1 / MOST_BUDGET:g} and {MOST_BUDGET:g}",
                "budgets are relative to each other: give one near 1",
            )
        if not 0 <= self.arrival_seconds <= LATEST_ARRIVAL:
            raise InputError(
                f"job {self.job_id}, arrival",
                f"{self.arrival_seconds} is "
                + ("too large" if self.arrival_seconds > 0 else "not a time of 0 or more"),
                "give seconds since the start of the trace",
            )
        if not 0 <= self.max_seconds < float("inf"):
            raise InputError(
                f"job {self.job_id}, max_seconds",
                f"{self.max_seconds} is not a time of 0 or more",
                "give the seconds for which it may hold GPUs; 0 for any time",
            )
        if self.max_batch_size < self.batch_size:
            raise InputError(
                f"job {self.job_id}, max_batch_size",
                f"{self.max_batch_size} is below the initial batch size {self.batch_size}",
                "declare the largest batch size that adaptation may reach",
            )
        if self.timed:
            self._check_timed()
        steps_per_epoch = self.steps_per_epoch(self.batch_size)
        if not self.total_steps:
            object.__setattr__(self, "total_steps", self.epochs * steps_per_epoch)
        if math.ceil(self.total_steps / steps_per_epoch) != self.epochs:
            raise InputError(
                f"job {self.job_id}, total_steps",
                f"{self.total_steps} steps are not {self.epochs} epochs of {steps_per_epoch}",
                "give steps that end in the last epoch",
            )

    def _check_timed(self) -> None:
        if self.opportunistic and not self.preemptible:
            raise InputError(
                f"job {self.job_id}, opportunistic",
                f"a job that is {self.kind.value} keeps its GPUs, which others may need",
                f"leave it out, or make it {JobKind.CHECKPOINTING.value}",
            )
        if not self.max_seconds:
            raise InputError(
                f"job {self.job_id}, max_seconds",
                f"is missing, and the job is {self.kind.value}",
                "give the seconds for which it may hold GPUs",
            )
        seconds = math.ceil(self.max_seconds)
        if (self.mode, self.epochs, self.max_batch_size) != (Mode.STATIC, 1, 1) or (
            self.samples_per_epoch != seconds or self.total_steps not in (0, seconds)
        ):
            raise InputError(
                f"job {self.job_id}, kind",
                f"a job that is {self.kind.value} has no epochs and batch sizes",
                "leave them out",
            )

    @cached_property
    def timed(self) -> bool:
        """Whether its work is seconds on its own allocation, up to `max_seconds`."""
        return self.kind is not JobKind.ADAPTIVE

    @property
    def preemptible(self) -> bool:
        """Whether it can give its GPUs back before its end, and resume later."""
        return self.kind is not JobKind.OPAQUE

    @property
    def first_task(self) -> int:
        """Id of the first task of its array; its own if it is in none."""
        return self.job_id - self.options.task.place

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the training steps of a whole epoch at a batch size."""
        return math.ceil(self.samples_per_epoch / batch_size)

    def steps_after(self, epochs: int, batch_size: int) -> int:
        """Return the training steps from the end of an epoch to the end of the job.

        The last epoch may be cut short; it keeps its share of the steps at any batch size.
        """
        if epochs >= self.epochs:
            return 0
        whole, initial = self.steps_per_epoch(batch_size), self.steps_per_epoch(self.batch_size)
        last = self.total_steps - (self.epochs - 1) * initial
        return (self.epochs - 1 - epochs) * whole + math.ceil(last * whole / initial)

    @cached_property
    def cohort(self) -> tuple[str, int, int]:
        """Model, initial batch size and gang; a priori, jobs of a cohort change alike."""
        return self.model, self.batch_size, self.demand.size

    @cached_property
    def batch_sizes(self) -> tuple[int, ...]:
        """Batch sizes that the declared mode can visit in a table, in ascending order."""
        fixed = self.mode in (Mode.STATIC, Mode.GOODPUT)
        if fixed or self.max_batch_size == self.batch_size:
            return (self.batch_size,)
        if self.mode is Mode.ACCORDION:
            return (self.batch_size, self.max_batch_size)
        sizes = [self.batch_size]
        while sizes[-1] * 2 < self.max_batch_size:
            sizes.append(sizes[-1] * 2)
        return (*sizes, self.max_batch_size)


def make_timed_job(
    job_id: int,
    kind: JobKind,
    demand: Demand,
    max_seconds: float,
    arrival_seconds: float,
    *,
    image: str = "",
    **others: Any,
) -> JobSpec:
    """Make a job whose work is seconds on its own allocation.

    It has one epoch, with a step for each second up to its limit. Most such jobs end within it.
    The image also serves as the job's model.

    Raises:
        InputError: A field is out of range.
    """
    return JobSpec(
        job_id=job_id,
        model=image or kind.value,
        batch_size=1,
        max_batch_size=1,
        demand=demand,
        mode=Mode.STATIC,
        epochs=1,
        samples_per_epoch=math.ceil(max_seconds) if 0 < max_seconds < math.inf else 1,
        arrival_seconds=arrival_seconds,
        max_seconds=max_seconds,
        kind=kind,
        image=image,
        **others,
    )


@dataclass(frozen=True, slots=True)
class EpochReport:
    """Consecutive epochs that a job completed at one batch size.

    The first has the index `epoch`, from 0. `seconds` is their total, restarts excluded.
    """

    job_id: int
    epoch: int
    epochs: int
    batch_size: int
    seconds: float


LARGEST_LOSS = 2**53
"""Largest plausible size of a loss; other numbers read from outside have the same bound."""


@dataclass(frozen=True, slots=True)
class EpochLoss:
    """The training loss of a completed epoch.

    `epoch` counts from 0; `loss` is the mean over its samples, within ± `LARGEST_LOSS`.
    """

    job_id: int
    epoch: int
    loss: float


def add_report(reports: list[EpochReport], new: EpochReport) -> None:
    """Append a report; merge it into the last report if their batch sizes are equal."""
    if reports and reports[-1].batch_size == new.batch_size:
        last = reports.pop()
        both = last.epochs + new.epochs, last.batch_size, last.seconds + new.seconds
        new = EpochReport(new.job_id, last.epoch, *both)
    reports.append(new)


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job at a round boundary, as its container reports it.

    Attributes:
        fraction: Completed fraction of the current epoch, in [0, 1].
        seconds: Training time since the last observation, restarts excluded.
        run_seconds: Training time since submission, restarts excluded.
        steps_left: Training steps left at that batch size; negative if a change of batch
            size took the job past its end.
        cpu_seconds: CPU time of its container since the last observation; this and the two
            fields below are 0 if not measured.
        gpu_share: Recent mean utilisation of its GPUs, in [0, 1].
        share: Share of its work that a timed job reports done, in [0, 1]; 0 without a report.
    """

    job_id: int
    epochs: int
    fraction: float
    batch_size: int
    seconds: float
    run_seconds: float
    steps_left: int
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    gpu_share: float = 0.0
    share: float = 0.0


def find_named(target: str, jobs: Sequence[JobSpec]) -> Iterator[JobSpec]:
    """Find jobs by id or name, in the order of submission: by an id, `NAME`, or `NAME[INDEX]`.

    A number is an id if a job has it. A name means the latest job of that name; if that job is in
    an array, all tasks of the array, or the task of the given index.
    """
    if target.isascii() and target.isdigit():
        numbered = next((job for job in jobs if job.job_id == int(target)), None)
        if numbered is not None:
            yield numbered
            return
    name, _, index = target.partition("[")
    last = next((job for job in reversed(jobs) if job.name == name), None) if name else None
    if last is None:
        return
    first = array_of(last.job_id, last.options)
    for job in [last] if first is None else jobs:
        own = array_of(job.job_id, job.options)
        if own == first and (not index or job.options.task.index_is(index)):
            yield job
