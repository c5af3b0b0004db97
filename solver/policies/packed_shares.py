"""Shares of time of jobs and of pairs of jobs on the same GPUs, and how they become rounds.

Gavel's packing (Narayanan et al., OSDI '20, section 4.4): beside each job alone, each pair of jobs
that ask for the same number of GPUs and fit together is a row with shares of time of its own. Rows
stand in line as jobs do in `solver.policies.shares`; at most one of a job's rows runs.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import orjson

from predictor.allocation import Allocation
from predictor.arrays import Floats
from solver.fidelity import Fidelity
from solver.list_scheduling import Claim, find_fitting, next_round
from solver.pairs import ALONE, Rows, find_pairs, make_rows
from solver.plan import Plan, Situation, SolveReport
from solver.policies.ledger import Ledger
from solver.policies.shares import Contenders, contenders, is_due

DIGITS = 9
"""Digits of shares and deficits that count. The published simulator counts all, which repeats its
runs where no solver leaves others in their place. A numerical tolerance."""


class Account(NamedTuple):
    """A row's shares and received run times, by GPU type; see `solver.policies.ledger.Account`."""

    share: tuple[float, ...]
    received: tuple[float, ...]
    deficit: tuple[float, ...]


@dataclass(frozen=True)
class PackedLedger:
    """Memory of a policy that packs.

    Attributes:
        head: Clock of the last computation, rounds planned and GPU types; no accounts.
        jobs: The jobs, and whether each took part in the last computation.
        accounts: By the ids of a row's jobs; accounts equal to `_usual` are left out.
        ran: Pairs that were placed in the last round.
        notes: The policy's notes, as JSON.
    """

    head: Ledger = field(default_factory=Ledger)
    jobs: Mapping[int, bool] = field(default_factory=dict)
    accounts: Mapping[tuple[int, ...], Account] = field(default_factory=dict)
    ran: tuple[tuple[int, ...], ...] = ()
    notes: tuple[Any, ...] = ()

    @classmethod
    def read(cls, memory: str, types: tuple[str, ...]) -> "PackedLedger":
        """Decode the JSON of `written`; one of other GPU types, or none, is empty."""
        saved = orjson.loads(memory) if memory else []
        if len(saved) != len(_FIELDS) or tuple(saved[0]) != types:
            return cls(Ledger(types=types))
        _, computed_at, stale, rounds, planned_at, jobs, rows, ran, notes = saved
        return cls(
            head=Ledger(computed_at, stale, {}, types, rounds, planned_at),
            jobs=dict(jobs),
            accounts={tuple(ids): Account(*map(tuple, account)) for ids, *account in rows},
            ran=tuple(tuple(pair) for pair in ran),
            notes=tuple(notes),
        )

    def written(self) -> str:
        """As JSON, in the order of `_FIELDS`."""
        head = self.head
        rows = [[ids, *account] for ids, account in self.accounts.items()]
        saved = [head.types, head.computed_at, head.stale, head.rounds, head.planned_at]
        saved += [list(self.jobs.items()), rows, self.ran, self.notes]
        return orjson.dumps(saved).decode()


_FIELDS = ("types", "computed_at", "stale", "rounds", "planned_at", "jobs", "rows", "ran", "notes")


class PackingPolicy(Protocol):
    """A policy that computes shares of jobs and pairs."""

    @property
    def solver(self) -> str:
        """Solver of the shares; `none` without a solver."""
        ...

    @property
    def fidelity(self) -> Fidelity:
        """How the policy is run."""
        ...

    def allocate_packed(
        self, jobs: Contenders, rows: Rows, notes: tuple[Any, ...]
    ) -> tuple[Floats, tuple[Any, ...]]:
        """Shares of time, shape (rows, types), and notes for the next computation."""
        ...


@dataclass(frozen=True)
class _State:
    """Rows and their accounts as arrays of shape (rows, types)."""

    rows: Rows
    share: Floats
    received: Floats
    deficit: Floats


def run_packed(
    policy: PackingPolicy,
    name: str,
    situation: Situation,
    *,
    fills: bool = True,
    again: bool = False,
) -> Plan:
    """Plan the coming round by shares of jobs and pairs.

    Args:
        policy: The policy that computes the shares.
        name: Its name, for the report.
        situation: Policy input.
        fills: Whether rows run on idle GPUs of types that they have no share of.
        again: Whether the shares are computed again in any case.
    """
    types, clock = situation.inventory.types, situation.clock_seconds
    ledger = PackedLedger.read(situation.memory, types)
    head = ledger.head
    if not situation.jobs:
        head = replace(head, stale=True, rounds=head.rounds + 1, planned_at=clock)
        return Plan({}, SolveReport(name), memory=PackedLedger(head, notes=ledger.notes).written())
    alone = contenders(situation)
    rows = make_rows(situation.jobs, types)
    ids = [job.job_id for job in situation.jobs]
    keys = [
        (ids[first],) if second == ALONE else (ids[first], ids[second])
        for first, second in rows.members.tolist()
    ]
    state = _received(situation, ledger, rows, keys)
    shared = {job_id: ledger.jobs.get(job_id, False) for job_id in ids}
    failed = any(
        job.gpus and job.belief.progress and job.belief.progress.seconds <= 0.0
        for job in situation.jobs
    )
    stale = head.stale or failed or ledger.jobs.keys() != shared.keys()
    head, notes = replace(head, stale=stale), ledger.notes
    report = SolveReport(name, reason="shares computed before", status="kept")
    if again or (stale and is_due(head, situation, policy.fidelity)):
        share, notes = policy.allocate_packed(alone, rows, notes)
        half = np.full_like(state.received, situation.round_seconds / 2)
        owed = state.share * (clock - head.computed_at) - (state.received - half)
        deficit = state.deficit + owed
        if policy.solver != "none" or policy.fidelity is Fidelity.FAIR:
            share, deficit = share.round(DIGITS), deficit.round(DIGITS)
        state = _State(rows, share, half, deficit)
        head, shared = replace(head, computed_at=clock, stale=False), dict.fromkeys(ids, True)
        report = SolveReport(name, policy.solver, "shares of time", "optimal")
    line = _line(situation, state, policy.fidelity, fills)
    asked = line
    if not all(shared.values()):
        met = (line[n] for n in find_fitting(situation.inventory, line))
        asked = [claim for claim in met if all(shared[job] for job in claim.job_ids)]
    placement = next_round(situation, asked)
    pairs = find_pairs(placement, asked)
    head = replace(head, rounds=head.rounds + 1, planned_at=clock)
    after = PackedLedger(
        head, shared, _accounts(state, keys, shared, situation.round_seconds / 2), pairs, notes
    )
    return Plan(
        placement=placement,
        report=report,
        memory=after.written(),
        order=_in_line(line, shared, placement),
        pairs=pairs,
    )


def _received(
    situation: Situation, ledger: PackedLedger, rows: Rows, keys: Sequence[tuple[int, ...]]
) -> _State:
    """The rows' accounts after the previous round."""
    half, inventory = situation.round_seconds / 2, situation.inventory
    types = len(inventory.types)
    accounts = [ledger.accounts.get(key) or _usual(key, ledger.jobs, half, types) for key in keys]
    share, received, deficit = (
        np.array([account[n] for account in accounts]) for n in range(len(Account._fields))
    )
    place = {key: row for row, key in enumerate(keys)}
    together = {job: pair for pair in ledger.ran for job in pair}
    for job in situation.jobs:
        key = together.get(job.job_id, (job.job_id,))
        if job.gpus and job.belief.progress and key in place and job.job_id == key[0]:
            kind = inventory.types.index(inventory.allocation(job.gpus).gpu_type)
            received[place[key], kind] += job.belief.progress.seconds
    return _State(rows, share, received, deficit)


def _usual(key: tuple[int, ...], shared: Mapping[int, bool], half: float, types: int) -> Account:
    """The account of a row that never ran and has no share.

    As published, a pair has received nothing before its first computation, so that it is owed the
    half round that is then taken from all.

    Args:
        key: The ids of its jobs.
        shared: Whether each took part in the last computation.
        half: Half a round, in seconds.
        types: Number of GPU types.
    """
    nothing, much = (0.0,) * types, (half,) * types
    if len(key) == 1:
        return Account(nothing, much, nothing)
    if all(shared.get(job, False) for job in key):
        return Account(nothing, much, much)
    return Account(nothing, nothing, nothing)


def _accounts(
    state: _State, keys: Sequence[tuple[int, ...]], shared: Mapping[int, bool], half: float
) -> dict[tuple[int, ...], Account]:
    """The accounts as they are kept."""
    types = state.share.shape[1]
    kept = zip(state.share.tolist(), state.received.tolist(), state.deficit.tolist(), strict=True)
    accounts = {
        key: Account(tuple(share), tuple(received), tuple(deficit))
        for key, (share, received, deficit) in zip(keys, kept, strict=True)
    }
    return {
        key: account
        for key, account in accounts.items()
        if account != _usual(key, shared, half, types)
    }


def _line(situation: Situation, state: _State, fidelity: Fidelity, fills: bool) -> list[Claim]:
    """All rows on all types that they can run on, best first."""
    jobs, types = situation.jobs, situation.inventory.types
    priority = np.divide(
        state.share, state.received, out=1e9 * state.share, where=state.received > 0.0
    )
    time = state.received.sum(axis=0)
    priority *= time / time.max()
    row, kind = np.nonzero(state.rows.runs & ((priority > 0.0) | fills))
    ranks = [row, *(-kept[row, kind] for kept in (state.share, state.deficit, priority))]
    if fidelity is Fidelity.REFERENCE:
        ranks.append(kind)
    order = np.lexsort(ranks)
    menus: list[dict[str, Allocation]] = [
        {choice.gpu_type: choice for choice in job.choices} for job in jobs
    ]
    members = state.rows.members.tolist()
    line = []
    for r, k in zip(row[order].tolist(), kind[order].tolist(), strict=True):
        first, second = members[r]
        other = None if second == ALONE else jobs[second]
        line.append(Claim(jobs[first], menus[first][types[k]], other))
    return line


def _in_line(
    line: Sequence[Claim], shared: Mapping[int, bool], placement: Container[int]
) -> tuple[int, ...]:
    """The jobs with a row in line, by their first one: those that run, then those that wait.

    A job that waits has rows up to the line's end, none of which was met. Jobs that took no part in
    the last computation are left out.
    """
    left = {job for job, known in shared.items() if known}
    found: list[int] = []
    for claim in line:
        if not left:
            break
        found += (job for job in claim.job_ids if job in left)
        left -= {*claim.job_ids}
    return tuple(sorted(found, key=lambda job: job not in placement))
