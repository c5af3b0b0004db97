"""Put the facts about a job's decision into sentences."""

from collections.abc import Iterator, Sequence

from containers.runtime import EventKind
from flows.explain.facts import Facts, Holding, Line, Unforecast
from flows.explain.worths import GpuHolder, Speed
from predictor.job import JobKind
from tasks.rollouts import Predicted
from warehouse.wording import counted

SHOWN = 6
"""Most jobs or events to list. A choice of layout."""

NO_BOUND = (
    "Its wait for cells has no bound: jobs in them keep them until they end, and later jobs of "
    "its tenant that fit may start before it."
)

ORDERS = {
    "held": "It is on hold until it is released: shockwave job release.",
    "cancelled": "It is cancelled, and will be withdrawn at the next round.",
    "requeued": "An order put it back in line; it gets no GPUs in this round.",
}
"""Sentences about the orders that keep a job from running."""

KEEPS = {
    "cordoned": "It runs on a cordoned node, and keeps its GPUs there until it ends.",
    "reserved": "It runs on nodes that are reserved for its tenant.",
    "not preempted": "It is not preempted, and keeps its GPUs until it ends.",
}
"""Sentences about jobs that keep their GPUs under any policy."""


def describe_answer(a: Facts) -> Iterator[str]:
    """Yield the answer as sentences, one per line."""
    yield from _describe_round(a)
    yield _describe_job(a)
    yield from _describe_waits(a)
    yield from _describe_nodes(a)
    obstacle = _describe_obstacle(a)
    if obstacle:
        yield obstacle
    elif a.obstacles.gpus_short is None:
        yield from _describe_line(a)
    yield from _describe_preemption(a)
    if a.status == "runs":
        yield from _describe_holding(a.holding, a.line)
    elif not obstacle and a.obstacles.gpus_short is None:
        yield from _describe_supply(a)
    yield from _describe_prospects(a)
    yield from _describe_deadline(a)
    yield from _describe_history(a)


def _describe_round(a: Facts) -> Iterator[str]:
    job = f"Job {a.job.job_id}" + f" ({a.job.name})" * bool(a.job.name)
    when = f"round {a.round} of {a.run}, at {_s(a.clock_seconds)}"
    if not a.end:
        verb = {"runs": "runs", "waits": "waits", "preempted": "was preempted"}[a.status]
        yield f"{job} {verb} in {when}."
        return
    yield f"{job} has ended: {a.end.kind} at {_s(a.end.at_seconds)}."
    if a.longest:
        wait = f"{_s(a.longest.seconds)}, until {_s(a.longest.to_seconds)}"
        yield f"Its longest wait was {wait}. It began in {when}, when this was so:"
    else:
        verb = {"runs": "ran", "waits": "waited", "preempted": "was preempted"}[a.status]
        yield f"It {verb} in its last round, {when}, when this was so:"


def _s(seconds: float) -> str:
    return f"{seconds:,.0f} s"


def _interval(value: Predicted) -> str:
    return f"{_s(value.median)} (80 %: {value.low:,.0f} to {_s(value.high)})"


def _name(kind: str, numbers: Sequence[int]) -> str:
    """Return a list such as `jobs 1, 2`; numbers beyond `SHOWN` are only counted."""
    more = f" and {len(numbers) - SHOWN} more" * (len(numbers) > SHOWN)
    return f"{kind}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:SHOWN]))}{more}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _describe_job(a: Facts) -> str:
    job = a.job
    trains = job.kind == JobKind.ADAPTIVE.value
    done = f"it has held GPUs for {job.progress:.0%} of its limit of {_s(job.max_seconds)}"
    if trains:
        done = f"batch size {job.batch_size}, {job.progress:.0%} of its epochs done"
    elif job.reports:
        done = f"it reports {job.progress:.0%} of its work done"
    left = job.remaining_seconds
    return (
        f"{job.model}, {job.mode if trains else job.kind}, {counted(job.scale_factor, 'GPU')}, "
        f"tenant {job.tenant}, budget {job.budget:g}; {done}, {_s(left.median)} of run time left "
        f"(80 %: {left.low:,.0f} to {_s(left.high)})."
    )


def _describe_waits(a: Facts) -> Iterator[str]:
    """Yield the job's waits and, if it holds GPUs, the command that explains the longest wait."""
    arrived = f"It arrived at {_s(a.job.arrival_seconds)}"
    if not a.waits:
        yield f"{arrived}, and has not waited."
        return
    by_length = sorted(a.waits, key=lambda wait: -wait.seconds)
    shown = ", ".join(
        f"{wait.from_seconds:,.0f} to {_s(wait.to_seconds)}"
        + " (for the next round)" * (wait.round is None)
        for wait in a.waits
        if wait in by_length[:SHOWN]
    )
    times = f" in {len(a.waits)} parts" * (len(a.waits) > 1)
    longest = f", the {SHOWN} longest" * (len(a.waits) > SHOWN)
    total = _s(sum(wait.seconds for wait in a.waits))
    yield f"{arrived}, and has waited for {total}{times} so far{longest}: {shown}."
    explained = next((wait for wait in by_length if wait.round is not None), None)
    if a.status != "waits" and explained:
        command = f"shockwave why {a.job.job_id} --run {a.run} --round {explained.round}"
        yield f"Why it waited from {_s(explained.from_seconds)} on: {command}"


def _describe_nodes(a: Facts) -> Iterator[str]:
    """Yield the nodes on which no job starts."""
    supply = a.supply
    for node, problem in supply.problems:
        yield f"Node {node} (from 0) is out of service: {problem}."
    known = {node for node, _ in supply.problems}
    if others := [node for node in supply.drained if node not in known]:
        yield f"{_name('Node', others)} (from 0) {_are(len(others))} out of service."
    for node, words in supply.windows if a.status != "runs" else ():
        yield f"Node {node} (from 0) is {words}."
    aside = {node for node, _ in supply.windows}
    cordoned = [node for node in supply.cordoned if node not in aside]
    if cordoned and a.status != "runs":
        nodes = f"{_name('Node', cordoned)} (from 0)"
        yield f"{nodes} {_are(len(cordoned))} cordoned: no job starts there."


def _describe_obstacle(a: Facts) -> str:
    """Return what keeps a job from running, whatever its place in line; empty if nothing does."""
    found = a.obstacles
    if found.order:
        return ORDERS[found.order]
    if found.jobs and found.by_array:
        first = f"{_name('job', found.jobs)} go first"
        return f"Its array lets {len(found.jobs)} of its tasks hold GPUs at a time: {first}."
    if found.jobs:
        return f"It starts after {_name('job', found.jobs)}, and is cancelled if one of them fails."
    if found.quota_until_seconds is not None:
        until = _s(found.quota_until_seconds)
        return f"Tenant {a.job.tenant} has used up its quota of GPU-hours until {until}."
    if found.retry_seconds is not None:
        return f"It failed, and is tried again at {_s(found.retry_seconds)} at the earliest."
    return ""


def _describe_line(a: Facts) -> Iterator[str]:
    """Yield the job's place in line, and the reason."""
    line = a.line
    if line.promised and line.place is None and a.status == "runs":
        yield f"It runs in cells promised to its tenant ({line.promised}), whatever others bid."
        return
    if line.promised:
        yield f"It has no cells of its tenant, so it competes with all jobs: {line.promised}."
        yield NO_BOUND
    if a.holding.keeps:
        yield KEEPS[a.holding.keeps]
        return
    if line.place is None:
        if a.status != "runs":
            yield f"The policy {a.policy} has no place in line for it in this round."
        return
    place = f"It is number {line.place} of {line.length} in line under the policy {a.policy}"
    if line.worth is None:
        yield f"{place}, which ranks jobs without a market."
        return
    weight = "" if line.weight is None else f" (utility weight {line.weight:.3g})"
    there, last = "", "to the last job that got GPUs"
    if line.worth_type:
        there, last = f" on {line.worth_type}", "or more to each job that holds one there"
    least = "" if line.cutoff is None else f", and {line.cutoff:.4g} {last}"
    yield f"{place}: a GPU of this round{there} is worth {line.worth:.4g} to it{weight}{least}."
    alike = [other for other in line.before if line.worth_type in (None, other.gpu_type)]
    less = [other for other in alike if other.worth is not None and other.worth < line.worth]
    if less and a.status != "runs":
        before = counted(len(less), "job")
        yield f"The policy puts {before} before it to which a GPU{there} is worth less."
    if line.price is not None:
        priced = [f"{s.price:.4g} on {s.gpu_type}" for s in line.speeds if s.price is not None]
        yield f"The market prices one more GPU-round at {', '.join(priced) or f'{line.price:.4g}'}."


def _describe_holding(held: Holding, line: Line) -> Iterator[str]:
    kind = ""
    if there := next((speed for speed in line.speeds if speed.gpu_type == held.gpu_type), None):
        fastest = line.speeds[0].gpu_type
        slower = f", at {there.speed:.2f} of its speed on {fastest}"
        kind = f" ({there.gpu_type}{slower * (there.gpu_type != fastest)})"
    yield f"It holds GPU{'s' * (len(held.gpus) > 1)} {', '.join(map(str, held.gpus))}{kind}."
    if wider := line.wider:
        gain = f"are worth {wider.gain:.4g}" if wider.gain > 0.0 else "are worth nothing"
        yield (
            f"It runs on {len(held.gpus)}, not {wider.gpus}: {wider.gpus - len(held.gpus)} more "
            f"{gain} to it in this round, and {wider.price:.4g} at the market's price."
        )
    if held.spread:
        fewest = counted(held.spread.fewest_nodes, "node")
        yield (
            f"It is spread over {held.spread.nodes} nodes where {fewest} would do, "
            f"at {held.spread.speed:.2f} of its speed on {held.spread.fewest_nodes}."
        )
    if held.shares:
        other = _job(held.shares.job_id)
        yield f"It shares them with {other}, at {held.shares.speed:.2f} of its speed alone."


def _describe_supply(a: Facts) -> Iterator[str]:
    """Yield the GPUs for which a job waits, those left to it, and the jobs that hold the others."""
    line, supply = a.line, a.supply
    if line.speeds:
        best, *others = line.speeds
        rest = ", ".join(
            f"{speed.gpu_type} would give {speed.speed:.2f} of its speed there"
            + _offer(speed, ", {}")
            for speed in others
        )
        yield f"It waits for {best.gpu_type}{_offer(best, ' ({})')}: {rest}."
    shown = "; ".join(
        f"{_job(holder.job_id)} ({_held(holder)}"
        + (f", worth {holder.worth:.4g})" if holder.worth is not None else ")")
        for holder in line.holders[-SHOWN:]
    )
    more = f", {len(line.holders) - SHOWN} before them" if len(line.holders) > SHOWN else ""
    when = "for it" if supply.free_by_type else "when its turn came"
    by = "by all others" if line.place is None else when
    who = ", by jobs before it in line or in gaps too small for it" * (line.place is not None)
    few, none = " on as few nodes as can hold them", ", but on too many nodes"
    scattered = a.obstacles.scattered
    yield (
        f"It needs {counted(a.job.scale_factor, 'GPU')}{few * scattered}; "
        f"{_left(a)} left {by}{none * scattered}. "
        f"{supply.busy} of {supply.total} are held{who}{more}{'; the last: ' * bool(shown)}{shown}."
    )


def _held(holder: GpuHolder) -> str:
    return f"{holder.gpus} {holder.gpu_type}" if holder.gpu_type else counted(holder.gpus, "GPU")


def _left(a: Facts) -> str:
    """Return the GPUs left as subject and verb, by type on a cluster of several types."""
    free, by_type = a.supply.free, a.supply.free_by_type
    if not by_type:
        return "one was" if free == 1 else f"{max(free, 0)} were"
    some = [f"{gpus} {kind}" for kind, gpus in by_type if gpus > 0]
    *others, last = some or [kind for kind, _ in by_type]
    several = sum(max(gpus, 0) for _, gpus in by_type) > 1
    shown = f"{', '.join(others)} {'and' if some else 'or'} {last}" if others else last
    return f"{'' if some else 'no '}{shown} {'were' if several else 'was'}"


def _offer(there: Speed, form: str) -> str:
    """Compare the worth of a GPU type with its price; empty without a market."""
    if there.price is None or there.worth is None:
        return ""
    compared = "less than" if there.worth < there.price else "at least"
    return form.format(f"worth {compared} its price")


def _job(job_id: int | None) -> str:
    return "a job of another tenant" if job_id is None else f"job {job_id}"


def _describe_preemption(a: Facts) -> Iterator[str]:
    """Yield why a job is preempted, and how many running jobs are ahead of it."""
    if a.status != "preempted":
        return
    preempted = (step for step in a.history if (step.round, step.kind) == (a.round, a.status))
    by = " by that order" * bool(a.obstacles.order)
    sentence = f"It is preempted{by}, and {next(preempted).reason}"
    if a.line.worth is not None:
        before = len(a.line.before)
        come = "comes" if before == 1 else "come"
        running = counted(len(a.line.holders), "running job")
        sentence += f": {before} of {running} {come} before it in line"
    yield f"{sentence}."


def _too_few(a: Facts) -> str:
    """Say how many GPUs must come into service before a job can run."""
    out = (*a.supply.drained, *a.supply.cordoned)
    ailing = {node for node, _ in (*a.supply.problems, *a.supply.windows)}
    until = "until nodes are added"
    if out:
        back = next(
            (f" (shockwave node uncordon {node})" for node in out if node not in ailing), ""
        )
        until = f"until {_name('node', out)} {_are(len(out))} back{back}, or others are added"
    short = a.obstacles.gpus_short or 0
    where = "in service" + " and not cordoned" * bool(a.supply.cordoned)
    needed = counted(a.job.scale_factor, "GPU")
    return f"It needs {needed}, and only {short} {_are(short)} {where}: it cannot run {until}."


def _describe_prospects(a: Facts) -> Iterator[str]:
    """Yield when a job should start and end, and the bounds on its wait."""
    ahead = a.prospects
    start, finish, rho = ahead.start_seconds, ahead.finish_seconds, ahead.rho
    if a.obstacles.gpus_short is not None:
        yield _too_few(a)
    elif start and finish:
        begin = "" if a.status == "runs" else f"start at about {_interval(start)} and "
        made = ahead.forecast_seconds or 0.0
        old = f", as forecast at {_s(made)}" if made < a.clock_seconds else ""
        yield f"It should {begin}end at about {_interval(finish)}{old}."
        if rho and ahead.fair_finish_seconds:
            yield (
                f"In an evenly shared cluster it would end at about "
                f"{_interval(ahead.fair_finish_seconds)}: ρ is {rho.median:.2f} "
                f"(80 %: {rho.low:.2f} to {rho.high:.2f})."
            )
    elif a.obstacles.order not in ("held", "cancelled"):
        if ahead.missing is Unforecast.PENDING:
            yield "When it should end has not been forecast yet."
        elif ahead.missing is Unforecast.UNPREDICTABLE:
            yield f"When it will run under the policy {a.policy} cannot be predicted."
    if ahead.freed_by_seconds is not None:
        by = _s(ahead.freed_by_seconds)
        yield f"Non-preemptible jobs give way to it by {by} at the latest, whatever arrives."
    if ahead.overdue_from_seconds is not None:
        goes, then = "It is overdue and goes", ""
        if ahead.overdue_from_seconds > a.clock_seconds:
            goes = f"At the present load, from {_s(ahead.overdue_from_seconds)} on it goes"
            then = "then "
        yield (
            f"{goes} before all others: whatever arrives, it {then}waits only for jobs that were "
            "overdue before it, and for those that keep their GPUs."
        )


def _describe_deadline(a: Facts) -> Iterator[str]:
    deadline, finish = a.job.deadline_seconds, a.prospects.finish_seconds
    if deadline is None:
        return
    if deadline < a.clock_seconds:
        yield f"Its deadline, {_s(deadline)}, has passed."
    elif finish is None:
        yield f"Its deadline is {_s(deadline)}."
    else:
        meets = "should meet" if finish.high <= deadline else "should miss"
        if finish.low <= deadline < finish.high:
            meets = "may miss"
        yield f"It {meets} its deadline of {_s(deadline)}."


def _describe_history(a: Facts) -> Iterator[str]:
    for step in a.history[-SHOWN:]:
        gpus = f" on {_name('GPU', step.gpus)}" if step.gpus else ""
        if step.kind == EventKind.PREEMPTED.value:
            gpus = ""
        reason = f": {step.reason}" if step.reason else ""
        yield f"Round {step.round}: {step.kind}{gpus}{reason}."
