"""Policies that compute shares of time, and how shares become rounds.

Gavel's round-based mechanism (Narayanan et al., OSDI '20, section 5): a policy computes
the share of time x_jk in [0, 1] of each job on each GPU type; each round, jobs are scheduled by
decreasing priority x_jk / (run time there since the shares were computed), then by the deficit
of run time from before, then by share, with backfilling. A job runs on one type at a time.

With `Fidelity.FAIR` shares are computed again on every arrival, end and change of
throughput, and all pairs of job and type stand in one line. With `Fidelity.REFERENCE` the limits of
the published simulators hold: that of Shockwave on a single GPU type, that of Gavel on several.
There is no computation within a minimum time of the last (but for that at clock 0), nor after a
change of batch size. A job that arrived since has no share, and GPUs assigned to it idle. Of
several types, one is filled after the other.
"""

import random
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from predictor.arrays import Floats
from solver.fidelity import Fidelity
from solver.inventory import Inventory
from solver.list_scheduling import Claim, find_fitting, make_claims, next_round
from solver.plan import ActiveJob, Plan, Situation, SolveReport
from solver.policies.ledger import NO_LEASE, Account, Ledger

RECOMPUTE_SECONDS, RECOMPUTE_SECONDS_OF_TYPES = 1000.0, 1920.0
"""Minimum time between two computations in the published simulators: Shockwave's, with a single
GPU type, and Gavel's, with several."""

SHUFFLE_SEED = 5
"""Default seed of the random orders of GPU types in Gavel's published simulator."""


@dataclass(frozen=True)
class Contenders:
    """The active jobs as arrays, one entry per job in the order of the situation.

    Attributes:
        gpus: c, GPUs of each type, shape (types,).
        gangs: g, shape (jobs,).
        rates: Throughputs at the current batch size, in steps per second, shape (jobs, types); 0
            where a job cannot run.
        steps_left: Training steps left at that batch size.
        ages: Seconds since arrival.
        weights: Budgets.
        accounts: Their accounts.
        prices: Price of a GPU-hour of each type, mean over its pools, shape (types,); 0 without.
        job_ids: Their ids.
        tenants: Their tenants.
        time_left: Seconds to their deadlines; infinite without one.
        round_seconds: Length of a round.
    """

    gpus: Floats
    gangs: Floats
    rates: Floats
    steps_left: Floats
    ages: Floats
    weights: Floats
    accounts: Sequence[Account]
    prices: Floats = field(default_factory=lambda: np.zeros(0))
    job_ids: tuple[int, ...] = ()
    tenants: tuple[str, ...] = ()
    time_left: Floats = field(default_factory=lambda: np.zeros(0))
    round_seconds: float = 0.0

    @property
    def speeds(self) -> Floats:
        """Work done in a second, shape (jobs, types): steps, of a single type seconds.

        The unit decides at which of many optimal points a solver ends. These are the published.
        """
        return np.ones_like(self.rates) if len(self.gpus) == 1 else self.rates

    @property
    def work_left(self) -> Floats:
        """Work left in the unit of `speeds`, shape (jobs,)."""
        return self.steps_left / self.rates[:, 0] if len(self.gpus) == 1 else self.steps_left

    @property
    def equal_shares(self) -> Floats:
        """Shares of time under an equal division of each type, shape (jobs, types).

        They are c_k / (N g_j), divided by their sum for a job where that is above 1.
        """
        equal = self.gpus / (len(self.gangs) * self.gangs[:, None])
        within: Floats = equal / np.maximum(1.0, equal.sum(axis=1, keepdims=True))
        return within

    def alike(self) -> "Contenders":
        """The same as if all types were as fast as the first that a job can run on."""
        first = np.take_along_axis(self.rates, (self.rates > 0.0).argmax(axis=1)[:, None], axis=1)
        return replace(self, rates=np.broadcast_to(first, self.rates.shape))


class SharePolicy(Protocol):
    """A policy that computes shares."""

    @property
    def solver(self) -> str:
        """Solver of the shares; `none` without a solver."""
        ...

    @property
    def fidelity(self) -> Fidelity:
        """How the policy is run."""
        ...

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """Shares of time, shape (jobs, types), and notes on each job (or none at all)."""
        ...


class Candidate(NamedTuple):
    """A job on an allocation, as it stands in line.

    Attributes:
        claim: The job and the allocation.
        kind: Number of its GPU type.
        rank: Ascending: within a lease first, then by priority, deficit and share, descending.
    """

    claim: Claim
    kind: int
    rank: tuple[bool, float, float, float, int]


def run_shares(
    policy: SharePolicy,
    name: str,
    situation: Situation,
    *,
    lease_seconds: float = 0.0,
    shuffled: bool = False,
    fills: bool = True,
    again: bool = False,
) -> Plan:
    """Plan the coming round by shares.

    Args:
        policy: The policy that computes the shares.
        name: Its name, for the report.
        situation: Policy input.
        lease_seconds: Least length of a lease, within which a job is not preempted.
        shuffled: Whether under `Fidelity.REFERENCE` types are filled in random order; else in
            the order of the pools.
        fills: Whether jobs run on idle GPUs of types that they have no share of.
        again: Whether the shares are computed again in any case.
    """
    if not situation.jobs:
        return Plan({}, SolveReport(name), memory=_idle(situation).written())
    ledger = _updated(situation, policy.fidelity)
    report = SolveReport(name, reason="shares computed before", status="kept")
    if again or (ledger.stale and is_due(ledger, situation, policy.fidelity)):
        ledger = _computed(policy, ledger, situation)
        report = SolveReport(name, policy.solver, "shares of time", "optimal")
    line = _line(ledger, situation, lease_seconds)
    if policy.fidelity is Fidelity.REFERENCE:
        kinds = _order_of_types(len(situation.inventory.types), ledger.rounds, shuffled)
        line.sort(key=lambda candidate: kinds.index(candidate.kind))
    if not fills:
        line = [candidate for candidate in line if candidate.rank[1] < 0.0]
    placement = next_round(situation, _assigned(situation, line, ledger))
    return Plan(
        placement=placement,
        report=report,
        memory=_after(ledger, placement, situation.clock_seconds).written(),
        order=tuple(dict.fromkeys(candidate.claim.job.job_id for candidate in line)),
    )


def _idle(situation: Situation) -> Ledger:
    """The ledger after a round without jobs; of several types it goes on."""
    before = Ledger.read(situation.memory)
    if not before.types:
        return Ledger()
    return _after(replace(before, stale=True, accounts={}), (), situation.clock_seconds)


def rates_by_type(job: ActiveJob, inventory: Inventory) -> tuple[float, ...]:
    """A job's throughput on each GPU type; 0 where it cannot run."""
    rates = {choice.gpu_type: job.rate(choice) for choice in job.choices}
    return tuple(rates.get(kind, 0.0) for kind in inventory.types)


def _types(inventory: Inventory) -> tuple[str, ...]:
    """GPU types that a ledger names: none where there is a single one."""
    return inventory.types if inventory.mixed else ()


def _updated(situation: Situation, fidelity: Fidelity) -> Ledger:
    """The ledger after the previous round: run times, arrivals and ends."""
    inventory, half = situation.inventory, situation.round_seconds / 2
    types, count = _types(inventory), len(inventory.types)
    before = Ledger.read(situation.memory).of(types, half)
    accounts: dict[int, Account] = {}
    stale, fair = before.stale, fidelity is Fidelity.FAIR
    for job in situation.jobs:
        account = before.accounts.get(job.job_id)
        if account is None:
            account, stale = Account.new(count, half), True
        elif job.gpus and job.belief.progress:
            ran = job.belief.progress.seconds
            stale = stale or ran <= 0.0  # a failure in the published simulator
            kind = inventory.types.index(inventory.allocation(job.gpus).gpu_type)
            received = (
                time + ran if kind == k else time for k, time in enumerate(account.received)
            )
            account = account._replace(received=tuple(received))
        stale = stale or (fair and account.rate != rates_by_type(job, inventory))
        accounts[job.job_id] = account
    gone = before.accounts.keys() - accounts.keys()
    return replace(before, stale=stale or bool(gone), accounts=accounts)


def is_due(ledger: Ledger, situation: Situation, fidelity: Fidelity) -> bool:
    """Whether shares that are stale are to be computed again."""
    if fidelity is Fidelity.FAIR or ledger.computed_at == 0.0:
        return True
    elapsed = situation.clock_seconds - ledger.computed_at
    if not ledger.types:
        return elapsed >= RECOMPUTE_SECONDS
    # The clock stands still where nothing ran and no job is to come.
    stuck = ledger.rounds > 0 and situation.clock_seconds == ledger.planned_at
    return stuck or elapsed >= RECOMPUTE_SECONDS_OF_TYPES


def contenders(situation: Situation, accounts: Sequence[Account] = ()) -> Contenders:
    """The active jobs as arrays.

    Args:
        situation: Policy input.
        accounts: Their accounts.
    """
    jobs, inventory = situation.jobs, situation.inventory
    ages = situation.clock_seconds - np.array([job.belief.spec.arrival_seconds for job in jobs])
    within = np.array([job.spec.options.deadline_seconds or np.inf for job in jobs])
    return Contenders(
        gpus=np.array(list(inventory.capacities.values()), dtype=float),
        gangs=np.array([job.gang for job in jobs], dtype=float),
        rates=np.array([rates_by_type(job, inventory) for job in jobs]),
        steps_left=np.array([job.belief.steps_left for job in jobs], dtype=float),
        ages=ages,
        weights=np.array([job.belief.spec.budget for job in jobs]),
        accounts=accounts,
        prices=np.array([mean_price(inventory, kind) for kind in inventory.types]),
        job_ids=tuple(job.job_id for job in jobs),
        tenants=tuple(job.spec.tenant for job in jobs),
        time_left=within - ages,
        round_seconds=situation.round_seconds,
    )


def mean_price(inventory: Inventory, gpu_type: str) -> float:
    """Mean price of a GPU-hour of a type; 0 if a pool of it has none."""
    pools = [pool for pool in inventory.pools if pool.gpu_type == gpu_type]
    if not all(pool.price for pool in pools):
        return 0.0
    return sum(pool.price * pool.gpus for pool in pools) / sum(pool.gpus for pool in pools)


def _computed(policy: SharePolicy, ledger: Ledger, situation: Situation) -> Ledger:
    jobs, accounts = situation.jobs, list(ledger.accounts.values())
    inventory = situation.inventory
    rates = [rates_by_type(job, inventory) for job in jobs]
    shares, notes = policy.allocate(contenders(situation, accounts))
    elapsed = situation.clock_seconds - ledger.computed_at
    start = situation.round_seconds / 2

    def deficit(old: Account) -> tuple[float, ...]:
        return tuple(
            owed + (max(share, 0.0) * elapsed - (received - start))
            for owed, share, received in zip(old.deficit, old.share, old.received, strict=True)
        )

    return replace(
        ledger,
        computed_at=situation.clock_seconds,
        stale=False,
        accounts={
            job.job_id: Account(
                share=tuple(share),
                received=(start,) * len(rate),
                deficit=deficit(old),
                rate=rate,
                held_since=old.held_since,
                notes=note,
            )
            for job, rate, old, share, note in zip(
                jobs, rates, accounts, shares.tolist(), notes or [()] * len(jobs), strict=True
            )
        },
    )


def _line(ledger: Ledger, situation: Situation, lease_seconds: float) -> list[Candidate]:
    """All jobs on all types that they can run on, best first."""
    clock, types = situation.clock_seconds, situation.inventory.types
    received = np.array([account.received for account in ledger.accounts.values()]).sum(axis=0)
    time = (received / received.max()).tolist()  # given out on each type since the computation
    line: list[Candidate] = []
    for job, account in zip(situation.jobs, ledger.accounts.values(), strict=True):
        leased = account.held_since >= 0.0 and clock - account.held_since < lease_seconds
        for claim in make_claims([job]):
            kind = types.index(claim.allocation.gpu_type)
            share = max(account.share[kind], 0.0)
            priority = share / account.received[kind] * time[kind]
            rank = not leased, -priority, -account.deficit[kind], -share, job.job_id
            line.append(Candidate(claim, kind, rank))
    return sorted(line, key=lambda candidate: candidate.rank)


def _assigned(situation: Situation, line: Sequence[Candidate], ledger: Ledger) -> list[Claim]:
    """The claims that are met, with backfilling; GPUs assigned to a job without a share idle."""
    order = [candidate.claim for candidate in line]
    shared = [ledger.accounts[claim.job.job_id].shared for claim in order]
    if all(shared):
        return order
    return [order[n] for n in find_fitting(situation.inventory, order) if shared[n]]


def _order_of_types(types: int, number: int, shuffled: bool) -> Sequence[int]:
    """The order in which GPU types are filled in a round."""
    if not shuffled or types == 1:
        return range(types)
    return _random_orders(types, 1 << (number + 1).bit_length())[number]


@lru_cache(maxsize=32)
def _random_orders(types: int, rounds: int) -> list[list[int]]:
    """The random order of the types in each round, as published."""
    generator, orders = random.Random(SHUFFLE_SEED), []
    for _ in range(rounds):
        orders.append(list(range(types)))
        generator.shuffle(orders[-1])
    return orders


def _after(ledger: Ledger, placement: Container[int], clock: float) -> Ledger:
    """The ledger with the leases that start and end in the coming round."""
    return replace(
        ledger,
        rounds=ledger.rounds + 1,
        planned_at=clock,
        accounts={
            job: account._replace(
                held_since=NO_LEASE
                if job not in placement
                else clock
                if account.held_since < 0.0
                else account.held_since
            )
            for job, account in ledger.accounts.items()
        },
    )
