"""Explain why a job runs, waits or was preempted, from a round solved again."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from flows.explain.facts import (
    Facts,
    GangSpread,
    GpuSupply,
    Holding,
    JobFacts,
    Line,
    Obstacles,
    Prospects,
    Sharing,
    Step,
    Unforecast,
    Wait,
)
from flows.explain.sentences import describe_answer
from flows.explain.worths import Worths
from solver.inventory import Inventory
from solver.list_scheduling import must_consolidate
from solver.plan import ActiveJob, Plan
from tasks.commands import Orders
from tasks.eligibility import BlockReason
from tasks.rollouts import (
    ExpectedTimes,
    Predicted,
    Progress,
    count_available_gpus,
    forecast_times,
    ignore_progress,
    seconds_to_priority,
    seconds_to_reservation,
)
from tasks.round import Round
from tasks.run import Run


class Answer(Facts):
    """Why a job holds GPUs in a round or not; its `str` is the answer in sentences."""

    def __str__(self) -> str:
        """Return the answer as sentences, one per line."""
        return "\n".join(describe_answer(self))


@dataclass(frozen=True, slots=True)
class JobForecast:
    """What is expected of a job.

    Attributes:
        times: When it should start and end; None without a forecast.
        made_seconds: Start of the forecast's round on the run's clock.
        missing: Why there is no forecast.
    """

    times: ExpectedTimes | None
    made_seconds: float
    missing: Unforecast = Unforecast.UNPREDICTABLE


def forecast_job(
    run: Run, this: Round, job_id: int, progress: Progress = ignore_progress
) -> JobForecast:
    """Forecast a job of a solved round; `progress` is called before each simulation."""
    times = forecast_times(run, this, {job_id}, progress).get(job_id)
    return JobForecast(times, this.observation.clock_seconds)


def explain(
    run: Run,
    this: Round,
    job_id: int,
    number: int,
    waits: tuple[Wait, ...],
    history: tuple[Step, ...],
    ahead: JobForecast,
) -> Answer:
    """Explain the decision about a job in a round that was solved again.

    Args:
        run: The run, before the round.
        this: The round, solved again.
        job_id: The job, active in the round.
        number: The round's number.
        waits: The job's periods without GPUs so far.
        history: The job's events so far, and its end if the round is its last.
        ahead: What is expected of the job.
    """
    inventory = this.state.inventory(run.header)
    job, gpus = this.active[job_id], this.plan.placement.get(job_id, ())
    cordoned = _cordoned(this, inventory, job.spec.tenant)
    return Answer(
        run=run.name,
        round=number,
        clock_seconds=this.observation.clock_seconds,
        policy=run.header.settings.policy,
        status="runs" if gpus else "preempted" if job_id in this.state.leases else "waits",
        job=_job(this, job),
        holding=_holding(this, job, gpus, inventory),
        obstacles=_obstacles(this, job, inventory, cordoned),
        line=_line(this, job, inventory),
        supply=_supply(this, job, inventory, cordoned),
        prospects=_prospects(run, this, job_id, ahead),
        waits=waits,
        history=history,
    )


def _job(this: Round, job: ActiveJob) -> JobFacts:
    belief = this.state.beliefs[job.job_id]
    spec, within = belief.spec, belief.spec.options.deadline_seconds
    time = job.run_time(job.own)
    learning = this.state.learning
    interval = learning.calibration.interval_of(belief, time, learning.speed_noise)
    return JobFacts(
        job_id=job.job_id,
        name=spec.name,
        kind=spec.kind.value,
        tenant=spec.tenant,
        budget=job.spec.budget,
        model=spec.model,
        mode=spec.mode.value,
        scale_factor=job.gang,
        max_seconds=spec.max_seconds,
        arrival_seconds=spec.arrival_seconds,
        deadline_seconds=spec.arrival_seconds + within if within else None,
        batch_size=belief.batch_size,
        progress=belief.share_done,
        reports=bool(belief.milestones),
        remaining_seconds=Predicted(time.remaining, *interval),
    )


def _holding(
    this: Round,
    job: ActiveJob,
    gpus: tuple[int, ...],
    inventory: Inventory,
) -> Holding:
    return Holding(
        gpus=gpus,
        gpu_type=inventory.allocation(gpus).gpu_type if gpus else None,
        shares=_sharing(this, job.job_id, inventory),
        spread=_spread(job, gpus, inventory),
        keeps="" if job.job_id in this.plan.order else _keeps(this, job, gpus, inventory),
    )


def _obstacles(
    this: Round, job: ActiveJob, inventory: Inventory, cordoned: frozenset[int]
) -> Obstacles:
    blocked = this.state.blocked.get(job.job_id)
    retry = this.state.backoff.waits.get(job.job_id, 0.0)
    waits = job.job_id not in this.plan.placement
    return Obstacles(
        order=_order(this.state.orders, job.job_id),
        jobs=blocked.jobs if blocked else (),
        by_array=blocked is not None and blocked.reason is BlockReason.ARRAY,
        retry_seconds=retry if retry > this.observation.clock_seconds else None,
        quota_until_seconds=blocked.until_seconds if blocked and blocked.until_seconds else None,
        gpus_short=count_available_gpus(this, job.job_id),
        scattered=waits and _scattered(this, job, inventory, cordoned),
    )


def _line(this: Round, job: ActiveJob, inventory: Inventory) -> Line:
    plan, worths = this.plan, Worths(this.plan, inventory)
    kind = worths.type_of(job.job_id)
    places = {other: place for place, other in enumerate(plan.order, 1)}
    return Line(
        place=places.get(job.job_id),
        length=len(plan.order),
        worth=worths.on(job.job_id, kind),
        worth_type=kind,
        weight=next((bid.weight for bid in plan.bids if bid.job_id == job.job_id), None),
        cutoff=worths.least(kind),
        price=plan.report.price_of.get(job.own.gpu_type) if plan.bids else None,
        speeds=worths.speeds(job),
        holders=tuple(worths.holders()),
        promised=plan.promised.get(job.job_id),
        wider=worths.wider(job.job_id),
    )


def _supply(
    this: Round, job: ActiveJob, inventory: Inventory, cordoned: frozenset[int]
) -> GpuSupply:
    removed, left = this.state.orders.removed, _left(this, job, inventory, cordoned)
    seen = this.observation
    return GpuSupply(
        total=this.nodes.gpus,
        busy=len({gpu for held in this.plan.placement.values() for gpu in held}),
        free=sum(left.values()),
        free_by_type=tuple(left.items()) if inventory.mixed else (),
        drained=tuple(node for node in seen.drained if node not in removed),
        cordoned=tuple(sorted({inventory.node(gpu) for gpu in cordoned})),
        problems=tuple((p.node, p.problem) for p in seen.problems if p.node not in removed),
        windows=tuple(
            (window.node, window.words)
            for window in this.state.orders.windows
            if window.is_open(seen.clock_seconds)
        ),
    )


def _prospects(run: Run, this: Round, job_id: int, ahead: JobForecast) -> Prospects:
    clock, times = this.observation.clock_seconds, ahead.times
    by, first = seconds_to_reservation(run, this).get(job_id), seconds_to_priority(this).get(job_id)
    return Prospects(
        forecast_seconds=ahead.made_seconds if times else None,
        missing=None if times else ahead.missing,
        start_seconds=times.start if times else None,
        finish_seconds=times.finish if times else None,
        fair_finish_seconds=times.fair_finish if times else None,
        rho=times.rho if times else None,
        freed_by_seconds=None if by is None else clock + by,
        overdue_from_seconds=None if first is None else clock + first,
    )


def _order(orders: Orders, job_id: int) -> str:
    """Return the order that keeps a job from running; empty if none does."""
    for name, jobs in (("cancelled", orders.cancelled), ("held", orders.held)):
        if job_id in jobs:
            return name
    return "requeued" if job_id in orders.requeued else ""


def _sharing(this: Round, job_id: int, inventory: Inventory) -> Sharing | None:
    pair = next((pair for pair in this.plan.pairs if job_id in pair), ())
    for other in pair:
        if other != job_id:
            job, there = this.active[job_id], inventory.allocation(this.plan.placement[job_id])
            rate = job.shared_rate(this.active[other], there)
            return Sharing(other, rate / job.rate(there))
    return None


def _spread(job: ActiveJob, gpus: tuple[int, ...], inventory: Inventory) -> GangSpread | None:
    """Return how a gang is spread; None if it is not spread, or if spreading does not slow it."""
    held = inventory.allocation(gpus) if gpus else None
    few = held and job.on_fewest_nodes(held)
    if not held or not few or held.nodes <= few.nodes or job.rate(held) == job.rate(few):
        return None
    return GangSpread(held.nodes, few.nodes, job.rate(held) / job.rate(few))


def _left(
    this: Round, job: ActiveJob, inventory: Inventory, cordoned: frozenset[int]
) -> dict[str, int]:
    """Count the GPUs in service, by type of the job's menu, that earlier jobs leave to a job.

    Earlier jobs are those ranked before it and those that keep their GPUs. On several types, a job
    stands in line once for each type, so a job ranked before it may still take GPUs of another type
    later. If a type had enough GPUs at first, its count is therefore that at the end of the round.
    """

    def left_by(jobs: Iterable[int]) -> dict[str, int]:
        idle = _idle(this, job, inventory, cordoned, jobs)
        return {kind: sum(pool.total() for pool in pools) for kind, pools in idle.items()}

    placement, first = this.plan.placement, left_by(_before(this.plan, job.job_id))
    if not inventory.mixed or job.job_id in placement:
        return first
    end = left_by(placement)
    return {kind: gpus if gpus < job.gang else end[kind] for kind, gpus in first.items()}


def _idle(
    this: Round,
    job: ActiveJob,
    inventory: Inventory,
    cordoned: frozenset[int],
    jobs: Iterable[int],
) -> dict[str, list[Counter[int]]]:
    """Count the GPUs that `jobs` leave, by node, for each pool of each type of a job's menu.

    Only GPUs in service and not cordoned count.
    """
    out = (node for node in this.observation.drained if node < inventory.nodes)
    taken = cordoned.union(
        *(this.plan.placement.get(other, ()) for other in jobs),
        *(inventory.gpus_of(node) for node in out),
    )
    return {
        kind: [
            Counter(inventory.node(gpu) for gpu in inventory.gpus_in(number) if gpu not in taken)
            for number in inventory.pools_of.get(kind, ())
        ]
        for kind in dict.fromkeys(choice.gpu_type for choice in job.choices)
    }


def _before(plan: Plan, job_id: int) -> set[int]:
    """Return the jobs ranked before a job, and those outside the line that keep their GPUs."""
    order = plan.order
    before = {*order[: order.index(job_id)]} if job_id in order else {*order}
    return before | (plan.placement.keys() - {*order, job_id})


def _scattered(this: Round, job: ActiveJob, inventory: Inventory, cordoned: frozenset[int]) -> bool:
    """Return whether a waiting gang finds enough GPUs, but only on more nodes than it accepts.

    GPUs are counted as in `_left`; on several types, at the end of the round.
    """
    before = this.plan.placement if inventory.mixed else _before(this.plan, job.job_id)
    idle, enough = _idle(this, job, inventory, cordoned, before), False
    for few in job.choices:
        pools = idle[few.gpu_type]
        if sum(pool.total() for pool in pools) < few.gpus:
            continue
        most = max(sum(gpus for _, gpus in pool.most_common(few.nodes)) for pool in pools)
        if most >= few.gpus or not must_consolidate(job, few):
            return False
        enough = True
    return enough


def _cordoned(this: Round, inventory: Inventory, tenant: str) -> frozenset[int]:
    """Return the GPUs in service on nodes that are cordoned, or set aside from a tenant's jobs."""
    closed = this.state.orders.closed_to(tenant, this.observation.clock_seconds)
    nodes = closed - {*this.observation.drained}
    return frozenset(g for n in nodes if n < inventory.nodes for g in inventory.gpus_of(n))


def _keeps(this: Round, job: ActiveJob, gpus: tuple[int, ...], inventory: Inventory) -> str:
    nodes, orders = inventory.nodes_of(gpus), this.state.orders
    if not orders.cordoned.isdisjoint(nodes):
        return "cordoned"
    if gpus and not job.spec.preemptible:
        return "not preempted"
    clock, tenant = this.observation.clock_seconds, job.spec.tenant
    own = (w.node for w in orders.windows if w.tenant == tenant and w.is_open(clock))
    return "" if nodes.isdisjoint(own) else "reserved"
