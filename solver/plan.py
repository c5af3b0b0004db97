"""What a policy decides on, and its answer."""

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
from solver.inventory import Inventory
from solver.market import Bid, Price
from solver.placement import Gang, make_room, place


@dataclass(frozen=True, slots=True)
class ActiveJob:
    """A job that could run in the coming round.

    Its work becomes seconds, and its batch size a rate, only on an allocation that the
    policy names.

    Attributes:
        belief: What was declared and observed.
        forecast: The work that it is expected to do.
        gpus: GPUs that it holds now; empty if it does not run.
        menu: The allocations that it can bid for; at least one.
        throughput: How fast jobs train.
        schedule: Batch sizes and durations of all its epochs. The true future, for
            clairvoyant policies only; else empty.
    """

    belief: Belief
    forecast: Forecast
    gpus: tuple[int, ...]
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
        """The first of its menu: all that a gang on one GPU type can have."""
        return self.menu[0]

    @property
    def gang(self) -> int:
        """GPUs of its own allocation."""
        return self.own.gpus

    def rate(self, allocation: Allocation) -> float:
        """Steps per second of the whole job on an allocation, at its present batch size."""
        return self.throughput.rate(self.spec, self.belief.batch_size, allocation)

    def run_time(self, allocation: Allocation) -> RunTime:
        """Its forecast on an allocation, in seconds."""
        found = self._run_times.get(allocation)
        if found is None:
            found = run_time(self.forecast, self.spec, self.throughput, allocation)
            self._run_times[allocation] = found
        return found


@dataclass(frozen=True)
class Situation:
    """All that a policy may know when it plans.

    Attributes:
        clock_seconds: The run's clock at the round's start.
        inventory: The nodes in service.
        round_seconds: Length of a round.
        window: T, rounds to plan ahead.
        jobs: Active jobs, by job id.
        jobs_seen: Jobs that have arrived so far.
        ended_gpu_seconds: GPU time that each ended job took, in the order of their ends.
        memory: What the policy noted when it last planned; empty at first.
    """

    clock_seconds: float
    inventory: Inventory
    round_seconds: float
    window: int
    jobs: tuple[ActiveJob, ...]
    jobs_seen: int
    ended_gpu_seconds: tuple[float, ...] = ()
    memory: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """The rounds of the window in which a job is to run, 0 the coming one."""

    job_id: int
    rounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SolveReport:
    """How a plan was found and how good it is, as laid out.

    Attributes:
        policy: Who planned.
        backend: Which solver; `none` where there was nothing to solve.
        reason: Why that one.
        status: As of `solver.clearing.Clearing`, `rule` for policies without a solver, or
            `kept` where an earlier solution still holds.
        objective: Of the plan as laid out.
        bound: Proven upper bound on any plan's objective.
        gap: (bound − objective) / max(|bound|, |objective|), 0 where both are 0.
        prices: What a GPU-round of each GPU type costs; empty without a market.
        envious: Jobs that would rather have another's GPU-rounds, see `solver.guarantees`.
        below_share: Jobs that would rather have an even share of the window.
        wanting: Jobs that would gain by GPUs left idle.
        drained: Nodes out of service, which it had to leave out.
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
    """Who runs when, from the coming round on.

    Attributes:
        placement: GPUs by job for the coming round.
        report: How the plan was found.
        turns: Jobs that run in the window, by job id; empty where the policy plans
            nothing but the coming round.
        bids: What the jobs bid, by job id; empty without a market.
        memory: What the policy notes for its next plan, as JSON; empty to keep what it
            noted before.
        order: Jobs as they stood in line for the coming round, the first to be served
            first. Not recorded: a round that is solved again gives it again.
        worth: What a GPU of the coming round is worth to each job, in the order's order;
            empty where the policy ranks jobs by no single number.
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

    Policies are frozen dataclasses; their fields are what `--set` can change.

    Attributes:
        name: Key of the registry.
        summary: What it does, in a line.
        source: Where it was published.
        looks_ahead: Whether it reads forecasts beyond the coming round.
        clairvoyant: Whether it is told the true future of the jobs.
        work_conserving: Whether no GPU idles that a waiting job could use; with
            `Fidelity.REFERENCE` it may.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    looks_ahead: ClassVar[bool]
    clairvoyant: ClassVar[bool]
    work_conserving: ClassVar[bool]

    def plan(self, situation: Situation) -> Plan:
        """Plan from the coming round on; at least that one."""
        ...


def next_round(situation: Situation, order: Sequence[ActiveJob]) -> dict[int, tuple[int, ...]]:
    """Place the jobs of the coming round: in order, skipping what does not fit.

    Running jobs stay where they are, but for those in the way of a job that must be
    consolidated and comes before them, or cannot run beside those before it unless some
    of them move (`solver.placement.make_room`). It is skipped only if that is in vain: no
    job after it takes its turn, and it does not wait for running ones to end.

    Args:
        situation: What the policy decides on.
        order: Who is to run, the first to be served first.

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
    """Positions of the jobs that fit, counting GPUs.

    Args:
        gpus: GPUs in service.
        order: Who is to run, the first to be served first.
        skipped_from: By size of the gang, the position from which on jobs that must be
            consolidated are skipped: where one found no room, another does not.
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
