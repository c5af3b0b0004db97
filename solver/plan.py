"""Policy input, plans, and the protocol of policies."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

from predictor.allocation import Allocation
from predictor.belief import Belief
from predictor.forecast import Forecast, RunTime, run_time
from predictor.job import JobSpec
from predictor.published_predictor import ProfiledRegime
from predictor.throughput import Throughput
from solver.inventory import Inventory
from solver.market import Bid, Price


@dataclass(frozen=True, slots=True)
class ActiveJob:
    """Policy input of an active job.

    The policy names the allocation on which to convert work to seconds or a batch size to a rate.

    Attributes:
        belief: Declaration and observed trajectory.
        forecast: Forecast of the remaining work; None if the policy reads no forecasts.
        gpus: GPUs of its current lease; empty if it does not run.
        lease_rounds: Rounds for which it has held them.
        menu: The allocations that it can bid for, not empty: fewest GPUs first, then the fastest.
        schedule: True batch sizes and durations of all epochs, for clairvoyant policies only;
            else empty.
        held: The allocation of its lease; None without one.
    """

    belief: Belief
    forecast: Forecast | None
    gpus: tuple[int, ...]
    lease_rounds: int
    menu: tuple[Allocation, ...]
    throughput: Throughput
    schedule: tuple[ProfiledRegime, ...] = ()
    held: Allocation | None = None
    _run_times: dict[Allocation, RunTime] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def spec(self) -> JobSpec:
        """The declared job."""
        return self.belief.spec

    @property
    def job_id(self) -> int:
        """The job."""
        return self.belief.spec.job_id

    @property
    def own(self) -> Allocation:
        """The allocation that it holds, or the first of its menu.

        For a spread gang it is the same GPUs on the fewest nodes, so that its residual run time
        never grows while it runs.
        """
        held, first = self.held, self.menu[0]
        if held is None or held is first:
            return first
        return self.on_fewest_nodes(held) or held

    def on_fewest_nodes(self, there: Allocation) -> Allocation | None:
        """Return the allocation of the menu with as many GPUs of the type, or None."""
        return next(filter(there.same_but_for_nodes, self.menu), None)

    @property
    def choices(self) -> tuple[Allocation, ...]:
        """The first allocation of each GPU type of the menu, in the order of the menu."""
        if len(self.menu) == 1:
            return self.menu
        first = {allocation.gpu_type: allocation for allocation in reversed(self.menu)}
        return tuple(found for found in self.menu if first[found.gpu_type] is found)

    @property
    def gang(self) -> int:
        """Number of GPUs of its own allocation."""
        return self.own.gpus

    def rate(self, allocation: Allocation) -> float:
        """Return the job's steps per second on an allocation, at the current batch size."""
        return self.throughput.rate(self.spec, self.belief.batch_size, allocation)

    def shared_rate(self, other: "ActiveJob", allocation: Allocation) -> float:
        """Return `rate` while another job shares the GPUs; 0 if they do not fit together."""
        size, other_size = self.belief.batch_size, other.belief.batch_size
        return self.throughput.shared_rate(self.spec, size, other.spec, other_size, allocation)

    def run_time(self, allocation: Allocation) -> RunTime:
        """Return the forecast residual run time on an allocation, in seconds."""
        found = self._run_times.get(allocation)
        if found is None:
            assert self.forecast is not None, f"job {self.job_id} has no forecast"
            found = self._find_alike(allocation)
            found = found or run_time(self.forecast, self.spec, self.throughput, allocation)
            self._run_times[allocation] = found
        return found

    def _find_alike(self, allocation: Allocation) -> RunTime | None:
        """Return the known run time on as many GPUs of the type, unless placement matters."""
        if self._run_times and not self.throughput.placement_matters:
            for known, time in self._run_times.items():
                if allocation.same_but_for_nodes(known):
                    return time
        return None

    def know(self, time: RunTime, allocation: Allocation) -> None:
        """Override the forecast residual run time on an allocation."""
        self._run_times[allocation] = time

    def with_fields(self, **fields: Any) -> Self:
        """Return the job with other GPUs or another menu, and its run times.

        `replace` would lose those that were set by `know`, which no forecast tells.
        """
        found = replace(self, **fields)
        found._run_times.update(self._run_times)
        return found


def keep_fitting(inventory: Inventory, jobs: Iterable[ActiveJob]) -> Iterator[ActiveJob]:
    """Yield jobs with the allocations that fit; skip jobs without any."""
    for job in jobs:
        there = {(found.gpu_type, found.gpus) for found in inventory.menu(job.spec.demand)}
        menu = tuple(found for found in job.menu if (found.gpu_type, found.gpus) in there)
        if menu:
            yield job if menu == job.menu else job.with_fields(menu=menu)


def drop_lost_gpus(job: ActiveJob, inventory: Inventory) -> ActiveJob:
    """Return the job without its GPUs if some of them are kept for others."""
    if not job.gpus or set(job.gpus).isdisjoint(inventory.kept):
        return job
    return job.with_fields(gpus=(), lease_rounds=0, held=None)


@dataclass(frozen=True)
class Situation:
    """Policy input: all that a policy may know when it plans.

    Attributes:
        clock_seconds: The run's clock at the start of the coming round.
        inventory: The nodes in service.
        window: T, rounds to plan ahead.
        jobs: Active jobs, by job id.
        fair_finishes: When jobs are expected to end in the even cluster (`solver.even_cluster`), by
            job id, in seconds on the run's clock.
        arrivals: Latest arrival times, ascending, as many as the arrival forecast reads. Tasks of
            an array arrive together, so only the first counts.
        ended_gpu_seconds: GPU time of each finished job, in the order of their ends.
        memory: The policy's state from its last plan; empty at first.
        restart_seconds: Cost of restarting a job, as far as it is known.
    """

    clock_seconds: float
    inventory: Inventory
    round_seconds: float
    window: int
    jobs: tuple[ActiveJob, ...]
    fair_finishes: Mapping[int, float] = field(default_factory=dict)
    arrivals: tuple[float, ...] = ()
    ended_gpu_seconds: tuple[float, ...] = ()
    memory: str = ""
    restart_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SolveReport:
    """Certificate of a plan.

    Attributes:
        backend: Solver back end; `none` if there was nothing to solve.
        reason: Why this back end was chosen.
        status: Status from `solver.clearing.certify`, `rule` for policies without a solver, or
            `kept` if an earlier solution still holds.
        objective: Objective of the plan as laid out.
        bound: Proven upper bound on any plan's objective.
        gap: (bound − objective) / max(|bound|, |objective|), 0 if both are 0.
        prices: Dual prices of a GPU-round of each GPU type; empty without a market.
        envious: Number of envious jobs (`solver.guarantees`).
        below_share: Number of jobs that prefer their budget's share of the window.
        wanting: Number of jobs that would gain from idle GPUs.
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

    @property
    def price_of(self) -> dict[str, float]:
        """Prices of a GPU-round, by GPU type."""
        return {price.gpu_type: price.price for price in self.prices}


@dataclass(frozen=True)
class Plan:
    """A policy's plan, from the coming round on.

    `order`, `first_by`, `promised` and `offers` are not recorded: solving the round again
    reproduces them.

    Attributes:
        placement: GPUs by job for the coming round.
        report: Certificate of the plan.
        bids: Bids by job id; empty without a market.
        memory: The policy's state for its next plan, as JSON; empty to keep the last state.
        order: Priority order of the jobs for the coming round.
        worth: Utility per GPU of the coming round, in the order of `order`; empty if the policy
            does not rank jobs by a single number.
        promised: For each job of a tenant with cells, the cells in which it runs, or the reason
            why it gets none.
        pairs: Pairs of jobs, in ascending order, that share their GPUs in the coming round. All
            other GPUs of the placement are disjoint.
        first_by: Seconds until each job is overdue at the present load, and so goes before all
            jobs that are not overdue, in the order of `order`; empty if the policy does not
            bound postponement.
        offers: All bids on configurations, if jobs choose sizes; `bids` has one per job and GPU
            type.
    """

    placement: Mapping[int, tuple[int, ...]]
    report: SolveReport
    bids: tuple[Bid, ...] = ()
    memory: str = ""
    order: tuple[int, ...] = ()
    worth: tuple[float, ...] = ()
    promised: Mapping[int, str] = field(default_factory=dict)
    pairs: tuple[tuple[int, ...], ...] = ()
    first_by: tuple[float, ...] = ()
    offers: tuple[Bid, ...] = ()


class Policy(Protocol):
    """Decides which jobs run. Pure: the same situation gives the same plan.

    Policies are frozen dataclasses that inherit this class and its defaults. Their numeric fields
    are the policy's parameters.

    Attributes:
        name: Key in the registry.
        summary: Its objective, in a line.
        source: Its publication.
        looks_ahead: Whether it needs the trajectories of forecasts.
        clairvoyant: Whether its policy input contains the jobs' true schedules.
        work_conserving: Whether no GPU idles that a waiting job could use;
            `Fidelity.REFERENCE` may deviate.
        several_pools: Whether it places jobs on several pools.
        reads_forecasts: Whether it reads forecasts; if not, simulations make and record none.
        reads_losses: Whether it reads the training losses of epochs, `Belief.losses`.
        elastic: Whether it chooses how many GPUs a job gets; else each menu has one number.
        adapts: Whether measured applications choose the batch sizes with the best goodput, and it
            reads what their jobs measured, `Belief.agent`; else batch sizes stay as tuned.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str] = ""
    looks_ahead: ClassVar[bool] = False
    clairvoyant: ClassVar[bool] = False
    work_conserving: ClassVar[bool] = False
    several_pools: ClassVar[bool] = False
    reads_forecasts: ClassVar[bool] = True
    reads_losses: ClassVar[bool] = False
    elastic: ClassVar[bool] = False
    adapts: ClassVar[bool] = False

    def plan(self, situation: Situation) -> Plan:
        """Plan at least the coming round."""
        ...
