"""Explanation of a decision: why a job runs, waits or was preempted in a round.

The round is solved again from its records, and the answer is rendered as sentences.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from containers.runtime import EventKind
from flows.history.forks import check_own, taken_over
from flows.runs.start import prepare
from predictor.errors import InputError, WarehouseError
from solver.plan import Plan
from tasks.record import RoundRecord
from tasks.replay import Comparison, Recording
from tasks.round import Round, Run, collect, displaced, predict, solve
from warehouse.analytics.questions import Analytics
from warehouse.store.reader import Reader

SHOWN = 6
"""Largest number of jobs or events that are listed."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that runs in the round."""

    job_id: int
    gpus: int
    worth: float | None


@dataclass(frozen=True, slots=True)
class Step:
    """An event of the job and the round that recorded it."""

    round: int
    kind: str
    gpus: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Answer:
    """Why a job has or has no GPUs in a round; `docs/cli.md` explains each field.

    Points in time (`clock`, `start`, `finish`) are in seconds on the run's clock; all other
    seconds are durations. A field is None where the policy computes no such number.
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
    next_round: int | None
    planned_rounds: int
    start_seconds: float | None
    finish_seconds: float | None
    finish_low_seconds: float | None
    finish_high_seconds: float | None
    history: tuple[Step, ...]
    total_gpus: int
    window: int
    tried_again_seconds: float | None
    drained: tuple[int, ...]


def why(job_id: int, warehouse: Path, name: str | None = None, number: int | None = None) -> Answer:
    """Explain the decision about a job in a round.

    Args:
        job_id: The job.
        warehouse: The warehouse that holds its run.
        name: The run; by default the run created last.
        number: The round; by default the last round in which the job was active.

    Raises:
        InputError: There is no such run, job or round, or the job was not active in it.
        WarehouseError: The records are damaged.
    """
    reader = Reader(warehouse)
    name = name or _latest(warehouse)
    start, stored = reader.start(name), reader.records(name)
    header, recorded = start.header, [record for record, _ in stored]
    if job_id not in {spec.job_id for spec in start.workload.specs}:
        raise InputError(f"job {job_id}", f"is not in run {name!r}", "name one of its jobs")
    number = _round(name, job_id, recorded, number)
    check_own(name, header, number)
    run = prepare(start).on(Recording(recorded[number : number + 1]), Comparison(()), name)
    for record, digest in stored[:number]:
        run.follow(record, digest)
    run.state = taken_over(run.state, header.settings)
    held = run.state.leases
    this = Round()
    for step in (collect, predict, solve):
        step(run, this)
    _check_same(name, this, recorded[number])
    history = tuple(_history(job_id, recorded[: number + 1]))
    return _answer(run, this, job_id, number, held, history)


def _latest(warehouse: Path) -> str:
    newest = "SELECT run FROM headers ORDER BY created_at DESC, run DESC LIMIT 1"
    _, rows = Analytics(warehouse).query(newest)
    if not rows:
        raise InputError(str(warehouse), "holds no run", "run shockwave simulate first")
    return str(rows[0][0])


def _round(name: str, job_id: int, recorded: Sequence[RoundRecord], asked: int | None) -> int:
    """The round to explain, in which the job is active."""
    arrived = next(
        (r.round for r in recorded if any(spec.job_id == job_id for spec in r.arrivals)), None
    )
    ended = next((r.round for r in recorded if job_id in r.ended), None)
    if arrived is None:
        raise InputError(
            f"job {job_id}", f"has not arrived by round {len(recorded) - 1}", "ask again later"
        )
    last = len(recorded) - 1 if ended is None else ended - 1
    if asked is None:
        return last
    if not 0 <= asked < len(recorded):
        raise InputError("round", f"run {name!r} has no round {asked}", f"it has {len(recorded)}")
    if not arrived <= asked <= last:
        raise InputError(
            "round",
            f"job {job_id} is not active in round {asked}",
            f"it is from round {arrived} to {last}",
        )
    return asked


def _check_same(name: str, this: Round, record: RoundRecord) -> None:
    """Refuse to explain a decision that differs from the recorded decision."""
    leased = {lease.job_id: lease.gpus for lease in record.leases}
    solved = (dict(this.plan.placement), this.plan.report, this.plan.turns)
    if solved != (leased, record.solve, record.turns):
        raise WarehouseError(
            f"run {name!r}, round {record.round}",
            "the replayed decision differs from the recorded decision",
            f"ask with the version that recorded it; see shockwave replay {name}",
        )


def _history(job_id: int, recorded: Sequence[RoundRecord]) -> Iterator[Step]:
    held: Mapping[int, tuple[int, ...]] = {}
    for record in recorded:
        now = {lease.job_id: lease.gpus for lease in record.leases}
        for event in (*record.finished, *record.events):
            if event.job_id == job_id:
                reason = event.reason
                if event.kind is EventKind.PREEMPTED and not reason:  # of layout 3
                    reason = displaced(event.gpus, held, now)
                yield Step(record.round, event.kind.value, event.gpus, reason)
        held = now


def _answer(
    run: Run,
    this: Round,
    job_id: int,
    number: int,
    held: Mapping[int, tuple[int, ...]],
    history: tuple[Step, ...],
) -> Answer:
    settings, plan, belief = run.header.settings, this.plan, this.state.beliefs[job_id]
    spec, job = belief.spec, this.active[job_id]
    expected = job.run_time(job.own)
    clock = this.observation.clock_seconds
    worth = dict(zip(plan.order, plan.worth, strict=True)) if plan.worth else {}
    gpus = plan.placement.get(job_id, ())
    status = "runs" if gpus else "preempted" if job_id in held else "waits"
    turns = next((turn.rounds for turn in plan.turns if turn.job_id == job_id), ())
    if gpus and 0 not in turns:
        turns = (0, *turns)
    window = settings.window if plan.turns else 1
    ends = [
        _finish(clock, left, turns, window, settings.round_seconds)
        for left in (expected.remaining, expected.low, expected.high)
    ]
    contention = max(1.0, this.state.arrived / settings.gpus)
    total = belief.run_seconds + expected.remaining
    rhos = [
        None if end is None else (end - spec.arrival_seconds) / (contention * total) for end in ends
    ]
    return Answer(
        run=run.name,
        round=number,
        clock_seconds=clock,
        policy=settings.policy,
        job_id=job_id,
        tenant=spec.tenant,
        budget=spec.budget,
        model=spec.model,
        mode=spec.mode.value,
        scale_factor=job.gang,
        status=status,
        gpus=gpus,
        batch_size=belief.batch_size,
        progress=belief.share_done,
        remaining_seconds=expected.remaining,
        low_seconds=expected.low,
        high_seconds=expected.high,
        ftf=rhos[0],
        ftf_low=rhos[1],
        ftf_high=rhos[2],
        weight=next((bid.weight for bid in plan.bids if bid.job_id == job_id), None),
        worth=worth.get(job_id),
        place=plan.order.index(job_id) + 1 if job_id in plan.order else None,
        in_line=len(plan.order),
        cutoff=min((worth[job] for job in plan.placement if job in worth), default=None),
        free_gpus=_free(plan, job_id, settings.gpus),
        price=next(
            (found.price for found in plan.report.prices if found.gpu_type == job.own.gpu_type),
            None,
        )
        if plan.bids
        else None,
        holders=tuple(
            Holder(job, len(plan.placement[job]), worth.get(job))
            for job in sorted(plan.placement, key=lambda job: (-worth.get(job, 0.0), job))
        ),
        next_round=number + turns[0] if turns else None,
        planned_rounds=len(turns),
        start_seconds=clock + turns[0] * settings.round_seconds if turns else None,
        finish_seconds=ends[0],
        finish_low_seconds=ends[1],
        finish_high_seconds=ends[2],
        history=history,
        total_gpus=settings.gpus,
        window=window,
        tried_again_seconds=_tried_again(this.state.backoff.waits.get(job_id, 0.0), clock),
        drained=this.observation.drained,
    )


def _tried_again(waits_until: float, clock: float) -> float | None:
    """When a crashed job may be launched again; None if it may be launched now."""
    return waits_until if waits_until > clock else None


def _finish(
    clock: float, left: float, turns: Sequence[int], window: int, round_seconds: float
) -> float | None:
    """End of a job that runs in its planned rounds, then at their share of the window."""
    if not turns:
        return None
    rounds = left / round_seconds
    whole = int(rounds)
    if rounds <= len(turns):
        if whole == len(turns):
            return clock + (turns[-1] + 1) * round_seconds
        return clock + (turns[whole] + rounds - whole) * round_seconds
    if window <= 1:  # no plan ahead: assumes that the job is never preempted
        return clock + left
    beyond = (rounds - len(turns)) * (window / len(turns))
    return clock + (window + beyond) * round_seconds


def _free(plan: Plan, job_id: int, gpus: int) -> int:
    """GPUs left by the jobs ranked before it."""
    before = plan.order[: plan.order.index(job_id)] if job_id in plan.order else plan.order
    return gpus - sum(len(plan.placement.get(job, ())) for job in before)


def in_words(answer: Answer) -> Iterator[str]:
    """The answer as sentences, one per line."""
    a = answer
    verb = {"runs": "runs", "waits": "waits", "preempted": "was preempted"}[a.status]
    yield f"Job {a.job_id} {verb} in round {a.round} of {a.run}, at {a.clock_seconds:,.0f} s."
    yield (
        f"{a.model}, {a.mode}, {_count(a.scale_factor, 'GPU')}, tenant {a.tenant}, "
        f"budget {a.budget:g}; batch size {a.batch_size}, {a.progress:.0%} of its epochs done, "
        f"{a.remaining_seconds:,.0f} s of run time left "
        f"(80 %: {a.low_seconds:,.0f} to {a.high_seconds:,.0f} s)."
    )
    yield from _standing(a)
    yield from _preempted(a)
    yield from _room(a)
    yield from _plan(a)
    yield from _past(a)


def _standing(a: Answer) -> Iterator[str]:
    if a.drained:
        nodes = ", ".join(map(str, a.drained))
        yield f"Node{'s' * (len(a.drained) > 1)} {nodes} (from 0) did not answer: out of service."
    if a.tried_again_seconds is not None:
        yield f"It crashed, and is tried again at {a.tried_again_seconds:,.0f} s at the earliest."
        return
    if a.place is None:
        yield f"The policy {a.policy} gives it no share of this round."
        return
    line = f"It is number {a.place} of {a.in_line} in line under the policy {a.policy}"
    if a.worth is None:
        yield f"{line}, which ranks jobs without a market."
        return
    weight = "" if a.weight is None else f" (its utility weighs {a.weight:.3g})"
    yield (
        f"{line}: a GPU of this round is worth {a.worth:.4g} to it{weight}, and "
        f"{a.cutoff:.4g} to the job that got in last."
        if a.cutoff is not None
        else f"{line}: a GPU of this round is worth {a.worth:.4g} to it{weight}."
    )
    if a.price is not None:
        yield f"The market prices one more GPU-round of the window at {a.price:.4g}."


def _room(a: Answer) -> Iterator[str]:
    if a.status == "runs":
        held = ", ".join(map(str, a.gpus))
        yield f"It holds GPU{'s' * (len(a.gpus) > 1)} {held}."
        return
    if a.tried_again_seconds is not None:
        return
    busy = sum(holder.gpus for holder in a.holders)
    shown = "; ".join(
        f"job {holder.job_id} ({_count(holder.gpus, 'GPU')}"
        + (f", worth {holder.worth:.4g})" if holder.worth is not None else ")")
        for holder in a.holders[-SHOWN:]
    )
    more = f", {len(a.holders) - SHOWN} before them" if len(a.holders) > SHOWN else ""
    yield (
        f"It needs {_count(a.scale_factor, 'GPU')}; "
        f"{'one was' if a.free_gpus == 1 else f'{max(a.free_gpus, 0)} were'} left when its turn "
        f"came. {busy} of {a.total_gpus} are held, by those in line before it or in the gaps it "
        f"does not fit{more}{'; the last: ' * bool(shown)}{shown}."
    )


def _preempted(a: Answer) -> Iterator[str]:
    """Which jobs displace a job that is preempted in this round, and why."""
    if a.status != "preempted":
        return
    line = f"It is preempted, and {a.history[-1].reason}"
    if a.worth is not None:
        bids = {holder.job_id: holder.worth for holder in a.holders}
        more = [job for job, worth in bids.items() if worth is not None and worth > a.worth]
        line += f": {len(more)} of the {len(bids)} jobs that run bid more than it for this round"
    yield f"{line}."


def _plan(a: Answer) -> Iterator[str]:
    if a.next_round is None:
        yield (
            f"The plan has no round for it within the next {a.window} rounds; "
            "it is made anew every round."
            if a.window > 1
            else f"The policy {a.policy} plans no further than this round."
        )
        return
    assert a.start_seconds is not None
    when = (
        "now"
        if a.next_round == a.round
        else f"in round {a.next_round}, at about {a.start_seconds:,.0f} s"
    )
    rounds = f", {a.planned_rounds} of the next {a.window} rounds" if a.window > 1 else ""
    yield (
        f"The plan lets it run {when}{rounds}; it should end at {a.finish_seconds:,.0f} s "
        f"(80 %: {a.finish_low_seconds:,.0f} to {a.finish_high_seconds:,.0f} s), "
        f"with ρ {a.ftf:.2f} ({a.ftf_low:.2f} to {a.ftf_high:.2f})."
    )


def _past(a: Answer) -> Iterator[str]:
    for step in a.history[-SHOWN:]:
        gpus = f" on GPU{'s' * (len(step.gpus) > 1)} {', '.join(map(str, step.gpus))}"
        if step.kind == EventKind.PREEMPTED.value:
            gpus = ""
        reason = f": {step.reason}" if step.reason else ""
        yield f"Round {step.round}: {step.kind}{gpus}{reason}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
