"""What is kept of a run: its header, and one record a round.

A record holds all that a round was decided on and all that was decided, the jobs that
arrived with it, so that the live state is a fold over records and any round can be solved
again. Records are
chained: each carries the hash of the one before, and the first that of the header, so
two runs that end in the same hash are the same, round for round.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

import orjson

from containers.runtime import ContainerEvent, Lease, Observation
from predictor.allocation import Allocation
from predictor.basis import Basis
from predictor.belief import Belief, Pace
from predictor.forecast import Forecast
from predictor.job import EpochReport, JobProgress, JobSpec, Regime
from predictor.throughput import Profile
from solver.fidelity import Fidelity
from solver.inventory import Inventory, Pool
from solver.market import Bid
from solver.plan import SolveReport, Turn
from tasks.rows import to_row
from tasks.sources import Workload


@dataclass(frozen=True, slots=True)
class Parameter:
    """A policy's parameter that was set by hand."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a run's first rounds come from: they were decided by another run.

    Attributes:
        run: The other run.
        hash: Hash of its last record that was taken over, or of its header.
        round: The first round that is this run's own.
        pools: The other run's cluster.
        policy: Who scheduled in the other run.
        parameters: Its parameters, where they were not its defaults.
    """

    run: str
    hash: str
    round: int
    pools: tuple[Pool, ...]
    policy: str
    parameters: tuple[Parameter, ...]


class RuntimeKind(StrEnum):
    """Where the jobs of a run run."""

    VIRTUAL = "virtual"
    """On a virtual clock, with the semantics of the published simulator."""
    FAITHFUL = "faithful"
    """On a virtual clock, as containers behave."""
    DOCKER = "docker"
    """In containers."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run was asked to do.

    Attributes:
        policy: Who schedules.
        pools: The cluster.
        fidelity: How policies from the literature are run.
        parameters: Parameters of the policy, where they are not its defaults.
        backend: Solver back end asked for.
        round_seconds: Length of a round.
        restart_seconds: What a restart costs on the virtual cluster.
        window: Rounds planned ahead.
        forecasts: What forecasts are made from.
        seed: Of a generated workload, and of the draws from the predictor's prior.
        forked: The run that it was forked from, if it was.
        runtime: Where its jobs run.
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
    runtime: RuntimeKind = RuntimeKind.VIRTUAL

    @property
    def inventory(self) -> Inventory:
        """The cluster's nodes."""
        return _inventory(self.pools)

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        return self.inventory.gpus

    @property
    def first_own_round(self) -> int:
        """The first round that this run decided itself."""
        return max((fork.round for fork in self.forked), default=0)


@lru_cache
def _inventory(pools: tuple[Pool, ...]) -> Inventory:
    """One inventory of the same pools, which keeps what was derived from it."""
    return Inventory(pools)


def one_pool(gpus: int, gpus_per_node: int = 1, gpu_type: str = "") -> tuple[Pool, ...]:
    """A cluster of one kind of nodes.

    Args:
        gpus: How many in all.
        gpus_per_node: How many share a node.
        gpu_type: Their type; empty for that of the workload's throughputs.

    Raises:
        InputError: There are none or too many, or they do not fill whole nodes.
    """
    return (Pool(gpu_type, gpus, gpus_per_node),)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of the profile that a run used."""

    model: str
    batch_size: int
    gpu_type: str
    gpus: int
    steps_per_second: float


@dataclass(frozen=True, slots=True)
class Package:
    """A package that a run was made with."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class PastJob:
    """What was observed of a finished job, for later runs to learn from."""

    spec: JobSpec
    observed: tuple[Regime, ...]
    paces: tuple[Pace, ...]

    @property
    def belief(self) -> Belief:
        """As the predictor takes it."""
        return Belief(self.spec, self.observed, None, self.paces)


@dataclass(frozen=True)
class RunHeader:
    """All that a run starts from.

    Attributes:
        version: Layout of the records.
        settings: What was asked.
        source: The trace, or the generator's parameters.
        workload: Hash of the jobs and truths that are played; they are kept beside it.
        profile: Throughputs of the models in use.
        history: Finished jobs of earlier runs, to learn from.
    """

    version: int
    settings: Settings
    source: str
    workload: str
    profile: tuple[Measurement, ...]
    history: tuple[PastJob, ...] = ()

    @cached_property
    def throughputs(self) -> Profile:
        """The profile as the predictor reads it."""
        return Profile(
            {
                (row.model, row.batch_size, row.gpu_type, row.gpus): row.steps_per_second
                for row in self.profile
            },
            source=self.source,
        )


@dataclass(frozen=True)
class Start:
    """What a run begins with.

    Attributes:
        header: What was asked, and what is known.
        workload: The jobs that come, and their truths for the virtual cluster.
        digest: The header's hash.
    """

    header: RunHeader
    workload: Workload
    digest: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """A forecast on the job's own allocation, in seconds.

    Attributes:
        job_id: The job.
        allocation: What it would train on.
        done: Share of its epochs that is done, in [0, 1].
        run_seconds: Run time so far, restarts excluded.
        remaining_seconds: Run time still needed: see `predictor.forecast.RunTime`.
        low_seconds: Lower end of the interval that is to hold 80 % of the truths.
        high_seconds: Its upper end.
    """

    job_id: int
    allocation: Allocation
    done: float
    run_seconds: float
    remaining_seconds: float
    low_seconds: float
    high_seconds: float


@dataclass(frozen=True)
class RoundRecord:
    """One round: what was seen, expected, decided and done.

    Attributes:
        version: Layout of the record.
        round: Number, from 0.
        clock_seconds: The run's clock at its start.
        arrivals: Jobs admitted at its start.
        finished: Containers that ended in the round before: of jobs that ended, and of others
            that crashed or were lost.
        reports: Epochs completed in the round before.
        progress: Where each job that ran in the round before stands.
        forecasts: Work expected of jobs that arrived or ran in the round before, and of
            others where it changed by what was learned from finished jobs, by job id; none
            in layouts that kept seconds only.
        estimates: What each of them comes to on the job's own allocation.
        bids: What the active jobs bid; empty without a market.
        solve: How the plan was found.
        turns: When the plan lets each job run, round 0 being this one; empty where the
            policy plans nothing but this round.
        memory: What the policy noted for its next plan; empty where it noted nothing new.
        leases: GPUs by job for this round; most go on from the round before.
        events: What became of preempting and launching; a lease that goes on is no event.
        previous_hash: Hash of the record before; of the header in round 0.
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
    turns: tuple[Turn, ...]
    memory: str
    leases: tuple[Lease, ...]
    events: tuple[ContainerEvent, ...]
    previous_hash: str

    @property
    def ended(self) -> tuple[int, ...]:
        """Jobs that ended in the round before."""
        return self.observation.ended

    @property
    def observation(self) -> Observation:
        """What was seen."""
        return Observation(
            clock_seconds=self.clock_seconds,
            finished=self.finished,
            reports=self.reports,
            progress=self.progress,
            drained=self.solve.drained,
        )


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall time of a round's steps, in milliseconds; not part of the hashed record."""

    collect_ms: float
    predict_ms: float
    solve_ms: float
    dispatch_ms: float


def content_hash(row: Any) -> str:
    """SHA-256 of plain data, independent of how it is stored."""
    return hashlib.sha256(orjson.dumps(row, option=orjson.OPT_SORT_KEYS)).hexdigest()


def record_hash(record: RoundRecord | RunHeader) -> str:
    """The hash that the next record carries on, of a record of the present layout."""
    return content_hash(to_row(record))


def workload_hash(workload: Workload) -> str:
    """The hash of a workload's jobs and truths."""
    jobs = zip(workload.specs, workload.truths, strict=True)
    return content_hash([[to_row(spec), to_row(truth)] for spec, truth in jobs])
