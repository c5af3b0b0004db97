"""The facts about a job in a round, from which `why` explains a decision."""

from dataclasses import dataclass

from flows.explain.worths import GpuHolder, Speed


@dataclass(frozen=True, slots=True)
class Step:
    """An event of the job and the round that recorded it."""

    round: int
    kind: str
    gpus: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A period without GPUs, in seconds on the run's clock.

    Its round is the first that gave the job none; None if the first after its arrival gave it some.
    """

    from_seconds: float
    to_seconds: float
    round: int | None = None

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.to_seconds - self.from_seconds


@dataclass(frozen=True, slots=True)
class Sharing:
    """The job that shares a job's GPUs, and the job's speed relative to its speed alone on them."""

    job_id: int | None
    speed: float


@dataclass(frozen=True, slots=True)
class GangSpread:
    """A gang on more nodes than it needs.

    Attributes:
        nodes: Nodes on which it holds GPUs.
        fewest_nodes: Fewest nodes with as many GPUs of the type.
        speed: Its speed relative to that on the fewest nodes.
    """

    nodes: int
    fewest_nodes: int
    speed: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """A predicted value: its median, and the ends of its 80 % interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The job: what it declared, and its progress.

    Attributes:
        model: Model; of a job that is not adaptive, its image.
        scale_factor: GPUs that its gang needs.
        max_seconds: Limit of its run time; 0 of adaptive jobs.
        deadline_seconds: Its deadline on the run's clock.
        batch_size: Its present batch size; 1 of jobs that are not adaptive.
        progress: Share of its epochs done; else of the work that it reports, or of its limit.
        reports: Whether a job that is not adaptive reports its progress.
        remaining_seconds: Its remaining run time.
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
class Holding:
    """The GPUs that the job holds in the round.

    Attributes:
        gpus: The GPUs.
        gpu_type: Their type.
        shares: The job that shares them.
        spread: Set if its gang is on more nodes than it needs, and rates by nodes are known.
        keeps: Why a job outside the line keeps its GPUs: `cordoned`, `not preempted`, or empty.
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
        order: The order that keeps it from running: `held`, `cancelled`, `requeued`, or empty.
        jobs: Jobs that it waits for.
        by_array: Whether it waits for these because its array limits tasks at a time.
        retry_seconds: When a job whose containers failed may be launched again.
        quota_until_seconds: When its tenant's quota, which is used up, begins anew.
        gpus_short: If too few GPUs are in service and not cordoned: how many it could hold at most.
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
    """The job's place in line, and what GPUs of the round are worth.

    Attributes:
        place: Its place, from 1; None if the policy has none for it.
        length: Number of jobs in line.
        worth: Worth to it of a GPU of the round; None without a market.
        worth_type: With several GPU types, the type of `worth`: the one that it holds, or else the
            one worth most to it.
        weight: Weight of its utility in the market.
        cutoff: Least worth of a GPU, of `worth_type`, to a job that holds some.
        price: Price of a GPU-round, of the type that it held, else of its fastest.
        speeds: With several GPU types, those that it can run on, the fastest first.
        holders: Jobs that run, by descending worth.
        promised: Of a job of a tenant with cells: those that it runs in, or why it has none.
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

    @property
    def before(self) -> list[GpuHolder]:
        """The running jobs before it in line."""
        place = self.place or 0
        return [holder for holder in self.holders if holder.place and holder.place < place]


@dataclass(frozen=True, slots=True)
class GpuSupply:
    """The GPUs of the cluster in the round.

    Attributes:
        total: GPUs in service.
        busy: GPUs that jobs hold.
        free: GPUs of types that the job can run on, on nodes that are not cordoned, left when its
            turn came.
        free_by_type: The same by type, with several types. A job is in line once for each type; if
            enough of a type were left at first, those left in the end.
        drained: Nodes out of service, without removed ones.
        cordoned: Nodes in service on which no job starts.
        problems: Nodes that no order took out of service, each with its problem.
    """

    total: int
    busy: int
    free: int
    free_by_type: tuple[tuple[str, int], ...]
    drained: tuple[int, ...]
    cordoned: tuple[int, ...]
    problems: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Prospects:
    """When the job should run, on the run's clock; None where the policy predicts nothing.

    Attributes:
        start_seconds: Its next start; now if it runs.
        finish_seconds: Its finish.
        ftf: Finish-time fairness ρ at that finish, with the contention so far.
        freed_by_seconds: When non-preemptible jobs give way to it at the latest.
        overdue_from_seconds: When it goes before all others at the present load.
    """

    start_seconds: Predicted | None
    finish_seconds: Predicted | None
    ftf: Predicted | None
    freed_by_seconds: float | None
    overdue_from_seconds: float | None


@dataclass(frozen=True)
class Facts:
    """The facts about a job in a round; `docs/why.md` explains each field.

    Attributes:
        status: `runs`, `waits` or `preempted`.
        waits: The periods without GPUs so far.
        longest: The wait for which the round was chosen; None if the round was asked for.
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
