"""Records of a run: its header, and a record per round.

A record holds the inputs and outputs of a round's decisions. The run's state is therefore a fold
over records, and any round can be solved again. Records form a hash chain from the header's hash:
two runs with the same last hash are identical.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache

from containers.runtime import ContainerEvent, Lease, NodeProblem, Observation
from containers.virtual.truth import GroundTruth
from predictor.allocation import Allocation
from predictor.application import Application
from predictor.basis import Basis
from predictor.belief import Belief, Pace
from predictor.forecast import Forecast
from predictor.job import EpochLoss, EpochReport, JobProgress, JobSpec, Regime
from predictor.rows import hash_content, to_row
from predictor.throughput import Profile
from solver.cells.declared import TenantCells, TypeLevel, layout_of
from solver.cells.layout import Layout
from solver.fidelity import Fidelity
from solver.inventory import Inventory, Pool, add_nodes
from solver.market import Bid
from solver.plan import SolveReport
from solver.policies import policy_class
from tasks.commands import Command
from tasks.fairness import FairFinish
from tasks.measured import Measurement, PairMeasurement, SpreadMeasurement, make_profile
from tasks.sources import Workload


@dataclass(frozen=True, slots=True)
class Parameter:
    """A policy parameter that differs from its default."""

    name: str
    value: float


def get_values(parameters: Iterable[Parameter]) -> dict[str, float]:
    """Return the values of parameters by name."""
    return {parameter.name: parameter.value for parameter in parameters}


@dataclass(frozen=True, slots=True)
class Fork:
    """The origin of a forked run: the run that decided its first rounds.

    Attributes:
        hash: Hash of the last record shared with it, or of its header.
        round: The first round that the forked run decides.
        parameters: Parameters of that policy that differ from their defaults.
    """

    run: str
    hash: str
    round: int
    pools: tuple[Pool, ...]
    policy: str
    parameters: tuple[Parameter, ...]


class RuntimeKind(StrEnum):
    """The built-in runtimes."""

    VIRTUAL = "virtual"
    """A virtual clock, with the semantics of the published simulator."""
    FAITHFUL = "faithful"
    """A virtual clock, with the semantics of containers."""
    DOCKER = "docker"
    """Containers on Docker hosts."""
    SLURM = "slurm"
    """Jobs of a Slurm: leases of a cluster file, or users' own jobs of a partition."""


ON_MACHINES = (RuntimeKind.DOCKER, RuntimeKind.SLURM)
"""Runtimes on machines."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run.

    Attributes:
        fidelity: How policies from the literature are run.
        parameters: Parameters of the policy that differ from their defaults.
        restart_seconds: Cost of a restart; the least cost if the profile has restarts by GPUs.
        window: Rounds planned ahead.
        forecasts: Information on which forecasts are based.
        seed: Seed of a generated workload, and of the draws from the predictor's prior.
        forked: The origin of a forked run; empty otherwise.
        runtime: Name of its runtime: a `RuntimeKind`, or that of another distribution.
        levels: Levels of cells by GPU type; whole nodes by default.
        cells: Cells promised to tenants.
    """

    policy: str
    pools: tuple[Pool, ...]
    fidelity: Fidelity = Fidelity.FAIR
    parameters: tuple[Parameter, ...] = ()
    backend: str = "auto"
    round_seconds: float = 120.0
    restart_seconds: float = 20.0
    window: int = 20
    forecasts: Basis = Basis.POSTERIOR
    seed: int = 0
    forked: tuple[Fork, ...] = ()
    runtime: str = RuntimeKind.VIRTUAL
    levels: tuple[TypeLevel, ...] = ()
    cells: tuple[TenantCells, ...] = ()

    @property
    def layout(self) -> Layout | None:
        """The cells promised to tenants; None without promises.

        Raises:
            InputError: A promise names cells that the cluster lacks.
        """
        return _layout(self.pools, self.levels, self.cells) if self.cells else None

    @property
    def inventory(self) -> Inventory:
        """The cluster's nodes."""
        return _inventory(self.pools)

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        return self.inventory.gpus

    def inventory_in(self, number: int, added: tuple[Pool, ...] = ()) -> Inventory:
        """Return the cluster in a round, with the nodes added by then.

        In a fork's first rounds, this is the cluster of the run that decided them.
        """
        pools = next((fork.pools for fork in self.forked if number < fork.round), self.pools)
        return _inventory(add_nodes(pools, added) if added else pools)

    @property
    def first_own_round(self) -> int:
        """The first round that this run decided, after those of its origin."""
        return max((fork.round for fork in self.forked), default=0)


@lru_cache
def _inventory(pools: tuple[Pool, ...]) -> Inventory:
    """Return the inventory of pools, cached with its derived properties."""
    return Inventory(pools)


@lru_cache
def _layout(
    pools: tuple[Pool, ...], levels: tuple[TypeLevel, ...], cells: tuple[TenantCells, ...]
) -> Layout:
    """Return the layout of pools, cached like their inventory."""
    return layout_of(_inventory(pools), levels, cells)


def make_pool(gpus: int, gpus_per_node: int = 1, gpu_type: str = "") -> tuple[Pool, ...]:
    """Make a cluster of a single pool.

    An empty GPU type stands for that of the workload's throughputs.

    Raises:
        InputError: The number of GPUs is out of bounds or no multiple of a node's.
    """
    return (Pool(gpu_type, gpus, gpus_per_node),)


@dataclass(frozen=True, slots=True)
class Package:
    """A package that a run depends on."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class PastJob:
    """The observed trajectory of a finished job, from which later runs learn."""

    spec: JobSpec
    observed: tuple[Regime, ...]
    paces: tuple[Pace, ...]

    @property
    def belief(self) -> Belief:
        """The belief that the predictor learns from."""
        return Belief(self.spec, self.observed, None, self.paces)


@dataclass(frozen=True)
class RunHeader:
    """The inputs of a run.

    Attributes:
        source: The trace, or the generator's parameters.
        workload: Hash of the workload's jobs and ground truths, which are stored separately.
        profile: Throughputs of the models in use, and restarts if they differ by GPU type.
        history: Finished jobs of earlier runs, from which this run learns.
        service: Whether jobs and commands come from outside. The workload is then empty, and the
            rounds record what they took in.
        pairs: Throughputs of these models in pairs, if the policy lets jobs share GPUs.
        losses: Whether the policy reads training losses, which the rounds then record.
        spread: Throughputs of these models on several nodes, if placement matters.
        applications: Measured applications of these models.
    """

    version: int
    settings: Settings
    source: str
    workload: str
    profile: tuple[Measurement, ...]
    history: tuple[PastJob, ...] = ()
    service: bool = False
    pairs: tuple[PairMeasurement, ...] = ()
    losses: bool = False
    spread: tuple[SpreadMeasurement, ...] = ()
    applications: tuple[Application, ...] = ()

    @cached_property
    def throughputs(self) -> Profile:
        """The profile as a throughput model."""
        found = make_profile(self.profile, self.pairs, self.source, self.spread)
        return replace(found, applications={app.name: app for app in self.applications})

    @cached_property
    def foresees(self) -> bool:
        """Whether its jobs are forecast: if the policy or the users of a service ask.

        Where placement matters, gangs are consolidated by their forecasts under every policy.
        """
        asked = self.service or policy_class(self.settings.policy).reads_forecasts
        return asked or self.throughputs.placement_matters

    @cached_property
    def adapts(self) -> bool:
        """Whether jobs of measured applications choose their batch sizes (`Policy.adapts`)."""
        return bool(self.applications) and policy_class(self.settings.policy).adapts


@dataclass(frozen=True)
class Start:
    """A run before its first round, with the header's hash."""

    header: RunHeader
    workload: Workload
    digest: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """A forecast on the job's own allocation, in seconds.

    Attributes:
        done: Completed share of its epochs, in [0, 1].
        run_seconds: Run time so far, restarts excluded.
        remaining_seconds: Residual run time, `predictor.forecast.RunTime.remaining`.
        low_seconds: Lower end of the 80 % interval.
        high_seconds: Upper end of the 80 % interval.
        isolated_seconds: Isolated run time of the whole job, at the mean speed of the cluster's
            GPUs.
    """

    job_id: int
    allocation: Allocation
    done: float
    run_seconds: float
    remaining_seconds: float
    low_seconds: float
    high_seconds: float
    isolated_seconds: float


@dataclass(frozen=True)
class RoundRecord:
    """A round: observations, forecasts, bids, plan and actions.

    Attributes:
        clock_seconds: The run's clock at its start.
        arrivals: Jobs admitted at its start.
        finished: Containers that ended in the previous round: of finished jobs, and of jobs
            that crashed or were lost.
        reports: Epochs completed in the previous round.
        progress: Progress of each job that ran in the previous round.
        forecasts: New forecasts, by job id: of jobs that arrived or ran in the previous round,
            and of others whose forecast changed with the history. None if the policy reads none
            (`RunHeader.foresees`).
        estimates: Run times of these forecasts on the jobs' own allocations.
        bids: Bids of the active jobs; empty without a market.
        memory: The policy's memory for its next plan; empty if unchanged.
        leases: All leases of this round, continued ones included.
        events: Outcomes of preemptions and launches; a continued lease has none.
        previous_hash: Hash of the previous record; of the header in round 0.
        commands: Commands that a service took in at its start.
        truths: Ground truths of the jobs that arrived at a service on a virtual cluster.
        pairs: Pairs of jobs with leases on the same GPUs; all other leases are disjoint.
        problems: Problems of nodes that are out of service without an order.
        losses: Training losses of the reported epochs, if the policy reads them.
        fair_finishes: When jobs end in the even cluster: a forecast when a job ends, if jobs are
            forecast; exact once all jobs that arrived before that time have ended. The last one
            of a job counts.
        submitters: Who submitted the arrivals to a service, in their order.
    """

    version: int
    round: int
    clock_seconds: float
    arrivals: tuple[JobSpec, ...]
    finished: tuple[ContainerEvent, ...]
    reports: tuple[EpochReport, ...]
    progress: tuple[JobProgress, ...]
    forecasts: tuple[Forecast, ...]
    estimates: tuple[Estimate, ...]
    bids: tuple[Bid, ...]
    solve: SolveReport
    memory: str
    leases: tuple[Lease, ...]
    events: tuple[ContainerEvent, ...]
    previous_hash: str
    commands: tuple[Command, ...] = ()
    truths: tuple[GroundTruth, ...] = ()
    pairs: tuple[tuple[int, ...], ...] = ()
    problems: tuple[NodeProblem, ...] = ()
    losses: tuple[EpochLoss, ...] = ()
    fair_finishes: tuple[FairFinish, ...] = ()
    submitters: tuple[str, ...] = ()

    @property
    def ended(self) -> tuple[int, ...]:
        """Jobs that ended in the previous round."""
        return self.observation.ended

    @property
    def observation(self) -> Observation:
        """The runtime's observation of the previous round."""
        return Observation(
            clock_seconds=self.clock_seconds,
            finished=self.finished,
            reports=self.reports,
            progress=self.progress,
            drained=self.solve.drained,
            problems=self.problems,
            losses=self.losses,
        )


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall time of a round's steps, in milliseconds; not part of the hashed record."""

    collect_ms: float
    predict_ms: float
    solve_ms: float
    dispatch_ms: float


def hash_record(record: RoundRecord | RunHeader) -> str:
    """Return the chain hash of a record or header."""
    return hash_content(to_row(record))


def check_chain(record: RoundRecord, digest: str, stored: str, previous: str) -> Iterator[str]:
    """Check a record's link of the hash chain; yield problems, in words.

    `digest` is the hash of the stored contents, `stored` the hash stored with them. `previous` is
    that stored with the previous record, or of the header; empty if that record is missing.
    """
    if digest != stored:
        yield "was changed: its contents have another hash"
    if previous and record.previous_hash != previous:
        before = f"round {record.round - 1}" if record.round else "the header"
        yield f"does not follow {before}, which has another hash"
