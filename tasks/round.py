"""The five steps of a round, in order: collect, predict, solve, dispatch, record.

Each fills its part of a `Round` from what the steps before it left there. `ROUND` is
the one definition of a round; drivers differ only in how they call its steps.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from time import perf_counter
from typing import Protocol

from containers.runtime import ContainerEvent, Lease, Observation, Runtime
from predictor.forecast import Forecast, forecast
from predictor.job import JobSpec
from predictor.profile import Profile
from predictor.published_predictor import ProfiledRegime
from solver.cluster import Cluster, InService
from solver.plan import ActiveJob, Plan, Policy, Situation, SolveReport
from tasks.record import RoundRecord, RunHeader, Timings, record_hash
from tasks.state import RunState


class Sink(Protocol):
    """Where records go."""

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """Take one round; once this returns it is kept."""
        ...


@dataclass
class Run:
    """A run under way; its state changes in one place, `record`.

    Attributes:
        name: The run's id.
        header: What it started from.
        profile: Throughputs, as the predictor reads them.
        policy: Who schedules.
        runtime: Where its jobs run.
        sink: Where its records go.
        state: Where it stands: a fold over its records.
        schedules: True batch-size schedules by job id, for an oracle only.
        active: What the policy was told of each job last, by job id.
    """

    name: str
    header: RunHeader
    profile: Profile
    policy: Policy
    runtime: Runtime
    sink: Sink
    state: RunState
    schedules: Mapping[int, tuple[ProfiledRegime, ...]]
    active: dict[int, ActiveJob] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether every job has arrived and ended."""
        return self.state.finished(self.header)


@dataclass
class Round:
    """A round in the making.

    Attributes:
        observation: What the runtime reported (collect).
        arrivals: Jobs admitted (collect).
        state: The run's state with all this taken in (predict).
        forecasts: What jobs are expected to do that arrived or ran (predict).
        plan: Who runs when (solve).
        events: What became of preempting and launching (dispatch).
        milliseconds: Wall time by step.
    """

    observation: Observation = field(init=False)
    arrivals: tuple[JobSpec, ...] = field(init=False)
    state: RunState = field(init=False)
    forecasts: tuple[Forecast, ...] = field(init=False)
    plan: Plan = field(init=False)
    events: tuple[ContainerEvent, ...] = field(init=False)
    milliseconds: dict[str, float] = field(default_factory=dict)


def collect(run: Run, this: Round) -> None:
    """Let the round before pass, read what happened in it, admit the jobs that arrived."""
    coming = run.header.specs[run.state.arrived :]
    if run.state.round:
        run.runtime.advance(coming[0].arrival_seconds if coming else None)
    this.observation = run.state.backoff.given_up(run.runtime.observe())
    run.runtime.reap(this.observation.ended)
    clock = this.observation.clock_seconds
    this.arrivals = tuple(takewhile(lambda spec: spec.arrival_seconds <= clock, coming))
    run.runtime.admit(this.arrivals)


def predict(run: Run, this: Round) -> None:
    """Update what is believed of the jobs, and forecast those of which there is news."""
    settings = run.header.settings
    state, changed = run.state.observed(
        run.header, this.observation, [spec.job_id for spec in this.arrivals]
    )
    expected = forecast(
        [state.beliefs[job_id] for job_id in changed],
        run.profile,
        state.history,
        basis=settings.forecasts,
        schedules=run.schedules,
        seed=settings.seed,
        window=settings.window if run.policy.looks_ahead else 0,
        round_seconds=settings.round_seconds,
    )
    this.forecasts = tuple(one for one in expected if state.forecasts.get(one.job_id) != one)
    known = dict(state.forecasts) | {one.job_id: one for one in this.forecasts}
    this.state = replace(state, forecasts=known)


def solve(run: Run, this: Round) -> None:
    """Plan the window and place the jobs of this round on the nodes that are in service."""
    settings, state, seen = run.header.settings, this.state, this.observation
    nodes = InService(Cluster(settings.gpus, settings.gpus_per_node), seen.drained)
    if nodes.cluster is None:
        report = SolveReport(run.policy.name, reason="no node is in service", drained=seen.drained)
        this.plan = Plan({}, report)
        return
    active = _active(run, state, nodes)
    ready = [
        job for job_id, job in active.items() if state.backoff.ready(job_id, seen.clock_seconds)
    ]
    plan = run.policy.plan(
        Situation(
            clock_seconds=seen.clock_seconds,
            cluster=nodes.cluster,
            round_seconds=settings.round_seconds,
            window=settings.window,
            jobs=tuple(job for job in ready if job.spec.scale_factor <= nodes.cluster.gpus),
            jobs_seen=state.arrived,
            ended_gpu_seconds=state.ended_gpu_seconds,
            memory=state.memory,
        )
    )
    placement = {job_id: nodes.known_as(gpus) for job_id, gpus in plan.placement.items()}
    this.plan = replace(
        plan, placement=placement, report=replace(plan.report, drained=seen.drained)
    )


def _active(run: Run, state: RunState, nodes: InService) -> dict[int, ActiveJob]:
    """What the policy is told of each job; what still holds is kept from the round before."""
    active: dict[int, ActiveJob] = {}
    for job_id, belief in state.beliefs.items():
        expected, gpus = state.forecasts[job_id], nodes.numbered(state.leases.get(job_id, ()))
        job = run.active.get(job_id)
        if not (job and job.belief is belief and job.forecast is expected and job.gpus == gpus):
            spec = belief.spec
            job = ActiveJob(
                belief=belief,
                forecast=expected,
                gpus=gpus,
                steps_per_second=run.profile.throughput(
                    spec.model, belief.batch_size, spec.scale_factor
                ),
                schedule=run.schedules.get(job_id, ()) if run.policy.clairvoyant else (),
            )
        active[job_id] = job
    run.active = active
    return active


def dispatch(run: Run, this: Round) -> None:
    """Preempt the jobs that lose their lease, then launch those that have a new one."""
    placement, leases = this.plan.placement, this.state.leases
    losing = {
        job_id: displaced(gpus, leases, placement)
        for job_id, gpus in leases.items()
        if job_id not in placement
    }
    new = [Lease(job_id, gpus) for job_id, gpus in placement.items() if leases.get(job_id) != gpus]
    this.events = (*run.runtime.preempt(losing), *run.runtime.launch(run.state.round, new))


def displaced(
    gpus: Iterable[int],
    before: Mapping[int, tuple[int, ...]],
    now: Mapping[int, tuple[int, ...]],
) -> str:
    """Who takes the GPUs of a job that is preempted, in words.

    Args:
        gpus: What it held.
        before: GPUs by job, until now.
        now: GPUs by job, from now on.
    """
    lost = set(gpus)
    others = [
        job for job, held in now.items() if before.get(job) != held and not lost.isdisjoint(held)
    ]
    if not others:
        return "its GPUs are left idle"
    return f"its GPUs go to job{'s' * (len(others) > 1)} {', '.join(map(str, sorted(others)))}"


def record(run: Run, this: Round) -> None:
    """Keep the round, then move the run's state past it."""
    kept = RoundRecord(
        version=run.header.version,
        round=run.state.round,
        clock_seconds=this.observation.clock_seconds,
        arrivals=tuple(spec.job_id for spec in this.arrivals),
        finished=this.observation.finished,
        reports=this.observation.reports,
        progress=this.observation.progress,
        forecasts=this.forecasts,
        bids=this.plan.bids,
        solve=this.plan.report,
        turns=this.plan.turns,
        memory=this.plan.memory,
        launches=tuple(Lease(job_id, gpus) for job_id, gpus in this.plan.placement.items()),
        events=this.events,
        previous_hash=run.state.last_hash,
    )
    timings = Timings(*(this.milliseconds[step.__name__] for step in ROUND[:-1]))
    digest = record_hash(kept)
    run.sink.append(kept, digest, timings)
    run.state = this.state.decided(kept, digest)


Step = Callable[[Run, Round], None]

ROUND: tuple[Step, ...] = (collect, predict, solve, dispatch, record)
"""A round is these steps in this order."""


def timed(step: Step, run: Run, this: Round) -> None:
    """Run one step and note how long it took."""
    started = perf_counter()
    step(run, this)
    this.milliseconds[step.__name__] = (perf_counter() - started) * 1e3


def run_round(run: Run) -> Round:
    """The plain driver: a round as plain calls."""
    this = Round()
    for step in ROUND:
        timed(step, run, this)
    return this
