"""The answer to why a job runs, waits or was preempted: its fields, from a round solved again."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from flows.explain.worths import Holder, Speed, Worths
from predictor.job import JobKind
from solver.inventory import Inventory
from solver.list_scheduling import must_consolidate
from solver.plan import ActiveJob, Plan
from tasks.commands import Orders
from tasks.eligibility import BlockReason
from tasks.rollouts import Progress, expected, first_by, gpus_short, room_by, unwatched
from tasks.round import Round, Run


@dataclass(frozen=True, slots=True)
class Step:
    """An event of the job and the round that recorded it."""

    round: int
    kind: str
    gpus: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A time for which the job held no GPUs, in seconds on the run's clock.

    Its round is the first that gave it none; None where the first after its arrival gave it some.
    """

    from_seconds: float
    to_seconds: float
    round: int | None = None

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.to_seconds - self.from_seconds


@dataclass(frozen=True, slots=True)
class Sharing:
    """The job that shares a job's GPUs, and the job's speed relative to its speed alone on them."""

    job_id: int | None
    speed: float


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of a gang over more nodes than it needs.

    Attributes:
        nodes: Nodes on which it holds GPUs.
        fewest_nodes: Fewest nodes with so many GPUs of the type.
        speed: Its speed relative to that on the fewest nodes.
    """

    nodes: int
    fewest_nodes: int
    speed: float


@dataclass(frozen=True)
class Answer:
    """Why a job has or has no GPUs in a round; `docs/why.md` explains each field.

    Points in time (`clock`, `arrival`, `start`, `finish`) are in seconds on the run's clock; all
    other seconds are durations. A field is None where the policy computes no such number.
    `scale_factor`, the GPUs that its gang needs, has the name that traces, files of jobs, views and
    conditions on jobs have for it; `gpus` are those that it holds.
    """

    run: str
    round: int
    clock_seconds: float
    policy: str
    job_id: int
    tenant: str
    budget: float
    model: str
    mode: str
    scale_factor: int
    arrival_seconds: float
    waits: tuple[Wait, ...]
    status: str
    gpus: tuple[int, ...]
    batch_size: int
    progress: float
    remaining_seconds: float
    low_seconds: float
    high_seconds: float
    ftf: float | None
    ftf_low: float | None
    ftf_high: float | None
    weight: float | None
    worth: float | None
    place: int | None
    in_line: int
    cutoff: float | None
    free_gpus: int
    price: float | None
    holders: tuple[Holder, ...]
    start_seconds: float | None
    start_low_seconds: float | None
    start_high_seconds: float | None
    finish_seconds: float | None
    finish_low_seconds: float | None
    finish_high_seconds: float | None
    history: tuple[Step, ...]
    total_gpus: int
    tried_again_seconds: float | None
    drained: tuple[int, ...]
    held_type: str | None = None
    speeds: tuple[Speed, ...] = ()
    kind: str = JobKind.ADAPTIVE.value
    name: str = ""
    max_seconds: float = 0.0
    reports: bool = False
    order: str = ""
    waits_for: tuple[int, ...] = ()
    waits_for_place: bool = False
    deadline_seconds: float | None = None
    promised: str | None = None
    quota_until_seconds: float | None = None
    problems: tuple[tuple[int, str], ...] = ()
    room_by_seconds: float | None = None
    first_by_seconds: float | None = None
    busy_gpus: int = 0
    shares: Sharing | None = None
    longest: Wait | None = None
    gpus_short: int | None = None
    keeps: str = ""
    cordoned: tuple[int, ...] = ()
    spread: Spread | None = None
    worth_type: str | None = None
    scattered: bool = False
    left: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        """The answer in sentences, one a line."""
        from flows.explain.sentences import in_words

        return "\n".join(in_words(self))


def answer(
    run: Run,
    this: Round,
    job_id: int,
    number: int,
    waits: tuple[Wait, ...],
    history: tuple[Step, ...],
    progress: Progress = unwatched,
) -> Answer:
    """The answer about a job, from its round solved again.

    Args:
        run: The run, before the round.
        this: The round, solved.
        job_id: The job, active in it.
        number: The round's number.
        waits: The times in which it held no GPUs so far.
        history: Events of the job so far, and its end if the round is its last.
        progress: Called before each play of the queue.
    """
    settings, plan, belief = run.header.settings, this.plan, this.state.beliefs[job_id]
    inventory, there = this.state.inventory(run.header), this.state.present_inventory(run.header)
    removed = this.state.orders.removed
    spec, job = belief.spec, this.active[job_id]
    time = job.run_time(job.own)
    low, high = this.state.learning.calibration.interval_of(
        belief, time, this.state.learning.speed_noise
    )
    blocked, within = this.state.blocked.get(job_id), spec.options.deadline_seconds
    clock, by = this.observation.clock_seconds, room_by(run, this).get(job_id)
    first = first_by(this).get(job_id)
    worths = Worths(plan, inventory)
    kind = worths.type_of(job_id)
    places = {job: place for place, job in enumerate(plan.order, 1)}
    gpus, cordoned = plan.placement.get(job_id, ()), _cordoned(this, inventory)
    left = _left(this, job, inventory, cordoned)
    status = "runs" if gpus else "preempted" if job_id in this.state.leases else "waits"
    ahead = expected(run, this, {job_id}, progress).get(job_id)
    ends = (ahead.finish, ahead.finish_low, ahead.finish_high) if ahead else (None, None, None)
    contention = max(1.0, this.state.arrived / settings.reference_gpus)
    total = _isolated(job, inventory, there)
    rhos = [
        (end - spec.arrival_seconds) / (contention * total) if end is not None and total else None
        for end in ends
    ]
    return Answer(
        run=run.name,
        round=number,
        clock_seconds=clock,
        policy=settings.policy,
        job_id=job_id,
        tenant=spec.tenant,
        budget=job.spec.budget,
        model=spec.model,
        mode=spec.mode.value,
        scale_factor=job.gang,
        arrival_seconds=spec.arrival_seconds,
        waits=waits,
        status=status,
        gpus=gpus,
        batch_size=belief.batch_size,
        progress=belief.share_done,
        remaining_seconds=time.remaining,
        low_seconds=low,
        high_seconds=high,
        ftf=rhos[0],
        ftf_low=rhos[1],
        ftf_high=rhos[2],
        weight=next((bid.weight for bid in plan.bids if bid.job_id == job_id), None),
        worth=worths.on(job_id, kind),
        place=places.get(job_id),
        in_line=len(plan.order),
        cutoff=worths.least(kind),
        free_gpus=sum(left.values()),
        price=plan.report.price_of.get(job.own.gpu_type) if plan.bids else None,
        holders=tuple(worths.holders()),
        start_seconds=ahead.start if ahead else None,
        start_low_seconds=ahead.start_low if ahead else None,
        start_high_seconds=ahead.start_high if ahead else None,
        finish_seconds=ends[0],
        finish_low_seconds=ends[1],
        finish_high_seconds=ends[2],
        history=history,
        total_gpus=this.nodes.gpus,
        tried_again_seconds=_tried_again(this.state.backoff.waits.get(job_id, 0.0), clock),
        drained=tuple(node for node in this.observation.drained if node not in removed),
        problems=tuple(
            (p.node, p.problem) for p in this.observation.problems if p.node not in removed
        ),
        busy_gpus=len({gpu for held in plan.placement.values() for gpu in held}),
        shares=_sharing(this, job_id, inventory),
        held_type=inventory.allocation(gpus).gpu_type if gpus else None,
        speeds=worths.speeds(job),
        kind=spec.kind.value,
        name=spec.name,
        max_seconds=spec.max_seconds,
        reports=bool(belief.milestones),
        order=_order(this.state.orders, job_id),
        waits_for=blocked.jobs if blocked else (),
        waits_for_place=blocked is not None and blocked.reason is BlockReason.ARRAY,
        deadline_seconds=spec.arrival_seconds + within if within else None,
        promised=plan.promised.get(job_id),
        room_by_seconds=None if by is None else clock + by,
        first_by_seconds=None if first is None else clock + first,
        gpus_short=gpus_short(this, job_id),
        keeps=_keeps(job, gpus, cordoned) if job_id not in places else "",
        quota_until_seconds=blocked.until_seconds if blocked and blocked.until_seconds else None,
        cordoned=tuple(sorted({inventory.node(gpu) for gpu in cordoned})),
        spread=_spread(job, gpus, inventory),
        worth_type=kind,
        scattered=not gpus and _scattered(this, job, inventory, cordoned),
        left=tuple(left.items()) if inventory.mixed else (),
    )


def _order(orders: Orders, job_id: int) -> str:
    """The order that keeps a job from running; empty if none does."""
    for name, jobs in (("cancelled", orders.cancelled), ("held", orders.held)):
        if job_id in jobs:
            return name
    return "requeued" if job_id in orders.requeued else ""


def _sharing(this: Round, job_id: int, inventory: Inventory) -> Sharing | None:
    """The job that shares a job's GPUs; None if there is none."""
    pair = next((pair for pair in this.plan.pairs if job_id in pair), ())
    for other in pair:
        if other != job_id:
            job, there = this.active[job_id], inventory.allocation(this.plan.placement[job_id])
            rate = job.shared_rate(this.active[other], there)
            return Sharing(other, rate / job.rate(there))
    return None


def _spread(job: ActiveJob, gpus: tuple[int, ...], inventory: Inventory) -> Spread | None:
    """How a gang is spread; None if it is not, or no rates by nodes are known."""
    held = inventory.allocation(gpus) if gpus else None
    few = held and job.on_fewest_nodes(held)
    if not held or not few or held.nodes <= few.nodes or job.rate(held) == job.rate(few):
        return None
    return Spread(held.nodes, few.nodes, job.rate(held) / job.rate(few))


def _isolated(job: ActiveJob, inventory: Inventory, there: Inventory | None) -> float | None:
    """Isolated run time in seconds; on several GPU types, at the mean of its rates by GPUs.

    Args:
        job: The job.
        inventory: All nodes.
        there: The nodes that were not removed.

    Returns:
        None if all nodes of its GPU types were removed.
    """
    if not inventory.mixed:
        return job.belief.run_seconds + job.run_time(job.own).remaining
    first, capacities = job.choices[0], there.capacities if there else {}
    mean = sum(capacities.get(c.gpu_type, 0) * job.rate(c) for c in job.choices)
    if not there or not mean:
        return None
    alone = job.belief.reference_seconds + job.run_time(first).remaining
    return alone * job.rate(first) * there.gpus / mean


def _tried_again(waits_until: float, clock: float) -> float | None:
    """When a job that failed may be launched again; None if it may be launched now."""
    return waits_until if waits_until > clock else None


def _left(
    this: Round, job: ActiveJob, inventory: Inventory, cordoned: frozenset[int]
) -> dict[str, int]:
    """GPUs in service on which it can start, left by jobs ranked before it or that keep theirs.

    By GPU type of its menu. On several types a job stands in line once for each type, and jobs
    ranked before it may come later on another: if there was room at first, the GPUs left in the
    end count.
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
    """GPUs in service that some jobs leave, by node: of each pool of each type of a job's menu."""
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
    """The jobs ranked before a job, or that keep their GPUs."""
    order = plan.order
    before = {*order[: order.index(job_id)]} if job_id in order else {*order}
    return before | (plan.placement.keys() - {*order, job_id})


def _scattered(this: Round, job: ActiveJob, inventory: Inventory, cordoned: frozenset[int]) -> bool:
    """Whether enough GPUs are left for a waiting gang, but not on as few nodes as it requires.

    GPUs are left as in `_left`; on several types, those left in the end.
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


def _cordoned(this: Round, inventory: Inventory) -> frozenset[int]:
    """GPUs in service on which no job starts."""
    nodes = this.state.orders.cordoned - {*this.observation.drained}
    return frozenset(g for n in nodes if n < inventory.nodes for g in inventory.gpus_of(n))


def _keeps(job: ActiveJob, gpus: tuple[int, ...], cordoned: frozenset[int]) -> str:
    """Why a running job that is not in line keeps its GPUs; empty if it runs in promised cells."""
    if not cordoned.isdisjoint(gpus):
        return "cordoned"
    return "not preempted" if gpus and not job.spec.preemptible else ""
