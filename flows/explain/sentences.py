"""Sentences for why a job runs, waits or was preempted in a round."""

from collections.abc import Iterator, Sequence

from containers.runtime import EventKind
from flows.explain.answer import Answer
from flows.explain.worths import Holder, Speed
from predictor.job import JobKind
from warehouse.wording import counted

SHOWN = 6
"""Largest number of jobs or events that are listed. A choice of layout."""

NO_BOUND = (
    "Its wait for cells has no bound: jobs in them keep them until they end, and later jobs of "
    "its tenant that fit are not held back for it."
)

ORDERS = {
    "held": "It is on hold, and waits until it is released: shockwave release.",
    "cancelled": "It is cancelled, and withdrawn at the next round.",
    "requeued": "It was put back in line by an order, and gets no GPUs in this round.",
}
"""Sentences about the orders that keep a job from running."""

KEEPS = {
    "cordoned": "It runs on a cordoned node, and keeps its GPUs there until it ends.",
    "not preempted": "It is not preempted, and keeps its GPUs until it ends.",
}
"""Sentences about jobs that keep their GPUs under any policy."""


def in_words(answer: Answer) -> Iterator[str]:
    """The answer as sentences, one per line."""
    a = answer
    verb = {"runs": "runs", "waits": "waits", "preempted": "was preempted"}[a.status]
    named = f" ({a.name})" * bool(a.name)
    who = f"Job {a.job_id}{named}"
    yield f"{who} {verb} in round {a.round} of {a.run}, at {a.clock_seconds:,.0f} s."
    if a.longest:
        until = f"{a.longest.seconds:,.0f} s, until {a.longest.to_seconds:,.0f} s"
        yield f"It has ended by now; this is the first round of its longest wait, of {until}."
    trains = a.kind == JobKind.ADAPTIVE.value
    done = (
        f"batch size {a.batch_size}, {a.progress:.0%} of its epochs done"
        if trains
        else f"it reports {a.progress:.0%} of its work done"
        if a.reports
        else f"it has held GPUs for {a.progress:.0%} of its limit of {a.max_seconds:,.0f} s"
    )
    yield (
        f"{a.model}, {a.mode if trains else a.kind}, {counted(a.scale_factor, 'GPU')}, "
        f"tenant {a.tenant}, budget {a.budget:g}; {done}, "
        f"{a.remaining_seconds:,.0f} s of run time left "
        f"(80 %: {a.low_seconds:,.0f} to {a.high_seconds:,.0f} s)."
    )
    yield _waited(a)
    yield from _why_it_waited(a)
    yield from _standing(a)
    yield from _preempted(a)
    yield from _room(a)
    yield from _ahead(a)
    yield from _bounds(a)
    yield from _deadline(a)
    yield from _past(a)


def _waited(a: Answer) -> str:
    arrived = f"It arrived at {a.arrival_seconds:,.0f} s"
    if not a.waits:
        return f"{arrived}, and has not waited."
    long = sorted(a.waits, key=lambda wait: -wait.seconds)[:SHOWN]
    shown = ", ".join(
        f"{wait.from_seconds:,.0f} to {wait.to_seconds:,.0f} s"
        + " (for the next round)" * (wait.round is None)
        for wait in a.waits
        if wait in long
    )
    times = f" in {len(a.waits)} parts" if len(a.waits) > 1 else ""
    longest = f", the {SHOWN} longest" if len(a.waits) > SHOWN else ""
    total = sum(wait.seconds for wait in a.waits)
    return f"{arrived}, and has waited for {total:,.0f} s{times} so far{longest}: {shown}."


def _why_it_waited(a: Answer) -> Iterator[str]:
    """How to ask about a round in which it waited, if it does not wait now."""
    waits = [wait for wait in a.waits if wait.round is not None]
    if a.status != "waits" and waits:
        longest = max(waits, key=lambda wait: wait.seconds)
        asked = f"shockwave why {a.job_id} --run {a.run} --round {longest.round}"
        yield f"Why it waited from {longest.from_seconds:,.0f} s on: {asked}"


def _standing(a: Answer) -> Iterator[str]:
    for node, problem in a.problems:
        yield f"Node {node} (from 0) is out of service: {problem}."
    known = {node for node, _ in a.problems}
    if others := [node for node in a.drained if node not in known]:
        yield f"{_nodes(others)} out of service."
    if a.cordoned and a.status != "runs":
        yield f"{_nodes(a.cordoned)} cordoned: no job starts there."
    if a.order:
        yield ORDERS[a.order]
        return
    if a.waits_for:
        yield _others(a)
        return
    if a.quota_until_seconds is not None:
        until = f"{a.quota_until_seconds:,.0f} s"
        yield f"Tenant {a.tenant} has used up its quota of GPU-hours, until {until}."
        return
    if a.tried_again_seconds is not None:
        yield f"It failed, and is tried again at {a.tried_again_seconds:,.0f} s at the earliest."
        return
    if a.promised and a.place is None and a.status == "runs":
        yield f"It runs in cells that its tenant is promised ({a.promised}), whatever others bid."
        return
    if a.promised:
        yield f"It has no cells of its tenant, so it trades with all others: {a.promised}."
        yield NO_BOUND
    if a.keeps:
        yield KEEPS[a.keeps]
        return
    if a.gpus_short is not None:
        return
    if a.place is None:
        if a.status != "runs":
            yield f"The policy {a.policy} has no place in line for it in this round."
        return
    line = f"It is number {a.place} of {a.in_line} in line under the policy {a.policy}"
    if a.worth is None:
        yield f"{line}, which ranks jobs without a market."
        return
    weight = "" if a.weight is None else f" (its utility weighs {a.weight:.3g})"
    there, last = "", "to the job that got in last"
    if a.worth_type:
        there, last = f" on {a.worth_type}", "or more to each job that holds one there"
    least = "" if a.cutoff is None else f", and {a.cutoff:.4g} {last}"
    yield f"{line}: a GPU of this round{there} is worth {a.worth:.4g} to it{weight}{least}."
    alike = [other for other in _before(a) if a.worth_type in (None, other.gpu_type)]
    less = [other for other in alike if other.worth is not None and other.worth < a.worth]
    if less and a.status != "runs":
        before = counted(len(less), "job")
        yield f"The policy puts {before} before it to which a GPU{there} is worth less."
    if a.price is not None:
        priced = [f"{s.price:.4g} on {s.gpu_type}" for s in a.speeds if s.price is not None]
        yield f"The market prices one more GPU-round at {', '.join(priced) or f'{a.price:.4g}'}."


def _nodes(nodes: Sequence[int]) -> str:
    """Nodes as the subject of a sentence, with its verb."""
    several = len(nodes) > 1
    return f"Node{'s' * several} {', '.join(map(str, nodes))} (from 0) {'are' if several else 'is'}"


def _before(a: Answer) -> list[Holder]:
    """The jobs that run and come before it in line."""
    return [other for other in a.holders if a.place and other.place and other.place < a.place]


def _others(a: Answer) -> str:
    """The jobs that it waits for."""
    jobs = f"job{'s' * (len(a.waits_for) > 1)} {', '.join(map(str, a.waits_for[:SHOWN]))}"
    if len(a.waits_for) > SHOWN:
        jobs += f" and {len(a.waits_for) - SHOWN} more"
    if not a.waits_for_place:
        return f"It starts after {jobs}, and is cancelled if one of them does not end well."
    return f"Its array lets {len(a.waits_for)} of its tasks hold GPUs at a time: {jobs} go first."


def _room(a: Answer) -> Iterator[str]:
    if a.status == "runs":
        held = ", ".join(map(str, a.gpus))
        there = next((speed for speed in a.speeds if speed.gpu_type == a.held_type), None)
        kind = ""
        if there:
            fastest = a.speeds[0].gpu_type
            slower = f", at {there.speed:.2f} of its speed on {fastest}"
            kind = f" ({there.gpu_type}{slower * (there.gpu_type != fastest)})"
        yield f"It holds GPU{'s' * (len(a.gpus) > 1)} {held}{kind}."
        if a.spread:
            fewest = counted(a.spread.fewest_nodes, "node")
            yield (
                f"It is spread over {a.spread.nodes} nodes where {fewest} would do, "
                f"at {a.spread.speed:.2f} of its speed on {a.spread.fewest_nodes}."
            )
        if a.shares:
            other = _job(a.shares.job_id)
            yield f"It shares them with {other}, at {a.shares.speed:.2f} of its speed alone."
        return
    if a.tried_again_seconds is not None or a.order or a.waits_for or a.quota_until_seconds:
        return
    if a.gpus_short is not None:
        return
    if a.speeds:
        best, *others = a.speeds
        offer = f" ({_offer(best)})" if _offer(best) else ""
        rest = ", ".join(
            f"{speed.gpu_type} would give {speed.speed:.2f} of its speed there"
            + (f", {_offer(speed)}" if _offer(speed) else "")
            for speed in others
        )
        yield f"It waits for {best.gpu_type}{offer}: {rest}."
    shown = "; ".join(
        f"{_job(holder.job_id)} ({_held(holder)}"
        + (f", worth {holder.worth:.4g})" if holder.worth is not None else ")")
        for holder in a.holders[-SHOWN:]
    )
    more = f", {len(a.holders) - SHOWN} before them" if len(a.holders) > SHOWN else ""
    by = "by all others" if a.place is None else "for it" if a.left else "when its turn came"
    who = ", by those in line before it or in the gaps it does not fit" * (a.place is not None)
    few, none = " on as few nodes as hold so many", ", but not on so few nodes"
    yield (
        f"It needs {counted(a.scale_factor, 'GPU')}{few * a.scattered}; "
        f"{_left(a)} left {by}{none * a.scattered}. "
        f"{a.busy_gpus} of {a.total_gpus} are held{who}{more}{'; the last: ' * bool(shown)}{shown}."
    )


def _held(holder: Holder) -> str:
    """The GPUs that a job holds, by their type if there are several."""
    return f"{holder.gpus} {holder.gpu_type}" if holder.gpu_type else counted(holder.gpus, "GPU")


def _left(a: Answer) -> str:
    """The GPUs that are left, by type if there are several, as a subject with its verb."""
    if not a.left:
        return "one was" if a.free_gpus == 1 else f"{max(a.free_gpus, 0)} were"
    some = [f"{gpus} {kind}" for kind, gpus in a.left if gpus > 0]
    *others, last = some or [kind for kind, _ in a.left]
    several = sum(max(gpus, 0) for _, gpus in a.left) > 1
    shown = f"{', '.join(others)} {'and' if some else 'or'} {last}" if others else last
    return f"{'' if some else 'no '}{shown} {'were' if several else 'was'}"


def _offer(there: Speed) -> str:
    """What a GPU type is worth to a job against its price; empty without a market."""
    if there.price is None or there.worth is None:
        return ""
    return f"worth {'less than' if there.worth < there.price else 'at least'} its price"


def _job(job_id: int | None) -> str:
    return "a job of another tenant" if job_id is None else f"job {job_id}"


def _preempted(a: Answer) -> Iterator[str]:
    """Which jobs displace a job that is preempted in this round, and why."""
    if a.status != "preempted":
        return
    preempted = (step for step in a.history if (step.round, step.kind) == (a.round, a.status))
    line = f"It is preempted, and {next(preempted).reason}"
    if a.worth is not None:
        before = len(_before(a))
        come = "comes" if before == 1 else "come"
        line += f": {before} of {counted(len(a.holders), 'running job')} {come} before it in line"
    yield f"{line}."


def _too_few(a: Answer) -> str:
    """The GPUs that have to come into service before a job can run."""
    out = (*a.drained, *a.cordoned)
    shown = ", ".join(map(str, out[:SHOWN])) + ", …" * (len(out) > SHOWN)
    ailing = {node for node, _ in a.problems}
    back = next((node for node in out if node not in ailing), None)
    several = len(out) > 1
    nodes = f"until node{'s' * several} {shown} {'are' if several else 'is'} back"
    how = "" if back is None else f" (shockwave node uncordon {back})"
    until = f"{nodes}{how}, or others are added" if out else "until nodes are added"
    needed = counted(a.scale_factor, "GPU")
    where = "in service and not cordoned" if a.cordoned else "in service"
    there = f"{a.gpus_short} {'is' if a.gpus_short == 1 else 'are'} {where}"
    return f"It needs {needed}, and only {there}: it cannot run {until}."


def _ahead(a: Answer) -> Iterator[str]:
    if a.gpus_short is not None:
        yield _too_few(a)
        return
    if a.start_seconds is None or a.finish_seconds is None:
        if a.order not in ("held", "cancelled"):
            yield f"When it will run under the policy {a.policy} cannot be predicted."
        return
    start = (
        ""
        if a.status == "runs"
        else f"start at about {a.start_seconds:,.0f} s "
        f"(80 %: {a.start_low_seconds:,.0f} to {a.start_high_seconds:,.0f} s) and "
    )
    yield (
        f"It should {start}end at about {a.finish_seconds:,.0f} s "
        f"(80 %: {a.finish_low_seconds:,.0f} to {a.finish_high_seconds:,.0f} s), "
        f"with ρ {a.ftf:.2f} ({a.ftf_low:.2f} to {a.ftf_high:.2f})."
    )


def _bounds(a: Answer) -> Iterator[str]:
    """The bounds on its postponement."""
    if a.room_by_seconds is not None:
        yield (
            "Jobs that are not preempted give way to it "
            f"by {a.room_by_seconds:,.0f} s at the latest, whatever arrives."
        )
    if a.first_by_seconds is not None:
        at = f"{a.first_by_seconds:,.0f} s"
        since = a.first_by_seconds <= a.clock_seconds
        yield (
            ("It is overdue and goes" if since else f"At the present load it goes from {at} on")
            + " before all others: whatever arrives, it "
            + ("" if since else "then ")
            + "waits only for jobs that were overdue before it, and for those that keep their GPUs."
        )


def _deadline(a: Answer) -> Iterator[str]:
    if a.deadline_seconds is None:
        return
    line = f"It is to end by {a.deadline_seconds:,.0f} s"
    low, high = a.finish_low_seconds, a.finish_high_seconds
    if a.deadline_seconds < a.clock_seconds:
        yield f"{line}, which is over."
    elif low is None or high is None:
        yield f"{line}."
    elif high <= a.deadline_seconds:
        yield f"{line}, and should."
    else:
        yield f"{line}, and {'may not' if low <= a.deadline_seconds else 'should not'}."


def _past(a: Answer) -> Iterator[str]:
    for step in a.history[-SHOWN:]:
        gpus = f" on GPU{'s' * (len(step.gpus) > 1)} {', '.join(map(str, step.gpus))}"
        if step.kind == EventKind.PREEMPTED.value or not step.gpus:
            gpus = ""
        reason = f": {step.reason}" if step.reason else ""
        yield f"Round {step.round}: {step.kind}{gpus}{reason}."
