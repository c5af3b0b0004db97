"""The five steps of a round, in order: collect, predict, solve, dispatch, record.

A step returns immutable values and takes those of earlier steps. `run_round` connects them; drivers
differ only in how they call a step (`StepCaller`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

from containers.runtime import ContainerEvent, Lease, Observation
from containers.virtual.truth import GroundTruth
from predictor.allocation import Allocation
from predictor.belief import Belief
from predictor.forecast import Forecast, RunTime, forecast
from predictor.job import JobSpec
from predictor.parts import Mapper
from solver.deciding import decide
from solver.inventory import InService, Inventory
from solver.plan import ActiveJob, Plan, SolveReport
from solver.promised import GpuWindow, Promises, RoundInput
from tasks.commands import Command
from tasks.fairness import FairFinish, FairFinishes
from tasks.record import Estimate, RoundRecord, Timings, hash_record
from tasks.run import Run
from tasks.speeds import isolated_factor
from tasks.state import RunState

T = TypeVar("T")

FEWEST_FORECASTS = 1_000
"""Fewest jobs whose forecasts are worth a part for each adaptation mode (ADR 0050)."""


@dataclass(frozen=True)
class Collected:
    """What a round begins with.

    Attributes:
        waited_ms: Wall time of the wait for the end of the previous round.
    """

    observation: Observation
    arrivals: tuple[JobSpec, ...]
    commands: tuple[Command, ...]
    truths: tuple[GroundTruth, ...]
    submitters: tuple[str, ...]
    waited_ms: float


@dataclass(frozen=True)
class Prediction:
    """What the policy can know of a round.

    Attributes:
        state: State after the observation.
        nodes: The nodes in service.
        active: Policy input by job id.
        forecasts: Forecasts that differ from the previous ones of their jobs.
    """

    observation: Observation
    state: RunState
    nodes: InService
    active: dict[int, ActiveJob]
    forecasts: tuple[Forecast, ...]
    estimates: tuple[Estimate, ...]


@dataclass(frozen=True)
class Round(Prediction):
    """A solved round."""

    plan: Plan


@dataclass(frozen=True)
class RecordedRound(Round):
    """A round that was run."""

    record: RoundRecord
    timings: Timings


def collect(run: Run, each: Mapper | None = None) -> Collected:
    """Wait for the previous round to end, read its telemetry, and take in jobs and commands.

    `each` reads the telemetry by host.
    """
    taken, orders, waited_ms = run.state.source_position, run.state.orders, 0.0
    if run.state.round:
        began = perf_counter()
        run.runtime.advance(_idle_until(run))
        waited_ms = (perf_counter() - began) * 1e3
    run.check()
    for job_id in sorted(orders.cancelled):
        run.runtime.withdraw(job_id, run.state.explain_withdrawal(job_id))
    seen = run.state.give_up(run.runtime.observe(each))
    run.runtime.reap(seen.ended)
    new = run.source.until(seen.clock_seconds, taken)
    nodes = orders.after((), new.commands)
    out = nodes.out_of_service.union(seen.drained)
    losses = seen.losses if run.header.losses else ()
    run.resize(orders, nodes)
    run.runtime.admit(new.jobs)
    observation = replace(seen, drained=tuple(sorted(out)), losses=losses)
    return Collected(observation, new.jobs, new.commands, new.truths, new.submitters, waited_ms)


def _idle_until(run: Run) -> float | None:
    barred = run.state.blocked.values() if run.state.tenancy.usage else ()  # only by quotas
    times = [found.until_seconds for found in barred if found.until_seconds]
    windows, now = run.state.orders.windows, run.state.clock_seconds
    times += (w.end_seconds for w in windows if w.is_open(now))
    return run.source.idle_until(run.state.source_position, times)


def predict(run: Run, collected: Collected, each: Mapper | None = None) -> Prediction:
    """Update the beliefs, and forecast jobs whose belief or prior changed.

    `each` forecasts many jobs by adaptation mode.
    """
    return _predict(run, collected, each)


def _predict(
    run: Run, collected: Collected, each: Mapper | None = None, *, asked: bool = False
) -> Prediction:
    """See `predict`; `asked` forecasts all jobs even if the run needs no forecasts.

    Which runs need them: `RunHeader.foresees`.
    """
    seen = collected.observation
    state, news = run.state.observe(run.header, seen, collected.arrivals, collected.commands)
    if asked and not run.header.foresees:
        news = tuple(state.beliefs)
    forecasts, times = _expected(run, state, news, each)
    state = state.with_forecasts(forecasts)
    nodes = InService(state.inventory(run.header), seen.drained)
    active = _active(run, state, nodes)
    for found in forecasts:
        if time := times.get(found.job_id):
            job = active[found.job_id]
            job.know(time, run.throughput.reference(job.spec))
    inventory = state.isolated_inventory(run.header)
    estimates = tuple(
        [_estimate(run, active[found.job_id], state, inventory) for found in forecasts]
    )
    return Prediction(seen, state.expect(estimates), nodes, active, forecasts, estimates)


def _expected(
    run: Run, state: RunState, news: Sequence[int], each: Mapper | None
) -> tuple[tuple[Forecast, ...], dict[int, RunTime]]:
    """Return the forecasts that differ from the last ones of the same jobs, and known run times."""
    settings, times = run.header.settings, dict[int, RunTime]()
    expected = forecast(
        [state.beliefs[job_id] for job_id in news],
        run.throughput,
        state.learning.history,
        trajectories=run.policy.looks_ahead,
        basis=settings.forecasts,
        schedules=run.schedules,
        seed=settings.seed,
        prior_seconds=state.learning.speed_noise.prior_seconds,
        each=each if len(news) >= FEWEST_FORECASTS else None,
        times=times,
    )
    new = tuple([found for found in expected if state.forecasts.get(found.job_id) != found])
    return new, times


def _active(run: Run, state: RunState, nodes: InService) -> dict[int, ActiveJob]:
    """Return the policy input by job id; reuse unchanged inputs, with their cached values."""
    inventory = nodes.inventory or state.inventory(run.header)
    active: dict[int, ActiveJob] = {}
    budgets, forecasts, leases = state.budgets, state.forecasts, state.leases
    for job_id, belief in state.beliefs.items():
        budget = budgets.get(job_id, belief.spec.budget)
        if budget != belief.spec.budget:
            belief = replace(belief, spec=replace(belief.spec, budget=budget))
        expected, lease = forecasts.get(job_id), leases.get(job_id)
        gpus = nodes.numbered(lease) if lease else ()
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
    elastic = run.policy.elastic
    menu = inventory.menu_of(belief.spec, belief.batch_size, run.throughput, elastic=elastic)
    return menu or (run.throughput.reference(belief.spec),)


def make_situation(run: Run, this: Prediction) -> RoundInput | None:
    """Return the policy input of a round; None if no node is in service."""
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
        fair_finishes=_Projected(state.fair_finishes),
        arrivals=state.arrivals,
        ended_gpu_seconds=state.learning.gpu_seconds,
        memory=state.memory,
        restart_seconds=settings.restart_seconds,
        promises=_promises(run, this),
        cordoned=_cordoned(run, this),
        windows=tuple(_list_windows(run, this)),
    )


class _Projected(Mapping[int, float]):
    """When active jobs end in the even cluster, by job id; projected once a policy asks."""

    def __init__(self, finishes: FairFinishes) -> None:
        self._finishes = finishes

    @cached_property
    def _found(self) -> dict[int, float]:
        return self._finishes.project()

    def __getitem__(self, job_id: int) -> float:
        return self._found[job_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _cordoned(run: Run, this: Prediction) -> frozenset[int]:
    """Return the GPUs on which no job starts, numbered among the nodes in service."""
    inventory, nodes = this.state.inventory(run.header), this.state.orders.cordoned
    there = (inventory.gpus_of(node) for node in nodes if node < inventory.nodes)
    return frozenset(gpu for gpus in there for gpu in this.nodes.numbered(tuple(gpus)))


def _list_windows(run: Run, this: Prediction) -> Iterator[GpuWindow]:
    """Yield the windows that are not over, with GPUs numbered among the nodes in service."""
    inventory, clock = this.state.inventory(run.header), this.observation.clock_seconds
    for window in this.state.orders.windows:
        if window.node < inventory.nodes and window.end_seconds > clock:
            gpus = frozenset(this.nodes.numbered(tuple(inventory.gpus_of(window.node))))
            if gpus:
                times = window.begin_seconds, window.end_seconds
                yield GpuWindow(gpus, *times, window.tenant)


def _promises(run: Run, this: Prediction) -> Promises | None:
    settings = run.header.settings
    layout = settings.layout
    if layout is None:
        return None
    cordoned = tuple(sorted(this.state.orders.cordoned))
    return Promises(layout, settings.inventory, this.nodes, this.observation.drained, cordoned)


def solve(run: Run, prediction: Prediction) -> Plan:
    """Plan the window and place the jobs of the coming round on the nodes in service."""
    nodes, drained = prediction.nodes, prediction.observation.drained
    given = make_situation(run, prediction)
    if given is None:
        reason = "no node is in service"
        return Plan({}, SolveReport(run.policy.name, reason=reason, drained=drained))
    plan = decide(run.policy, given)
    placement = {job_id: nodes.known_as(gpus) for job_id, gpus in plan.placement.items()}
    return replace(plan, placement=placement, report=replace(plan.report, drained=drained))


def dispatch(
    run: Run, prediction: Prediction, plan: Plan, each: Mapper | None = None
) -> tuple[ContainerEvent, ...]:
    """Preempt the jobs that lose their lease, then launch the jobs with a new lease.

    `each` stops and starts containers by host.
    """
    run.check()
    placement, leases = plan.placement, prediction.state.leases
    inventory = prediction.state.inventory(run.header)
    problems = {found.node: found.problem for found in prediction.observation.problems}
    clock = prediction.observation.clock_seconds
    maintained = prediction.state.orders.maintained(clock)

    def why(gpus: tuple[int, ...]) -> str:
        nodes = inventory.nodes_of(gpus) if problems or maintained else set()
        for node in sorted(problems.keys() & nodes):
            return f"node {node} is out of service: {problems[node]}"
        for node in sorted(maintained & nodes):
            return f"node {node} is under maintenance"
        return _explain_preemption(gpus, leases, placement)

    losing = {job_id: why(gpus) for job_id, gpus in leases.items() if job_id not in placement}
    new = [Lease(job_id, gpus) for job_id, gpus in placement.items() if leases.get(job_id) != gpus]
    preempted = run.runtime.preempt(losing, each)
    return (*preempted, *run.runtime.launch(run.state.round, new, each))


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


def record(
    run: Run,
    collected: Collected,
    prediction: Prediction,
    plan: Plan,
    events: tuple[ContainerEvent, ...],
    timings: Timings,
) -> RoundRecord:
    """Append the round's record, then advance the run's state."""
    seen, state = collected.observation, prediction.state
    kept = RoundRecord(
        version=run.header.version,
        round=run.state.round,
        clock_seconds=seen.clock_seconds,
        arrivals=collected.arrivals,
        finished=seen.finished,
        reports=seen.reports,
        progress=seen.progress,
        forecasts=prediction.forecasts,
        estimates=prediction.estimates,
        bids=plan.bids,
        solve=plan.report,
        memory=plan.memory,
        leases=tuple(Lease(job_id, gpus) for job_id, gpus in plan.placement.items()),
        events=events,
        previous_hash=run.state.last_hash,
        commands=collected.commands,
        truths=collected.truths,
        pairs=plan.pairs,
        problems=seen.problems,
        losses=seen.losses,
        fair_finishes=tuple(
            FairFinish(job_id, at) for job_id, at in sorted(state.fair_finishes.news.items())
        ),
        submitters=collected.submitters,
    )
    digest = hash_record(kept)
    run.sink.append(kept, digest, timings)
    run.state, run.active = state.decide(run.header, kept, digest), prediction.active
    return kept


def _estimate(run: Run, job: ActiveJob, state: RunState, inventory: Inventory) -> Estimate:
    """Convert a job's forecast to seconds on its own allocation."""
    own = job.own
    time = job.run_time(own)
    low, high = state.learning.calibration.interval_of(job.belief, time, state.learning.speed_noise)
    return Estimate(
        job_id=job.job_id,
        allocation=own,
        done=job.belief.share_done,
        run_seconds=job.belief.run_seconds,
        remaining_seconds=time.remaining,
        low_seconds=low,
        high_seconds=high,
        isolated_seconds=sum(measure_isolated(run, job, inventory)),
    )


def measure_isolated(run: Run, job: ActiveJob, inventory: Inventory) -> tuple[float, float]:
    """Return a job's isolated run time so far and the forecast of what is left, in seconds.

    `inventory` is that of `RunState.isolated_inventory`.
    """
    left = job.run_time(run.throughput.reference(job.spec)).remaining
    factor = isolated_factor(job.belief, run.throughput, inventory)
    return job.belief.reference_seconds * factor, left * factor


Step = Callable[..., Any]

ROUND: tuple[Step, ...] = (collect, predict, solve, dispatch, record)
"""The steps of a round, in order."""


class StepResult(Generic[T]):
    """What a step returned, and its wall time in milliseconds, excluding `collect`'s wait.

    It is opaque to Prefect, which looks for the sources of a task's inputs in every field of a
    dataclass and in every item of a collection.
    """

    __slots__ = ("__weakref__", "milliseconds", "value")

    def __init__(self, value: T, milliseconds: float = 0.0) -> None:
        self.value, self.milliseconds = value, milliseconds


class StepCaller(Protocol):
    """Calls a step with what earlier steps returned."""

    def __call__(self, step: Callable[..., T], run: Run, *inputs: StepResult[Any]) -> StepResult[T]:
        """Return the step's result.

        Raises:
            Exception: Any exception of the step.
        """
        ...


def call_step(
    step: Callable[..., T], run: Run, *inputs: StepResult[Any], **options: Any
) -> StepResult[T]:
    """See `StepCaller`; calls the function itself, with further options."""
    began = perf_counter()
    value = step(run, *(given.value for given in inputs), **options)
    waited_ms = value.waited_ms if isinstance(value, Collected) else 0.0
    return StepResult(value, (perf_counter() - began) * 1e3 - waited_ms)


def run_round(run: Run, call: StepCaller = call_step) -> RecordedRound:
    """Run a round: the graph of its steps. By default, without Prefect."""
    collected = call(collect, run)
    prediction = call(predict, run, collected)
    plan = call(solve, run, prediction)
    events = call(dispatch, run, prediction, plan)
    done: tuple[StepResult[Any], ...] = (collected, prediction, plan, events)
    timings = Timings(*(result.milliseconds for result in done))
    kept = call(record, run, *done, StepResult(timings))
    return RecordedRound(
        **vars(prediction.value), plan=plan.value, record=kept.value, timings=timings
    )


def solve_round(run: Run, prediction: Prediction | None = None) -> Round:
    """Solve a round without dispatching it; by default, collect and forecast it first."""
    prediction = prediction or _predict(run, collect(run), asked=True)
    return Round(**vars(prediction), plan=solve(run, prediction))
