"""Policy input, plans, and the protocol of policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar, Protocol

from predictor.allocation import Allocation
from predictor.belief import Belief
from predictor.forecast import Forecast, RunTime, run_time
from predictor.job import JobSpec
from predictor.published_predictor import ProfiledRegime
from predictor.throughput import Throughput
from solver.even_share import EvenShare
from solver.inventory import Inventory
from solver.market import Bid, Price
from solver.placement import Gang, make_room, place


@dataclass(frozen=True, slots=True)
class ActiveJob:
    """Policy input of an active job.

    The policy names the allocation on which work becomes seconds and a batch size a rate.

    Attributes:
        belief: Declaration and observed trajectory.
        forecast: The work left, as forecast.
        gpus: GPUs of its current lease; empty if it does not run.
        lease_rounds: Rounds that it has held them.
        menu: The allocations that it can bid for, not empty.
        throughput: Throughput model.
        schedule: True batch sizes and durations of all its epochs, for clairvoyant policies
            only; else empty.
    """

    belief: Belief
    forecast: Forecast
    gpus: tuple[int, ...]
    lease_rounds: int
    menu: tuple[Allocation, ...]
    throughput: Throughput
    schedule: tuple[ProfiledRegime, ...] = ()
    _run_times: dict[Allocation, RunTime] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def spec(self) -> JobSpec:
        """What was declared."""
        return self.belief.spec

    @property
    def job_id(self) -> int:
        """The job."""
        return self.belief.spec.job_id

    @property
    def own(self) -> Allocation:
        """The first of its menu: the only allocation of a gang on a single GPU type."""
        return self.menu[0]

    @property
    def gang(self) -> int:
        """GPUs of its own allocation."""
        return self.own.gpus

    def rate(self, allocation: Allocation) -> float:
        """Steps per second of the whole job on an allocation, at the current batch size."""
        return self.throughput.rate(self.spec, self.belief.batch_size, allocation)

    def run_time(self, allocation: Allocation) -> RunTime:
        """The forecast residual run time on an allocation, in seconds."""
        found = self._run_times.get(allocation)
        if found is None:
            found = run_time(self.forecast, self.spec, self.throughput, allocation)
            self._run_times[allocation] = found
        return found

    def know(self, time: RunTime) -> None:
        """Take a residual run time on its own allocation as given, in place of the forecast's."""
        self._run_times[self.own] = time


@dataclass(frozen=True)
class Situation:
    """Policy input: all that a policy may know when it plans.

    Attributes:
        clock_seconds: The run's clock at the start of the coming round.
        inventory: The nodes in service.
        round_seconds: Length of a round.
        window: T, rounds to plan ahead.
        jobs: Active jobs, by job id.
        jobs_seen: Number of jobs that have arrived so far.
        ended_gpu_seconds: GPU time of each finished job, in the order of their ends.
        memory: The policy's state from its last plan; empty at first.
        even: Even share of the active jobs.
    """

    clock_seconds: float
    inventory: Inventory
    round_seconds: float
    window: int
    jobs: tuple[ActiveJob, ...]
    jobs_seen: int
    ended_gpu_seconds: tuple[float, ...] = ()
    memory: str = ""
    even: EvenShare = field(default_factory=EvenShare)


@dataclass(frozen=True, slots=True)
class Turn:
    """The rounds of the window in which a job is to run, 0 the coming one."""

    job_id: int
    rounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SolveReport:
    """Certificate of a plan as laid out.

    Attributes:
        policy: Name of the policy.
        backend: Solver back end; `none` where there was nothing to solve.
        reason: Why this back end.
        status: As of `solver.clearing.Clearing`, `rule` for policies without a solver, or
            `kept` where an earlier solution still holds.
        objective: Objective of the plan as laid out.
        bound: Proven upper bound on any plan's objective.
        gap: (bound − objective) / max(|bound|, |objective|), 0 where both are 0.
        prices: Dual prices of a GPU-round of each GPU type; empty without a market.
        envious: Number of envious jobs, see `solver.guarantees`.
        below_share: Number of jobs that prefer their budget's share of the window.
        wanting: Number of jobs that would gain from GPUs left idle.
        drained: Drained nodes, which the plan leaves out.
    """

    policy: str
    backend: str = "none"
    reason: str = "no market"
    status: str = "rule"
    objective: float = 0.0
    bound: float = 0.0
    gap: float = 0.0
    prices: tuple[Price, ...] = ()
    envious: int = 0
    below_share: int = 0
    wanting: int = 0
    drained: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A policy's plan, from the coming round on.

    Attributes:
        placement: GPUs by job for the coming round.
        report: Certificate of the plan.
        turns: Rounds of the jobs that run in the window, by job id; empty where the policy
            plans the coming round only.
        bids: Bids by job id; empty without a market.
        memory: The policy's state for its next plan, as JSON; empty to keep the last state.
        order: Priority order of the jobs for the coming round. Not recorded: solving the
            round again reproduces it.
        worth: Utility per GPU of the coming round, in the order of `order`; empty where the
            policy ranks jobs by no single number.
    """

    placement: Mapping[int, tuple[int, ...]]
    report: SolveReport
    turns: tuple[Turn, ...] = ()
    bids: tuple[Bid, ...] = ()
    memory: str = ""
    order: tuple[int, ...] = ()
    worth: tuple[float, ...] = ()


class Policy(Protocol):
    """Decides who runs. Pure: the same situation gives the same plan.

    Policies are frozen dataclasses; their numeric fields are the policy's parameters. A policy of
    another distribution inherits this class, and from it the defaults.

    Attributes:
        name: Key in the registry.
        summary: A line on its objective.
        source: Its publication.
        looks_ahead: Whether it needs the trajectories of forecasts.
        clairvoyant: Whether its policy input contains the jobs' true schedules.
        work_conserving: Whether no GPU idles that a waiting job could use;
            `Fidelity.REFERENCE` may deviate.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str] = ""
    looks_ahead: ClassVar[bool] = False
    clairvoyant: ClassVar[bool] = False
    work_conserving: ClassVar[bool] = False

    def plan(self, situation: Situation) -> Plan:
        """Plan at least the coming round."""
        ...


def next_round(situation: Situation, order: Sequence[ActiveJob]) -> dict[int, tuple[int, ...]]:
    """Place the jobs of the coming round by list scheduling: in order, with backfilling.

    Running jobs keep their GPUs, unless a consolidated job of higher priority needs some of
    them to move (`solver.placement.make_room`). Only if no lay-out has room for it is that
    job skipped, so neither lower priorities nor fragmentation keep it waiting.

    Args:
        situation: Policy input.
        order: Jobs by descending priority.

    Returns:
        GPU indices by job.
    """
    inventory = situation.inventory
    held: Mapping[int, tuple[int, ...]] = {job.job_id: job.gpus for job in order if job.gpus}
    skipped_from: dict[int, int] = {}
    while True:
        chosen = _fitting(inventory.gpus, order, skipped_from)
        gangs = [
            Gang(job.job_id, job.gang, job.spec.consolidate)
            for job in (order[position] for position in chosen)
        ]
        placed = place(inventory, gangs, held)
        if len(placed) == len(gangs):
            return placed
        first = next(n for n, gang in enumerate(gangs) if gang.job_id not in placed)
        layout = make_room(inventory, gangs, first, placed)
        if layout:
            taken = set(chain.from_iterable(layout.values()))
            held = {job: gpus for job, gpus in held.items() if taken.isdisjoint(gpus)} | layout
        else:
            skipped_from[gangs[first].gpus] = chosen[first]


def _fitting(gpus: int, order: Sequence[ActiveJob], skipped_from: Mapping[int, int]) -> list[int]:
    """Positions of the jobs that fit by number of GPUs.

    Args:
        gpus: GPUs in service.
        order: Jobs by descending priority.
        skipped_from: By gang size, the position from which on consolidated jobs are skipped:
            a gang of that size found no room there, so later ones do not either.
    """
    free, chosen = gpus, []
    for position, job in enumerate(order):
        if not free:
            break
        gang = job.gang
        if gang <= free and not (
            job.spec.consolidate and position >= skipped_from.get(gang, len(order))
        ):
            chosen.append(position)
            free -= gang
    return chosen
