"""The five steps of a round, in order: collect, predict, solve, dispatch, record.

Each step fills its part of a `Round`. `ROUND` lists the steps; drivers differ only in how they call
them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Protocol

from containers.runtime import ContainerEvent, Lease, Observation, Runtime
from containers.virtual.truth import GroundTruth
from predictor.allocation import Allocation
from predictor.belief import Belief
from predictor.forecast import Forecast, forecast
from predictor.job import JobSpec
from predictor.published_predictor import ProfiledRegime
from predictor.throughput import Throughput
from solver.deciding import decide
from solver.inventory import InService, Inventory
from solver.plan import ActiveJob, Plan, Policy, SolveReport
from solver.promised import Promises, RoundInput
from tasks.commands import Command, Orders
from tasks.fairness import FairFinish
from tasks.record import Estimate, RoundRecord, RunHeader, Timings, hash_record
from tasks.sources import JobSource
from tasks.speeds import isolated_factor
from tasks.state import RunState, advance


class Sink(Protocol):
    """The destination of a run's records."""

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """Append a round's record; on return it is durable."""
        ...


@dataclass
class Run:
    """An active run; only `record` changes its state.

    Attributes:
        throughput: Throughput model known to the scheduler.
        state: Live state, a fold over its records.
        schedules: True batch-size schedules by job id, for oracles and clairvoyant policies.
        active: Policy input of the last round, by job id.
        check: Called before a round touches its jobs; raises if another process runs them.
    """

    name: str
    header: RunHeader
    throughput: Throughput
    policy: Policy
    source: JobSource
    runtime: Runtime
    sink: Sink
    state: RunState
    schedules: Mapping[int, tuple[ProfiledRegime, ...]]
    active: dict[int, ActiveJob] = field(default_factory=dict)
    check: Callable[[], object] = lambda: None

    @property
    def finished(self) -> bool:
        """Whether every job has arrived and ended."""
        return self.state.is_finished(self.source)

    def follow(self, record: RoundRecord, digest: str) -> None:
        """Advance the state past a recorded round with this hash, without planning it again."""
        before = self.state.orders
        self.state = advance(self.header, self.state, record, digest)
        self.resize(before, self.state.orders)

    def resize(self, before: Orders, now: Orders) -> None:
        """Report added and removed nodes to the runtime."""
        if (now.added, now.removed) != (before.added, before.removed):
            inventory = self.header.settings.inventory_in(self.state.round, now.added)
            self.runtime.resize(inventory, now.removed)


@dataclass
class Round:
    """The current round, filled step by step.

    `collect` fills the fields up to `truths`, `predict` those up to `estimates` (`active` is the
    policy input by job id), `solve` the plan and `dispatch` the events.

    Attributes:
        waited_ms: Wall time of the wait for the end of the previous round (collect).
        milliseconds: Wall time by step, without this wait.
    """

    observation: Observation = field(init=False)
    arrivals: tuple[JobSpec, ...] = field(init=False)
    commands: tuple[Command, ...] = field(init=False)
    truths: tuple[GroundTruth, ...] = field(init=False)
    state: RunState = field(init=False)
    forecasts: tuple[Forecast, ...] = field(init=False)
    nodes: InService = field(init=False)
    active: dict[int, ActiveJob] = field(init=False)
    estimates: tuple[Estimate, ...] = field(init=False)
    plan: Plan = field(init=False)
    events: tuple[ContainerEvent, ...] = field(init=False)
    waited_ms: float = 0.0
    milliseconds: dict[str, float] = field(default_factory=dict)


def collect(run: Run, this: Round) -> None:
    """Wait for the previous round to end, read its telemetry, and take in jobs and commands."""
    taken, orders = run.state.source_position, run.state.orders
    if run.state.round:
        began = perf_counter()
        run.runtime.advance(_idle_until(run))
        this.waited_ms = (perf_counter() - began) * 1e3
    run.check()
    for job_id in sorted(orders.cancelled):
        run.runtime.withdraw(job_id, run.state.explain_withdrawal(job_id))
    seen = run.state.give_up(run.runtime.observe())
    run.runtime.reap(seen.ended)
    new = run.source.until(seen.clock_seconds, taken)
    this.arrivals, this.commands, this.truths = new.jobs, new.commands, new.truths
    nodes = orders.after((), new.commands)
    out = nodes.out_of_service.union(seen.drained)
    losses = seen.losses if run.header.losses else ()
    this.observation = replace(seen, drained=tuple(sorted(out)), losses=losses)
    run.resize(orders, nodes)
    run.runtime.admit(this.arrivals)


def _idle_until(run: Run) -> float | None:
    barred = run.state.blocked.values()
    quotas = (found.until_seconds for found in barred if found.until_seconds)
    return run.source.idle_until(run.state.source_position, quotas)


def predict(run: Run, this: Round) -> None:
    """Update the beliefs, and forecast jobs whose belief or prior changed."""
    state, news = run.state.observe(run.header, this.observation, this.arrivals, this.commands)
    this.forecasts = _expected(run, state, news)
    known = dict(state.forecasts) | {found.job_id: found for found in this.forecasts}
    this.state = replace(state, forecasts=known)
    this.nodes = InService(state.inventory(run.header), this.observation.drained)
    this.active = _active(run, this.state, this.nodes)
    this.estimates = tuple(
        _estimate(run, this.active[found.job_id], this.state) for found in this.forecasts
    )
    this.state = this.state.expect(this.estimates)


def _expected(run: Run, state: RunState, news: Iterable[int]) -> tuple[Forecast, ...]:
    """Return the forecasts that differ from the last forecasts of the same jobs."""
    settings = run.header.settings
    expected = forecast(
        [state.beliefs[job_id] for job_id in news],
        run.throughput,
        state.learning.history,
        trajectories=run.policy.looks_ahead,
        basis=settings.forecasts,
        schedules=run.schedules,
        seed=settings.seed,
        prior_seconds=state.learning.speed_noise.prior_seconds,
    )
    return tuple(found for found in expected if state.forecasts.get(found.job_id) != found)


def _active(run: Run, state: RunState, nodes: InService) -> dict[int, ActiveJob]:
    """Return the policy input by job id; reuse unchanged inputs, with their cached values."""
    inventory = nodes.inventory or state.inventory(run.header)
    active: dict[int, ActiveJob] = {}
    for job_id, belief in state.beliefs.items():
        budget = state.budgets.get(job_id, belief.spec.budget)
        if budget != belief.spec.budget:
            belief = replace(belief, spec=replace(belief.spec, budget=budget))
        expected, gpus = state.forecasts[job_id], nodes.numbered(state.leases.get(job_id, ()))
        rounds = state.lease_rounds[job_id] if gpus else 0
        menu = _menu(run, inventory, belief)
        job = run.active.get(job_id)
        if not (
            job
            and job.belief is belief
            and job.forecast is expected
            and (job.gpus, job.lease_rounds, job.menu) == (gpus, rounds, menu)
        ):
            schedule = run.schedules.get(job_id, ()) if run.policy.clairvoyant else ()
            held = inventory.allocation(gpus) if gpus else None
            job = ActiveJob(belief, expected, gpus, rounds, menu, run.throughput, schedule, held)
        active[job_id] = job
    return active


def _menu(run: Run, inventory: Inventory, belief: Belief) -> tuple[Allocation, ...]:
    """Return the allocations that a job can bid for; its reference if too few nodes serve."""
    menu = inventory.menu_of(belief.spec, belief.batch_size, run.throughput)
    return menu or (run.throughput.reference(belief.spec),)


def make_situation(run: Run, this: Round) -> RoundInput | None:
    """Return the policy input of a predicted round; None if no node is in service."""
    settings, state, inventory = run.header.settings, this.state, this.nodes.inventory
    clock = this.observation.clock_seconds
    if inventory is None:
        return None
    return RoundInput(
        clock_seconds=clock,
        inventory=inventory,
        round_seconds=settings.round_seconds,
        window=settings.window,
        jobs=tuple(
            job
            for job_id, job in this.active.items()
            if state.backoff.is_ready(job_id, clock) and state.fair_finishes.is_present(job_id)
        ),
        fair_finishes=state.fair_finishes.project(),
        arrivals=state.arrivals,
        ended_gpu_seconds=state.learning.gpu_seconds,
        memory=state.memory,
        restart_seconds=settings.restart_seconds,
        promises=_promises(run, this),
        cordoned=_cordoned(run, this),
    )


def _cordoned(run: Run, this: Round) -> frozenset[int]:
    """Return the GPUs on which no job starts, numbered among the nodes in service."""
    inventory, nodes = this.state.inventory(run.header), this.state.orders.cordoned
    there = (inventory.gpus_of(node) for node in nodes if node < inventory.nodes)
    return frozenset(gpu for gpus in there for gpu in this.nodes.numbered(tuple(gpus)))


def _promises(run: Run, this: Round) -> Promises | None:
    settings = run.header.settings
    layout = settings.layout
    if layout is None:
        return None
    cordoned = tuple(sorted(this.state.orders.cordoned))
    return Promises(layout, settings.inventory, this.nodes, this.observation.drained, cordoned)


def solve(run: Run, this: Round) -> None:
    """Plan the window and place the jobs of the coming round on the nodes in service."""
    nodes, seen = this.nodes, this.observation
    given = make_situation(run, this)
    if given is None:
        report = SolveReport(run.policy.name, reason="no node is in service", drained=seen.drained)
        this.plan = Plan({}, report)
        return
    plan = decide(run.policy, given)
    placement = {job_id: nodes.known_as(gpus) for job_id, gpus in plan.placement.items()}
    this.plan = replace(
        plan, placement=placement, report=replace(plan.report, drained=seen.drained)
    )


def dispatch(run: Run, this: Round) -> None:
    """Preempt the jobs that lose their lease, then launch the jobs with a new lease."""
    run.check()
    placement, leases = this.plan.placement, this.state.leases
    inventory = this.state.inventory(run.header)
    problems = {found.node: found.problem for found in this.observation.problems}

    def why(gpus: tuple[int, ...]) -> str:
        ailing = problems.keys() & {inventory.node(gpu) for gpu in gpus} if problems else ()
        for node in sorted(ailing):
            return f"node {node} is out of service: {problems[node]}"
        return _explain_preemption(gpus, leases, placement)

    losing = {job_id: why(gpus) for job_id, gpus in leases.items() if job_id not in placement}
    new = [Lease(job_id, gpus) for job_id, gpus in placement.items() if leases.get(job_id) != gpus]
    this.events = (*run.runtime.preempt(losing), *run.runtime.launch(run.state.round, new))


def _explain_preemption(
    gpus: tuple[int, ...], before: Mapping[int, tuple[int, ...]], now: Mapping[int, tuple[int, ...]]
) -> str:
    """Return the reason for a preemption, in words: which jobs get the GPUs.

    `before` and `now` are the GPUs by job in the last round and in the coming round.
    """
    others = [
        job for job, held in now.items() if before.get(job) != held and not {*gpus}.isdisjoint(held)
    ]
    if not others:
        return "its GPUs are left idle"
    return f"its GPUs go to job{'s' * (len(others) > 1)} {', '.join(map(str, sorted(others)))}"


def record(run: Run, this: Round) -> None:
    """Append the round's record, then advance the run's state."""
    kept = RoundRecord(
        version=run.header.version,
        round=run.state.round,
        clock_seconds=this.observation.clock_seconds,
        arrivals=this.arrivals,
        finished=this.observation.finished,
        reports=this.observation.reports,
        progress=this.observation.progress,
        forecasts=this.forecasts,
        estimates=this.estimates,
        bids=this.plan.bids,
        solve=this.plan.report,
        memory=this.plan.memory,
        leases=tuple(Lease(job_id, gpus) for job_id, gpus in this.plan.placement.items()),
        events=this.events,
        previous_hash=run.state.last_hash,
        commands=this.commands,
        truths=this.truths,
        pairs=this.plan.pairs,
        problems=this.observation.problems,
        losses=this.observation.losses,
        fair_finishes=tuple(
            FairFinish(job_id, at) for job_id, at in sorted(this.state.fair_finishes.news.items())
        ),
    )
    timings = Timings(*(this.milliseconds[step.__name__] for step in ROUND[:-1]))
    digest = hash_record(kept)
    run.sink.append(kept, digest, timings)
    run.state, run.active = this.state.decide(run.header, kept, digest), this.active


def _estimate(run: Run, job: ActiveJob, state: RunState) -> Estimate:
    """Convert a job's forecast to seconds on its own allocation."""
    time = job.run_time(job.own)
    low, high = state.learning.calibration.interval_of(job.belief, time, state.learning.speed_noise)
    return Estimate(
        job_id=job.job_id,
        allocation=job.own,
        done=job.belief.share_done,
        run_seconds=job.belief.run_seconds,
        remaining_seconds=time.remaining,
        low_seconds=low,
        high_seconds=high,
        isolated_seconds=sum(measure_isolated(run, job, state)),
    )


def measure_isolated(run: Run, job: ActiveJob, state: RunState) -> tuple[float, float]:
    """Return a job's isolated run time so far and the forecast of what is left, in seconds."""
    inventory = state.present_inventory(run.header) or state.inventory(run.header)
    left = job.run_time(run.throughput.reference(job.spec)).remaining
    factor = isolated_factor(job.belief, run.throughput, inventory)
    return job.belief.reference_seconds * factor, left * factor


Step = Callable[[Run, Round], None]

ROUND: tuple[Step, ...] = (collect, predict, solve, dispatch, record)
"""The steps of a round, in order."""


def run_timed(step: Step, run: Run, this: Round) -> None:
    """Run one step and measure its wall time."""
    started, waited_ms = perf_counter(), this.waited_ms
    step(run, this)
    waited_ms = this.waited_ms - waited_ms
    this.milliseconds[step.__name__] = (perf_counter() - started) * 1e3 - waited_ms


def run_round(run: Run) -> Round:
    """Run a round as plain function calls, without Prefect."""
    this = Round()
    run_steps(run, this)
    return this


def run_steps(run: Run, this: Round) -> None:
    """Run the steps of a round in order."""
    for step in ROUND:
        run_timed(step, run, this)
