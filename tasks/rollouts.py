"""When jobs will start and finish: the queue played forward under the policy, many times.

Each play draws the unknowns, the residual run time of each active job and the jobs still to come,
and lets the policy plan round after round until all active jobs have ended. The plays
are equally likely futures; of `PLAYS` and the truth, each rank is equally likely for the truth.
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
from predictor.options import JobOptions, Task, stuck_behind
from solver.deciding import place, reserved
from solver.plan import ActiveJob, Plan, Situation
from tasks.queue_simulation import QueuedJob, QueueSimulation, set_run_time
from tasks.round import Round, Run, make_situation

PLAYS = 19
"""Plays of the queue. An engineering bound."""

LOWEST, HIGHEST = 1, 17
"""Ranks of the plays, by time, at which an interval ends: the second and the second last. The truth
lies between them with a probability of 80 % if it is exchangeable with the plays."""

LEVELS = tuple((number + 1.0) / (PLAYS + 1.0) for number in range(PLAYS))
"""Levels at which the plays draw a job's run time: the mean level of each rank among as many random
draws (Weibull 1939). The intervals end at 10 and 90 % of what hangs on one job's run time alone."""

SPREAD = tuple(level - 0.5 for level in LEVELS)
"""Shift of the starts of each play, in rounds. Jobs start on round boundaries: many plays agree,
and an interval that ended on such a boundary would hold them all, and so too many of the truths."""

MOST_COMING = 3
"""Most arrivals of a play, as a multiple of those seen so far, an array as one: three quarters of
the arrival processes end before. Later ones seldom decide when a job that is here ends, but make
the latest plays later without a bound."""

Progress = Callable[[int, int], None]
"""Called with the number of plays done, and that of all plays."""

LEAST_SECONDS = 1.0
"""Least residual run time that a play draws. A convention."""

_NOTHING = Forecast(-1, (), (), (), (), (), ())
"""Forecast of jobs still to come, whose run times are given."""


@dataclass(frozen=True, slots=True)
class ExpectedTimes:
    """When a job is expected to start and to finish, on the run's clock, in seconds.

    Attributes:
        start: Median of its next start; now if it runs in the round.
        start_low: Lower end of the interval of 80 % nominal coverage.
        start_high: Its upper end.
        finish: Median of its finish.
        finish_low: Lower end of the interval of 80 % nominal coverage.
        finish_high: Its upper end.
    """

    start: float
    start_low: float
    start_high: float
    finish: float
    finish_low: float
    finish_high: float


def seconds_to_reservation(run: Run, this: Round) -> dict[int, float]:
    """Seconds from now by which jobs that are not preempted give way to a gang that waits for them.

    Args:
        run: The run.
        this: The round, solved.

    Returns:
        By job id, of the gang with the reservation of `solver.deciding`, if there is one: seconds
        until the round after the reserved time begins.
    """
    given = make_situation(run, this)
    found = reserved(given) if given and not given.promises else None
    if given is None or found is None or found.job_id in this.plan.placement:
        return {}
    return {found.job_id: found.seconds + given.round_seconds}


def seconds_to_priority(this: Round) -> dict[int, float]:
    """Seconds from now by which waiting jobs go before all others; see `Plan.first_by`.

    Args:
        this: The round, solved.

    Returns:
        By job id; empty under policies that bound no postponement.
    """
    plan = this.plan
    bounds = zip(plan.order, plan.first_by, strict=True) if plan.first_by else ()
    return {job_id: by for job_id, by in bounds if job_id not in plan.placement}


def ignore_progress(done: int, total: int) -> None:
    """Progress that is not reported."""


def forecast_times(
    run: Run, this: Round, asked: Set[int], progress: Progress = ignore_progress
) -> dict[int, ExpectedTimes]:
    """Expected starts and finishes of active jobs under the policy.

    Args:
        run: The run, before the round.
        this: The round, solved.
        asked: Ids of these jobs; a play ends with the last of them.
        progress: Called before each play.

    Returns:
        By job id, of those that are to run as things are (`_going_on`); empty where no node is in
        service, and under policies that read what no play draws: clairvoyant policies the
        jobs' futures, those that read losses the losses of epochs to come.
    """
    now = make_situation(run, this)
    if now is None or run.policy.clairvoyant or run.header.losses:
        return {}
    active = _going_on(this)
    asked = asked & active.keys()
    if not asked:
        return {}
    rng = np.random.default_rng((run.header.settings.seed, run.state.round))
    plays = _played(run, this, now, active, asked, rng, progress)
    clock, seconds = now.clock_seconds, now.round_seconds
    found = {}
    for job_id in sorted(asked):
        ends = _held((play.ends[job_id] for play in plays), clock)
        starts = (clock, clock, clock)
        if job_id not in this.plan.placement:
            starts = _starts([play.starts[job_id] for play in plays], clock, seconds)
        if math.isfinite(max(*starts, *ends)):
            found[job_id] = ExpectedTimes(*starts, *ends)
    return found


def _played(
    run: Run,
    this: Round,
    now: Situation,
    active: Mapping[int, ActiveJob],
    asked: Set[int],
    rng: np.random.Generator,
    progress: Progress,
) -> list[QueueSimulation]:
    """The plays of jobs that go on, each to the end of those asked for."""
    plan = partial(place, run.policy)
    first = _in_service(this)
    tenancy = this.state.tenancy
    levels = {job_id: rng.permutation(LEVELS).tolist() for job_id in active}
    intervals = {job_id: _interval(this, job_id) for job_id in active}
    cuts = {job_id: _cuts(job, now.round_seconds, rng) for job_id, job in active.items()}
    plays = []
    for number in range(PLAYS):
        progress(number, PLAYS)
        jobs = {
            job_id: QueuedJob(
                job,
                _quantile(intervals[job_id], levels[job_id][number]),
                cuts[job_id][number],
            )
            for job_id, job in active.items()
        }
        coming = deque(_coming(run, this, now, jobs, rng))
        play = QueueSimulation(plan, now, jobs, coming, rng, tenancy)
        play.to_the_end(first, asked)
        plays.append(play)
    return plays


def _going_on(this: Round) -> Mapping[int, ActiveJob]:
    """The active jobs that are to run as things are, by job id.

    Neither those on hold or cancelled, nor those for which too few nodes are in service, nor those
    that come after them.
    """
    orders = this.state.orders
    out = {*orders.held, *orders.cancelled}
    if this.observation.drained or orders.cordoned:
        out |= {job_id for job_id in this.active if count_available_gpus(this, job_id) is not None}
    if not out:
        return this.active
    options = {job_id: job.spec.options for job_id, job in this.active.items()}
    behind = stuck_behind(options, out)
    return {job_id: job for job_id, job in this.active.items() if job_id not in behind}


def count_available_gpus(this: Round, job_id: int) -> int | None:
    """GPUs in service that a job could hold at most, where these are too few for it.

    Those on cordoned nodes count for jobs that hold GPUs only, as no other starts there.

    Args:
        this: The round, predicted.
        job_id: The job, active in it.

    Returns:
        None where it fits; 0 where it runs on none that are in service.
    """
    job, inventory, cordoned = this.active[job_id], this.nodes.inventory, this.state.orders.cordoned
    if cordoned and not job.gpus:
        inventory = this.nodes.without(cordoned)
    if inventory is None:
        return 0
    demand = job.spec.demand
    if not {*job.menu}.isdisjoint(inventory.menu(demand)):
        return None
    pools = zip(inventory.pools, inventory.free, strict=True)
    most = max((free for pool, free in pools if demand.allows(pool.gpu_type)), default=0)
    return most if most < demand.least else 0


def _in_service(this: Round) -> Plan:
    """The plan of the round, with GPUs as they are numbered among the nodes in service."""
    placement = this.plan.placement.items()
    return replace(this.plan, placement={j: this.nodes.numbered(gpus) for j, gpus in placement})


def _interval(this: Round, job_id: int) -> tuple[float, float, float]:
    """Residual run time on the first of its menu: calibrated lower end, point, upper end."""
    job = this.active[job_id]
    time = job.run_time(job.menu[0])
    low, high = this.state.learning.calibration.interval_of(
        job.belief, time, this.state.learning.speed_noise
    )
    return low, time.remaining, high


def _quantile(interval: tuple[float, float, float], level: float) -> float:
    """A residual run time at a level: linear on either side of the point, through 10 and 90 %."""
    low, point, high = interval
    slope = (point - low if level < 0.5 else high - point) / (HELD / 2.0)
    return max(point + (level - 0.5) * slope, LEAST_SECONDS)


def _cuts(job: ActiveJob, round_seconds: float, rng: np.random.Generator) -> list[float]:
    """Draws of what the end of a round leaves of a step: any part of one is as likely."""
    step = min(1.0 / job.rate(job.menu[0]), 0.5 * round_seconds)
    cuts: list[float] = (step * rng.random(PLAYS)).tolist()
    return cuts


def _coming(
    run: Run, this: Round, now: Situation, active: Mapping[int, QueuedJob], rng: np.random.Generator
) -> Iterator[QueuedJob]:
    """Jobs still to come in a play, each like one of the latest that have been seen.

    An array comes as often as a job, with as many tasks as it had.
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
        first = spec.job_id - spec.options.task.place
        together.setdefault(first, []).append((spec, length))
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
    for job_id, (time, at, spec, length) in enumerate(most, start=max(seen, default=0) + 1):
        options = JobOptions(task=Task(place=at))
        belief = Belief(replace(spec, job_id=job_id, arrival_seconds=time, options=options))
        menu = now.inventory.menu_of(spec, spec.batch_size, run.throughput)
        if menu:
            like = ActiveJob(belief, _NOTHING, (), 0, menu, run.throughput)
            set_run_time(like, RunTime(length, length, length, (length,)))
            yield QueuedJob(like, length)


def _starts(times: Sequence[float], clock: float, seconds: float) -> tuple[float, float, float]:
    """Median, and the interval of 80 % nominal coverage, of a waiting job's next start.

    Args:
        times: Starts in the plays.
        clock: The clock.
        seconds: Length of a round; no other start is before the next one's half.
    """
    median = sorted(times)[PLAYS // 2]
    spread = (time + part * seconds for time, part in zip(times, SPREAD, strict=True))
    _, low, high = _held(spread, clock + 0.5 * seconds)
    return median, min(low, median), max(high, median)


def _held(times: Iterable[float], floor: float) -> tuple[float, float, float]:
    """Median, and the interval of 80 % nominal coverage.

    Args:
        times: Times in the plays.
        floor: Least possible time.
    """
    ascending = sorted(times)
    return ascending[PLAYS // 2], max(ascending[LOWEST], floor), ascending[HIGHEST]
