"""Forecasts of starts, finishes and ρ: simulations of the queue under the policy.

Each simulation draws the residual run times of active jobs and the future arrivals. The policy
then plans round after round until the jobs have ended. The even cluster gets the same run times and
arrivals, so that ρ compares two ends of one future. Simulations are equally likely futures: the
truth is equally likely to take each rank among them.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from predictor.arrivals import COUNTED, arrivals_after
from predictor.belief import Belief
from predictor.forecast import HELD, Forecast, RunTime
from predictor.job import JobSpec
from predictor.options import JobOptions, Task, find_blocked
from solver.deciding import find_reservation, place
from solver.even_cluster import measure_rho
from solver.plan import ActiveJob, Plan
from solver.promised import RoundInput
from tasks.fairness import make_arrivals
from tasks.queue_simulation import QueuedJob, QueueSimulation, set_run_time
from tasks.round import Prediction, Round, make_situation, measure_isolated
from tasks.run import Run
from tasks.speeds import isolated_factor
from tasks.state import RunState

SIMULATIONS = 19
"""Simulations of the queue. An engineering bound."""

LOWEST, HIGHEST = 1, 17
"""Ranks, by time, at which intervals end: the second and the second last. The truth lies between
them with a probability of 80 % if it is exchangeable with the simulations."""

LEVELS = tuple((number + 1.0) / (SIMULATIONS + 1.0) for number in range(SIMULATIONS))
"""Levels at which simulations draw a job's run time: the mean level of each rank among as many
random draws (Weibull 1939). If only one run time matters, intervals end at its 10 and 90 %."""

SPREAD = tuple(level - 0.5 for level in LEVELS)
"""Shift of the starts of each simulation, in rounds. Jobs start on round boundaries, so many
simulations agree: an interval that ends on such a boundary would cover too many truths."""

MOST_COMING = 3
"""Most arrivals of a simulation, as a multiple of those seen so far; an array counts once. Later
arrivals seldom change when a present job ends, but delay the latest simulations without a bound."""

Progress = Callable[[int, int], None]
"""Called with the number of finished simulations and the number of all."""

LEAST_RATIOS = 8
"""Least finished jobs of which ratios of isolated run times are drawn. A convention."""

LEAST_SECONDS = 1.0
"""Least drawn residual run time. A convention."""

_NOTHING = Forecast(-1, (), (), (), (), (), ())
"""Forecast of future jobs, whose run times are set separately."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """A predicted value: median and 80 % interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ExpectedTimes:
    """What is expected of a job; times are on the run's clock, in seconds.

    Attributes:
        start: Its next start; now if it runs in the round.
        fair_finish: Its end in the even cluster; None while it is absent there.
        rho: Finish-time fairness ρ; None without a fair finish.
    """

    start: Predicted
    finish: Predicted
    fair_finish: Predicted | None
    rho: Predicted | None


def seconds_to_reservation(run: Run, this: Round) -> dict[int, float]:
    """Return the latest time at which a waiting gang with a reservation gets its GPUs.

    In seconds from now, by job id. Non-preemptible jobs delay such a gang (`solver.deciding`).
    The round must be solved.
    """
    given = make_situation(run, this)
    found = find_reservation(given) if given and not given.promises else None
    if given is None or found is None or found.job_id in this.plan.placement:
        return {}
    return {found.job_id: found.seconds + given.round_seconds}


def seconds_to_priority(this: Round) -> dict[int, float]:
    """Return the seconds until waiting jobs go before all others, by job id; see `Plan.first_by`.

    Empty under policies that do not bound postponement. The round must be solved.
    """
    plan = this.plan
    bounds = zip(plan.order, plan.first_by, strict=True) if plan.first_by else ()
    return {job_id: by for job_id, by in bounds if job_id not in plan.placement}


def ignore_progress(done: int, total: int) -> None:
    """Report no progress."""


def forecast_times(
    run: Run, this: Round, asked: Set[int], progress: Progress = ignore_progress
) -> dict[int, ExpectedTimes]:
    """Forecast the starts, finishes and ρ of active jobs under the policy, by job id.

    The run is before the round, and the round solved. A simulation ends with the last of the jobs
    in `asked`.

    Jobs that cannot run at present are left out (`find_runnable_jobs`). The result is empty if no
    node is in service, and under policies that read true futures or losses, which are not
    simulated.
    """
    now = make_situation(run, this)
    if now is None or run.policy.clairvoyant or run.header.losses:
        return {}
    active = find_runnable_jobs(this)
    asked = asked & active.keys()
    if not asked:
        return {}
    rng = np.random.default_rng((run.header.settings.seed, run.state.round))
    futures = _simulate(run, this, now, active, asked, rng, progress)
    clock, seconds = now.clock_seconds, now.round_seconds
    found = {}
    for job_id in sorted(asked):
        finish = _interval_of((each.ends[job_id] for each in futures), clock)
        start = Predicted(clock, clock, clock)
        if job_id not in this.plan.placement:
            start = _starts([each.starts[job_id] for each in futures], clock, seconds)
        if math.isfinite(max(start.high, finish.high)):
            arrival = active[job_id].spec.arrival_seconds
            fairness = _fairness_of(job_id, arrival, futures, seconds, now.restart_seconds)
            found[job_id] = ExpectedTimes(start, finish, *fairness)
    return found


@dataclass(frozen=True, slots=True)
class _Future:
    """What a simulation found: starts, ends and fair finishes by job id."""

    starts: Mapping[int, float]
    ends: Mapping[int, float]
    fair: Mapping[int, float]


def _fairness_of(
    job_id: int,
    arrival: float,
    futures: Sequence[_Future],
    round_seconds: float,
    restart_seconds: float,
) -> tuple[Predicted | None, Predicted | None]:
    """Return a job's fair finish and ρ; None if it is absent from the even cluster."""
    fair = [each.fair[job_id] for each in futures]
    if not math.isfinite(max(fair)):
        return None, None
    rho = (
        measure_rho(each.ends[job_id], arrival, at, round_seconds, restart_seconds)
        for each, at in zip(futures, fair, strict=True)
    )
    return _interval_of(fair), _interval_of(rho)


def _simulate(
    run: Run,
    this: Round,
    now: RoundInput,
    active: Mapping[int, ActiveJob],
    asked: Set[int],
    rng: np.random.Generator,
    progress: Progress,
) -> list[_Future]:
    """Simulate the runnable jobs, each time until the requested jobs have ended."""
    plan = partial(place, run.policy)
    first = _plan_in_service(this)
    tenancy = this.state.tenancy
    levels = {job_id: rng.permutation(LEVELS).tolist() for job_id in active}
    intervals = {job_id: _run_time_interval(this, job_id) for job_id in active}
    cuts = {job_id: _cuts(job, now.round_seconds, rng) for job_id, job in active.items()}
    (own_rng,) = rng.spawn(1)
    nodes = this.state.isolated_inventory(run.header)
    isolated = {job_id: measure_isolated(run, job, nodes) for job_id, job in this.active.items()}
    futures = []
    for number in range(SIMULATIONS):
        progress(number, SIMULATIONS)
        jobs = {
            job_id: QueuedJob(
                job, _quantile(intervals[job_id], levels[job_id][number]), cuts[job_id][number]
            )
            for job_id, job in active.items()
        }
        coming = [*_coming(run, this, now, jobs, rng)]
        new = {
            job.seen.job_id: job.length * isolated_factor(job.seen.belief, run.throughput, nodes)
            for job in coming
        }
        seconds, ratios = {**new}, _draw_ratios(this.state, own_rng)
        for job_id, (done, left) in isolated.items():
            drawn = jobs[job_id].length / intervals[job_id][1] if job_id in jobs else 1.0
            seconds[job_id] = (done + left * drawn) * ratios[job_id]
        arrivals = make_arrivals(job.seen.spec for job in coming)
        fair = this.state.fair_finishes.foresee(seconds, arrivals)
        even = this.state.fair_finishes.now
        simulation = QueueSimulation(plan, now, jobs, deque(coming), rng, tenancy, even, new)
        simulation.run(first, asked)
        futures.append(_Future(simulation.starts, simulation.ends, fair))
    return futures


def _draw_ratios(state: RunState, rng: np.random.Generator) -> dict[int, float]:
    """Draw the ratio of each job's isolated run time to what its training says, by job id.

    Ratios are those of finished jobs of its mode, or of all modes if these are few. They are
    resampled first (the bootstrap: Efron 1979), as few ratios say little about their mean, and an
    error of the mean is one that all jobs share.
    """
    known = {
        mode: ratios
        for mode, ratios in state.learning.isolated_ratios.items()
        if len(ratios) >= LEAST_RATIOS
    }
    pooled = [r for ratios in state.learning.isolated_ratios.values() for r in ratios]
    resampled = {mode: rng.choice(ratios, len(ratios)) for mode, ratios in known.items()}
    others = rng.choice(pooled, len(pooled)) if len(pooled) >= LEAST_RATIOS else (1.0,)
    return {
        job_id: float(rng.choice(resampled.get(belief.spec.mode.value, others)))
        for job_id, belief in state.beliefs.items()
    }


def find_runnable_jobs(this: Prediction) -> Mapping[int, ActiveJob]:
    """Return the active jobs that can run at present, by job id.

    Left out are jobs on hold, cancelled jobs, jobs for which too few nodes are in service, and
    jobs that depend on any of these.
    """
    orders = this.state.orders
    out = {*orders.held, *orders.cancelled}
    if this.observation.drained or orders.cordoned:
        few = (job for job in this.active if _count_gpus(this, job, orders.cordoned) is not None)
        out |= {*few}
    if not out:
        return this.active
    options = {job_id: job.spec.options for job_id, job in this.active.items()}
    behind = find_blocked(options, out)
    return {job_id: job for job_id, job in this.active.items() if job_id not in behind}


def count_available_gpus(this: Prediction, job_id: int) -> int | None:
    """Return the most GPUs in service that a job could hold, if too few; None if the job fits.

    GPUs of nodes that are cordoned or set aside count only for jobs that hold GPUs, as no other job
    starts there. The round must be predicted, and the job active in it.
    """
    tenant, clock = this.active[job_id].spec.tenant, this.observation.clock_seconds
    return _count_gpus(this, job_id, this.state.orders.closed_to(tenant, clock))


def _count_gpus(this: Prediction, job_id: int, closed: frozenset[int]) -> int | None:
    job, inventory = this.active[job_id], this.nodes.inventory
    if closed and not job.gpus:
        inventory = this.nodes.without(closed)
    if inventory is None:
        return 0
    demand = job.spec.demand
    if not {*job.menu}.isdisjoint(inventory.menu(demand)):
        return None
    pools = zip(inventory.pools, inventory.free, strict=True)
    most = max((free for pool, free in pools if demand.allows(pool.gpu_type)), default=0)
    return most if most < demand.least else 0


def _plan_in_service(this: Round) -> Plan:
    """Return the round's plan, with GPU numbers of the nodes in service."""
    placement = this.plan.placement.items()
    return replace(this.plan, placement={j: this.nodes.numbered(gpus) for j, gpus in placement})


def _run_time_interval(this: Prediction, job_id: int) -> tuple[float, float, float]:
    """Return a residual run time on a menu's first allocation: calibrated low, point, high."""
    job = this.active[job_id]
    time = job.run_time(job.menu[0])
    low, high = this.state.learning.calibration.interval_of(
        job.belief, time, this.state.learning.speed_noise
    )
    return low, time.remaining, high


def _quantile(interval: tuple[float, float, float], level: float) -> float:
    """Return the residual run time at a level, linear from the point through 10 % and 90 %."""
    low, point, high = interval
    slope = (point - low if level < 0.5 else high - point) / (HELD / 2.0)
    return max(point + (level - 0.5) * slope, LEAST_SECONDS)


def _cuts(job: ActiveJob, round_seconds: float, rng: np.random.Generator) -> list[float]:
    """Draw the part of a step that a round's end discards, which is uniform."""
    step = min(1.0 / job.rate(job.menu[0]), 0.5 * round_seconds)
    cuts: list[float] = (step * rng.random(SIMULATIONS)).tolist()
    return cuts


def _coming(
    run: Run,
    this: Round,
    now: RoundInput,
    active: Mapping[int, QueuedJob],
    rng: np.random.Generator,
) -> Iterator[QueuedJob]:
    """Yield the future jobs of a simulation, each like one of the latest jobs.

    An array arrives as often as a job, with all its tasks.
    """
    seen = {
        belief.spec.job_id: (belief.spec, belief.reference_seconds)
        for belief in this.state.learning.finished
    }
    for job_id, job in active.items():
        belief = job.seen.belief
        seen[job_id] = belief.spec, belief.reference_seconds + job.length
    together: dict[int, list[tuple[JobSpec, float]]] = {}
    for spec, length in sorted(seen.values(), key=lambda entry: entry[0].arrival_seconds):
        together.setdefault(spec.first_task, []).append((spec, length))
    alike = list(together.values())[-COUNTED - 1 :]
    arrived = [tasks[0][0].arrival_seconds for tasks in alike]
    times = arrivals_after(now.clock_seconds, arrived, rng)
    times = islice(times, MOST_COMING * len(alike))
    coming = (
        (time, at, *task)
        for time in times
        for at, task in enumerate(alike[rng.integers(len(alike))])
    )
    most = islice(coming, MOST_COMING * (COUNTED + 1))
    last = max({*seen, *this.state.learning.finished_ids}, default=0)
    for job_id, (time, at, spec, length) in enumerate(most, start=last + 1):
        options = JobOptions(task=Task(place=at))
        belief = Belief(replace(spec, job_id=job_id, arrival_seconds=time, options=options))
        menu = now.inventory.menu_of(
            spec, spec.batch_size, run.throughput, elastic=run.policy.elastic
        )
        if menu:
            like = ActiveJob(belief, _NOTHING, (), 0, menu, run.throughput)
            set_run_time(like, RunTime(length, length, length, (length,)))
            yield QueuedJob(like, length)


def _starts(times: Sequence[float], clock: float, seconds: float) -> Predicted:
    """Return the median and the 80 % interval of a waiting job's next start.

    No start is earlier than half a round from now, with rounds of `seconds`.
    """
    median = sorted(times)[SIMULATIONS // 2]
    spread = (time + part * seconds for time, part in zip(times, SPREAD, strict=True))
    found = _interval_of(spread, clock + 0.5 * seconds)
    return Predicted(median, min(found.low, median), max(found.high, median))


def _interval_of(values: Iterable[float], floor: float = -math.inf) -> Predicted:
    """Return the median and 80 % interval of values in the simulations, none below a floor."""
    ascending = sorted(values)
    low, high = max(ascending[LOWEST], floor), ascending[HIGHEST]
    return Predicted(ascending[SIMULATIONS // 2], low, high)
