"""The facts about a job in a round from which `why` explains a decision."""

from dataclasses import dataclass
from enum import StrEnum

from flows.explain.worths import GpuHolder, Speed, Wider
from tasks.rollouts import Predicted


@dataclass(frozen=True, slots=True)
class Step:
    """An event of the job, with the round that recorded it."""

    round: int
    kind: str
    gpus: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A period without GPUs, in seconds on the run's clock.

    Attributes:
        round: The first round that gave the job no GPUs; None if the job only waited from its
            arrival to the next round.
    """

    from_seconds: float
    to_seconds: float
    round: int | None = None

    @property
    def seconds(self) -> float:
        """Length of the wait."""
        return self.to_seconds - self.from_seconds


@dataclass(frozen=True, slots=True)
class Sharing:
    """The job on the same GPUs, and the explained job's speed relative to running alone."""

    job_id: int | None
    speed: float


@dataclass(frozen=True, slots=True)
class GangSpread:
    """A gang on more nodes than it needs.

    Attributes:
        nodes: Nodes on which it holds GPUs.
        fewest_nodes: Fewest nodes that hold as many GPUs of the type.
        speed: Its speed relative to the fewest nodes.
    """

    nodes: int
    fewest_nodes: int
    speed: float


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The job's declaration and progress.

    Attributes:
        model: The model of an adaptive job; the image of any other.
        scale_factor: GPUs that its gang needs.
        max_seconds: Limit of its run time; 0 for adaptive jobs.
        batch_size: Present batch size; 1 for jobs that are not adaptive.
        progress: Share done: of an adaptive job's epochs, else of the reported work or the limit.
        reports: Whether a job that is not adaptive reports its progress.
    """

    job_id: int
    name: str
    kind: str
    tenant: str
    budget: float
    model: str
    mode: str
    scale_factor: int
    max_seconds: float
    arrival_seconds: float
    deadline_seconds: float | None
    batch_size: int
    progress: float
    reports: bool
    remaining_seconds: Predicted


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of a job: kind of event, and time on the run's clock."""

    kind: str
    at_seconds: float


@dataclass(frozen=True, slots=True)
class Holding:
    """The GPUs that the job holds in the round.

    Attributes:
        shares: The job that shares them.
        spread: Set if the gang is on more nodes than it needs and runs slower for it.
        keeps: Why a job outside the line keeps its GPUs: `cordoned`, `not preempted`,
            `reserved`, or empty.
    """

    gpus: tuple[int, ...] = ()
    gpu_type: str | None = None
    shares: Sharing | None = None
    spread: GangSpread | None = None
    keeps: str = ""


@dataclass(frozen=True, slots=True)
class Obstacles:
    """What keeps the job from running, besides its place in line.

    Attributes:
        order: The order against it: `held`, `cancelled`, `requeued`, or empty.
        jobs: Jobs for which it waits.
        by_array: Whether it waits for them because of its array's limit.
        retry_seconds: When its back-off after a failure ends.
        quota_until_seconds: When the used-up quota of its tenant is renewed.
        gpus_short: Most GPUs that it can hold, if that is too few; cordoned GPUs do not count.
        scattered: Whether enough GPUs are left, but on more nodes than it accepts.
    """

    order: str = ""
    jobs: tuple[int, ...] = ()
    by_array: bool = False
    retry_seconds: float | None = None
    quota_until_seconds: float | None = None
    gpus_short: int | None = None
    scattered: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """The job's place in line, and the worth of GPUs in the round.

    Attributes:
        place: Place from 1; None if the policy gives it none.
        worth: Worth of a GPU to the job; None without a market.
        worth_type: With several GPU types, the type of `worth`: the type that it holds, or its
            highest bid's.
        weight: Weight of its utility in the market.
        cutoff: Least worth of a GPU, of `worth_type`, to a job that holds some.
        price: Price of a GPU-round, of the type that it held, else of its fastest.
        speeds: With several GPU types, its types, the fastest first.
        holders: Running jobs by descending worth.
        promised: For a tenant with cells: the cells that the job runs in, or why it has none.
        wider: The next larger configuration, of a job that runs and chooses its size.
    """

    place: int | None
    length: int
    worth: float | None
    worth_type: str | None
    weight: float | None
    cutoff: float | None
    price: float | None
    speeds: tuple[Speed, ...]
    holders: tuple[GpuHolder, ...]
    promised: str | None
    wider: Wider | None = None

    @property
    def before(self) -> list[GpuHolder]:
        """Running jobs before it in line."""
        place = self.place or 0
        return [holder for holder in self.holders if holder.place and holder.place < place]


@dataclass(frozen=True, slots=True)
class GpuSupply:
    """The GPUs of the cluster in the round.

    Attributes:
        total: GPUs in service.
        busy: GPUs that jobs hold.
        free: GPUs of the job's types, on nodes not cordoned, that were left when its turn came.
        free_by_type: `free` by type, with several types. If a type had enough GPUs at the job's
            turn, its count is that at the end of the round.
        drained: Nodes out of service, without removed nodes.
        cordoned: Nodes in service on which the job may not start.
        problems: Nodes that failed, with the problem; no order took them out of service.
        windows: Nodes that are set aside for a time, with for what and until when.
    """

    total: int
    busy: int
    free: int
    free_by_type: tuple[tuple[str, int], ...]
    drained: tuple[int, ...]
    cordoned: tuple[int, ...]
    problems: tuple[tuple[int, str], ...]
    windows: tuple[tuple[int, str], ...] = ()


class Unforecast(StrEnum):
    """Why a job has no forecast."""

    UNPREDICTABLE = "unpredictable"
    """The policy reads true futures, or the job cannot run at present."""
    PENDING = "pending"
    """The service has not forecast it yet."""
    ENDED = "ended"
    """It has ended, and earlier rounds are not forecast again."""


@dataclass(frozen=True, slots=True)
class Prospects:
    """When the job should run, on the run's clock; None without a forecast.

    Attributes:
        forecast_seconds: Start of the round that is the last one known to the forecast.
        missing: Why there is no forecast; None if there is one.
        start_seconds: Its next start; now if it runs.
        fair_finish_seconds: When it would end in an evenly shared cluster; None if it is held back.
        rho: Finish-time fairness ρ.
        freed_by_seconds: When non-preemptible jobs give way to it at the latest.
        overdue_from_seconds: When it becomes overdue at the present load.
    """

    forecast_seconds: float | None
    missing: Unforecast | None
    start_seconds: Predicted | None
    finish_seconds: Predicted | None
    fair_finish_seconds: Predicted | None
    rho: Predicted | None
    freed_by_seconds: float | None
    overdue_from_seconds: float | None


@dataclass(frozen=True)
class Facts:
    """The facts about a job in a round; `docs/why.md` explains each field.

    Attributes:
        status: `runs`, `waits` or `preempted`.
        longest: The wait that selected the round; None if the caller gave the round.
        end: The job's end; None if it is active, or the caller gave the round.
        history: Launches, preemptions and failures up to the round, and the job's end if the round
            was its last.
    """

    run: str
    round: int
    clock_seconds: float
    policy: str
    status: str
    job: JobFacts
    holding: Holding
    obstacles: Obstacles
    line: Line
    supply: GpuSupply
    prospects: Prospects
    waits: tuple[Wait, ...]
    history: tuple[Step, ...]
    longest: Wait | None = None
    end: JobEnd | None = None
