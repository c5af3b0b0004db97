"""Rows about tenants, prices and single jobs, made from records of rounds."""

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from containers.runtime import ContainerEvent, EventKind, Lease
from flows.api.history import ServiceHistory
from flows.api.rows import RoundChanges
from flows.runs.costs import GpuCost, Tariff
from solver.even_cluster import measure_rho
from solver.plan import SolveReport
from tasks.record import Estimate, Settings, Timings
from tasks.tenancy import Tenancy
from tasks.time_held import TimeHeld

MOST_PRICES = 240
"""Rounds whose prices are shown: eight hours of two-minute rounds. A choice of layout."""


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """Leases, events and prices of a round: fields of its record."""

    round: int
    clock_seconds: float
    finished: tuple[ContainerEvent, ...]
    solve: SolveReport
    leases: tuple[Lease, ...]
    events: tuple[ContainerEvent, ...]


@dataclass(frozen=True, slots=True)
class RoundEstimates:
    """Forecasts of a round: fields of its record."""

    round: int
    clock_seconds: float
    estimates: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True)
class RoundTimings:
    """Durations of a round's steps: columns of its file."""

    round: int
    timings: Timings


LAST = 20
"""Jobs of which the page shows ρ over time. A choice of layout."""


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant that has active jobs or has held GPUs.

    Attributes:
        jobs: Number of active jobs.
        running: Number of jobs that hold GPUs.
        factor: Factor on the budgets of its jobs (`tenant set --budget`).
        budget: Sum of the budgets of its active jobs, times the factor.
        budget_share: Share of all tenants' budgets, in [0, 1].
        gpus: GPUs that it holds.
        gpu_share: Share of the held GPUs, in [0, 1].
        gpu_hours: GPU-hours held so far; two jobs that share a GPU count half each.
        cost: Cost of the GPU-hours at the prices of the pools; 0 without prices.
        market_cost: Cost of the GPU-hours at each round's market prices; None without a market.
        quota_hours: GPU-hours that it may hold in this window, carried-over ones included; None
            without a quota.
        used_hours: GPU-hours held in this window.
        window_ends_s: End of this window, on the run's clock in seconds.
    """

    tenant: str
    jobs: int
    running: int
    factor: float
    budget: float
    budget_share: float
    gpus: int
    gpu_share: float
    gpu_hours: float
    cost: float = 0.0
    market_cost: float | None = None
    quota_hours: float | None = None
    used_hours: float | None = None
    window_ends_s: float | None = None


@dataclass(frozen=True, slots=True)
class PriceRow:
    """The market price of a GPU-round of a type in a round.

    Attributes:
        at_s: Start of the round on the run's clock in seconds.
        gpu_type: The GPU type; empty if the cluster has only one.
        price: The dual price, in units of the market's objective.
    """

    round: int
    at_s: float
    gpu_type: str
    price: float


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The use of the cluster in a round.

    Attributes:
        at_s: Start of the round on the run's clock in seconds.
        held_gpus: GPUs that jobs hold.
        running: Jobs that hold GPUs.
        waiting: Other active jobs.
        rho: Median ρ of the last `LAST` jobs that finished by then; None before the first.
        worst_rho: The largest of them.
    """

    round: int
    at_s: float
    held_gpus: int
    running: int
    waiting: int
    rho: float | None = None
    worst_rho: float | None = None


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A period in which a job held the same GPUs.

    Attributes:
        from_s: Start on the run's clock in seconds.
        to_s: End; None if the job still holds them.
    """

    from_s: float
    to_s: float | None
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunTimeForecast:
    """A recorded forecast of a job's remaining run time, with its 80 % interval.

    Attributes:
        at_s: Time of the forecast, on the run's clock in seconds.
        done: Completed share of the job's epochs; see `Belief.share_done`.
        run_s: Run time so far, in seconds.
        remaining_s: Expected remaining run time.
    """

    at_s: float
    done: float
    run_s: float
    remaining_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class LossRow:
    """The mean training loss of a completed epoch, as the job reports it; epochs count from 0."""

    epoch: int
    loss: float


@dataclass(frozen=True, slots=True)
class JobHistory:
    """The history of a job.

    Attributes:
        held: Periods in which it held GPUs.
        forecasts: Its forecasts, one for each round that changed them.
        losses: Training loss by epoch; empty on a virtual cluster.
        gpu_hours: GPU-hours held up to the last round; see `TenantRow`.
        cost: Cost of the GPU-hours at the prices of the pools.
        market_cost: Cost of the GPU-hours at each round's market prices; None without a market.
    """

    held: tuple[LeaseRow, ...]
    forecasts: tuple[RunTimeForecast, ...]
    losses: tuple[LossRow, ...]
    gpu_hours: float
    cost: float
    market_cost: float | None


def make_tenant_rows(history: ServiceHistory) -> list[TenantRow]:
    """Return the rows of a service's tenants, by name."""
    state = history.state
    accounts = history.position.accounts
    gpus = defaultdict[str, int](int)
    for job_id, held in state.leases.items():
        gpus[state.beliefs[job_id].spec.tenant] += len(held)
    budgets, jobs = defaultdict[str, float](float), defaultdict[str, int](int)
    running = defaultdict[str, int](int)
    for job_id, belief in state.beliefs.items():
        tenant = belief.spec.tenant
        budgets[tenant] += belief.spec.budget * state.tenancy.factor(tenant)
        jobs[tenant] += 1
        running[tenant] += job_id in state.leases
    all_budgets, all_gpus = sum(budgets.values()), sum(gpus.values())
    return [
        TenantRow(
            tenant=tenant,
            jobs=jobs[tenant],
            running=running[tenant],
            factor=state.tenancy.factor(tenant),
            budget=budgets[tenant],
            budget_share=budgets[tenant] / all_budgets if all_budgets else 0.0,
            gpus=gpus[tenant],
            gpu_share=gpus[tenant] / all_gpus if all_gpus else 0.0,
            **_cost(accounts.get(tenant, GpuCost())),
            **_quota(state.tenancy, tenant),
        )
        for tenant in sorted({*accounts, *jobs, *state.tenancy.terms})
    ]


def _cost(account: GpuCost) -> dict[str, Any]:
    return {
        "gpu_hours": account.gpu_seconds / 3600.0,
        "cost": account.cost,
        "market_cost": account.market_cost,
    }


def _quota(tenancy: Tenancy, tenant: str) -> dict[str, float]:
    usage = tenancy.usage.get(tenant)
    if usage is None:
        return {}
    terms = tenancy.terms[tenant]
    return {
        "quota_hours": terms.gpu_hours + usage.carried / 3600.0,
        "used_hours": usage.used / 3600.0,
        "window_ends_s": (usage.window + 1) * terms.window_hours * 3600.0,
    }


def make_usage_rows(
    rounds: Iterable[RoundOutcome], changes: Sequence[RoundChanges], settings: Settings
) -> list[UsageRow]:
    """Return how rounds used the cluster; `changes` are those of all rounds."""
    rhos = sorted(_list_rhos(changes, settings))
    ends = [at for at, _ in rhos]
    active, total = dict[int, int](), 0
    for change in changes:
        total += len(change.arrivals) - sum(event.ends_job for event in change.finished)
        active[change.round] = total
    rows, count = list[UsageRow](), 0
    known = sorted(active)
    for each in rounds:
        at = bisect_right(known, each.round)
        count = active[known[at - 1]] if at else 0
        held = len({gpu for lease in each.leases for gpu in lease.gpus})
        running, ended = len(each.leases), bisect_right(ends, each.clock_seconds)
        last = [rho for _, rho in rhos[max(ended - LAST, 0) : ended]]
        fair = (median(last), max(last)) if last else ()
        rows.append(UsageRow(each.round, each.clock_seconds, held, running, count - running, *fair))
    return rows


def _list_rhos(
    changes: Iterable[RoundChanges], settings: Settings
) -> Iterator[tuple[float, float]]:
    """Yield the end and ρ of each finished job that has ended in the even cluster, too."""
    arrivals, ends, fair = dict[int, float](), dict[int, float](), dict[int, float]()
    for change in changes:
        arrivals |= {spec.job_id: spec.arrival_seconds for spec in change.arrivals}
        done = (event for event in change.finished if event.kind is EventKind.FINISHED)
        ends |= {event.job_id: event.at_seconds for event in done}
        fair |= {found.job_id: found.at_seconds for found in change.fair_finishes}
    costs = settings.round_seconds, settings.restart_seconds
    for job_id in ends.keys() & fair.keys():
        end = ends[job_id]
        yield end, measure_rho(end, arrivals[job_id], fair[job_id], *costs)


def make_price_rows(rounds: Iterable[RoundOutcome]) -> list[PriceRow]:
    """Return the prices of rounds that had a market, in order."""
    return [
        PriceRow(record.round, record.clock_seconds, price.gpu_type, price.price)
        for record in rounds
        for price in record.solve.prices
    ]


def find_lifetime(news: Iterable[RoundChanges], job_id: int) -> range:
    """Return the rounds from a job's arrival to its end, as far as recorded."""
    first = 0
    for record in news:
        if any(spec.job_id == job_id for spec in record.arrivals):
            first = record.round
        if any(event.job_id == job_id and event.ends_job for event in record.finished):
            return range(first, record.round + 1)
    return range(first, sys.maxsize)


def make_job_history(
    history: ServiceHistory,
    records: Sequence[RoundOutcome],
    estimates: Iterable[RoundEstimates],
    job_id: int,
    losses: Sequence[LossRow],
) -> JobHistory:
    """Return the history of a job, from the rounds of its life, its forecasts and its losses."""
    forecasts = tuple(
        RunTimeForecast(
            at_s=record.clock_seconds,
            done=made.done,
            run_s=made.run_seconds,
            remaining_s=made.remaining_seconds,
            low_s=made.low_seconds,
            high_s=made.high_seconds,
        )
        for record in estimates
        for made in record.estimates
        if made.job_id == job_id
    )
    account = sum(_accounts(history, records, job_id), GpuCost())
    return JobHistory(tuple(_held(records, job_id)), forecasts, tuple(losses), **_cost(account))


def _accounts(
    history: ServiceHistory, records: Sequence[RoundOutcome], job_id: int
) -> Iterator[GpuCost]:
    """Yield the cost of the job's GPUs, round by round.

    Jobs on the same GPUs are metered together, because they share the cost.
    """
    header = history.start.header
    inventory = history.state.inventory(header)
    for record, after in pairwise(records):
        leases = {lease.job_id: lease.gpus for lease in record.leases}
        if own := leases.get(job_id):
            there = {other: gpus for other, gpus in leases.items() if gpus == own}
            meter = Tariff(inventory, record.solve.price_of, header.settings.round_seconds)
            held = TimeHeld(record.clock_seconds).after_dispatch(record.events, {})
            yield from (cost for job, cost in meter.read(held, there, after) if job == job_id)


def _held(records: Sequence[RoundOutcome], job_id: int) -> Iterator[LeaseRow]:
    since, gpus = 0.0, tuple[int, ...]()
    for record in records:
        now = next((lease.gpus for lease in record.leases if lease.job_id == job_id), ())
        ends = (event for event in record.finished if event.job_id == job_id)
        dispatch = (event for event in record.events if event.job_id == job_id)
        end, change = next(ends, None), next(dispatch, None)
        if gpus and (event := end or (change if now != gpus else None)):
            yield LeaseRow(since, event.at_seconds, gpus)
            gpus = ()
        if now and not gpus:
            since, gpus = change.at_seconds if change else record.clock_seconds, now
    if gpus:
        yield LeaseRow(since, None, gpus)
