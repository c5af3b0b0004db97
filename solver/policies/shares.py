"""Policies that compute shares of time, and how shares become rounds.

Gavel's round-based mechanism (Narayanan et al., OSDI '20, section 5): a policy computes
the share of time x_j in [0, 1] of each job; each round, jobs are scheduled by decreasing
priority x_j / (run time since the shares were computed), then by the deficit of run time
from before, then by share, with backfilling.

With `Fidelity.FAIR` shares are computed again on every arrival, end and change of
throughput. With `Fidelity.REFERENCE` the published simulator's limits hold: no computation
within 1,000 s of the last (but for that at clock 0), nor after a change of batch size. A job
that arrived since has no share, and GPUs assigned to it idle.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import orjson

from solver.fidelity import Fidelity
from solver.market import Floats
from solver.plan import ActiveJob, Plan, Situation, SolveReport, claims, next_round

RECOMPUTE_SECONDS = 1000.0
"""The published simulator's minimum time between two computations."""

NO_SHARE = -1.0
"""Share of a job that arrived after the last computation."""

NO_LEASE = -1.0
"""Lease start of a job without a lease."""


class Account(NamedTuple):
    """A job's share and received run time.

    Attributes:
        share: x_j, or `NO_SHARE`.
        received: Run time since the last computation, plus half a round, in seconds.
        deficit: Deficit of run time before the last computation, in seconds.
        rate: Throughput at the last computation, in steps per second.
        held_since: Clock at the start of its current lease, or `NO_LEASE`.
        notes: Policy-specific numbers of the last computation.
    """

    share: float
    received: float
    deficit: float
    rate: float
    held_since: float
    notes: tuple[float, ...] = ()


@dataclass(frozen=True)
class Ledger:
    """A share policy's memory.

    Attributes:
        computed_at: Clock of the last computation, in seconds.
        stale: Whether the shares have to be computed again.
        accounts: By job id.
    """

    computed_at: float = 0.0
    stale: bool = True
    accounts: Mapping[int, Account] = field(default_factory=dict)

    @classmethod
    def read(cls, memory: str) -> "Ledger":
        """Decode the JSON of `written`; empty text is an empty ledger."""
        if not memory:
            return cls()
        computed_at, stale, rows = orjson.loads(memory)
        accounts = {
            job: Account(share, received, deficit, rate, held_since, tuple(notes))
            for job, share, received, deficit, rate, held_since, *notes in rows
        }
        return cls(computed_at, stale, accounts)

    def written(self) -> str:
        """As JSON: computed_at, stale, and a row of numbers per job."""
        rows: list[list[Any]] = [
            [job, *account[:5], *account.notes] for job, account in self.accounts.items()
        ]
        return orjson.dumps([self.computed_at, self.stale, rows]).decode()


@dataclass(frozen=True)
class Contenders:
    """The active jobs as arrays, one entry per job in the order of the situation.

    Attributes:
        gpus: G.
        gangs: g.
        rates: Throughputs at the current batch size, in steps per second.
        steps_left: Training steps left at that batch size.
        ages: Seconds since arrival.
        weights: Budgets.
        accounts: Their accounts.
    """

    gpus: int
    gangs: Floats
    rates: Floats
    steps_left: Floats
    ages: Floats
    weights: Floats
    accounts: Sequence[Account]

    @property
    def seconds_left(self) -> Floats:
        """Residual run time at the current throughput, in seconds."""
        return self.steps_left / self.rates

    @property
    def equal_shares(self) -> Floats:
        """Shares of time under an equal division of the GPUs: min(1, G / (N g))."""
        equal = self.gpus / (len(self.gangs) * self.gangs)
        return np.minimum(1.0, equal)


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
        """Shares of time, and notes on each job (or none at all)."""
        ...


def run_shares(
    policy: SharePolicy, name: str, situation: Situation, *, lease_seconds: float = 0.0
) -> Plan:
    """Plan the coming round by shares.

    Args:
        policy: The policy that computes the shares.
        name: Its name, for the report.
        situation: Policy input.
        lease_seconds: Least length of a lease, within which a job is not preempted.
    """
    if not situation.jobs:
        return Plan({}, SolveReport(name), memory=Ledger().written())
    ledger = _updated(situation, policy.fidelity)
    report = SolveReport(name, reason="shares computed before", status="kept")
    if ledger.stale and _is_due(ledger, situation, policy.fidelity):
        ledger = _computed(policy, ledger, situation)
        report = SolveReport(name, policy.solver, "shares of time", "optimal")
    accounts, clock = ledger.accounts, situation.clock_seconds

    def rank(job: ActiveJob) -> tuple[bool, float, float, float, int]:
        account = accounts[job.job_id]
        share = max(account.share, 0.0)
        leased = account.held_since >= 0.0 and clock - account.held_since < lease_seconds
        return not leased, -share / account.received, -account.deficit, -share, job.job_id

    order = sorted(situation.jobs, key=rank)
    placement = next_round(situation, claims(_assigned(situation, order, accounts)))
    return Plan(
        placement=placement,
        report=report,
        memory=_leased(ledger, placement, clock).written(),
        order=tuple(job.job_id for job in order),
    )


def _updated(situation: Situation, fidelity: Fidelity) -> Ledger:
    """The ledger after the previous round: run times, arrivals and ends."""
    before = Ledger.read(situation.memory)
    accounts: dict[int, Account] = {}
    stale, fair = before.stale, fidelity is Fidelity.FAIR
    half = situation.round_seconds / 2
    for job in situation.jobs:
        account = before.accounts.get(job.job_id)
        if account is None:
            account, stale = Account(NO_SHARE, half, 0.0, 0.0, NO_LEASE), True
        elif job.gpus and job.belief.progress:
            ran = job.belief.progress.seconds
            stale = stale or ran <= 0.0  # a failure in the published simulator
            account = account._replace(received=account.received + ran)
        stale = stale or (fair and account.rate != job.rate(job.own))
        accounts[job.job_id] = account
    gone = before.accounts.keys() - accounts.keys()
    return Ledger(before.computed_at, stale or bool(gone), accounts)


def _is_due(ledger: Ledger, situation: Situation, fidelity: Fidelity) -> bool:
    elapsed = situation.clock_seconds - ledger.computed_at
    return fidelity is Fidelity.FAIR or ledger.computed_at == 0.0 or elapsed >= RECOMPUTE_SECONDS


def _computed(policy: SharePolicy, ledger: Ledger, situation: Situation) -> Ledger:
    jobs, accounts = situation.jobs, list(ledger.accounts.values())
    shares, notes = policy.allocate(
        Contenders(
            gpus=situation.inventory.gpus,
            gangs=np.array([job.gang for job in jobs], dtype=float),
            rates=np.array([job.rate(job.own) for job in jobs]),
            steps_left=np.array([job.belief.steps_left for job in jobs], dtype=float),
            ages=situation.clock_seconds
            - np.array([job.belief.spec.arrival_seconds for job in jobs]),
            weights=np.array([job.belief.spec.budget for job in jobs]),
            accounts=accounts,
        )
    )
    elapsed = situation.clock_seconds - ledger.computed_at
    start = situation.round_seconds / 2
    return Ledger(
        computed_at=situation.clock_seconds,
        stale=False,
        accounts={
            job.job_id: Account(
                share=share,
                received=start,
                deficit=old.deficit + (max(old.share, 0.0) * elapsed - (old.received - start)),
                rate=job.rate(job.own),
                held_since=old.held_since,
                notes=note,
            )
            for job, old, share, note in zip(
                jobs, accounts, shares.tolist(), notes or [()] * len(jobs), strict=True
            )
        },
    )


def _leased(ledger: Ledger, placement: Container[int], clock: float) -> Ledger:
    """The ledger with the leases that start and end in the coming round."""
    return replace(
        ledger,
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


def _assigned(
    situation: Situation, order: Sequence[ActiveJob], accounts: Mapping[int, Account]
) -> list[ActiveJob]:
    """The jobs that run, with backfilling; GPUs assigned to a job without a share idle."""
    if all(accounts[job.job_id].share >= 0.0 for job in order):
        return list(order)
    free, taken = situation.inventory.gpus, []
    for job in order:
        if job.gang <= free:
            free -= job.gang
            taken.append(job)
    return [job for job in taken if accounts[job.job_id].share >= 0.0]
