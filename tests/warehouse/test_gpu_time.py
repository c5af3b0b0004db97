"""GPU time has one definition, in leases, accounts and quotas, and is never negative."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from containers.runtime import ContainerEvent, EventKind, Lease
from flows.api.history import ServiceHistory
from flows.api.job_history import RoundOutcome, make_job_history
from flows.runs.snapshot import RunProgress
from predictor.throughput import UNTYPED
from solver.inventory import Pool
from tasks.backoff import PATIENCE
from tasks.commands import Command, CommandKind, TenantTerms
from tasks.record import RoundRecord
from tasks.state import RunState
from tests.runs import chained, start_of, write
from tests.warehouse.by_hand import CLEARED, HEADER, WORKLOAD, event, round_record
from warehouse.analytics.questions import Analytics

SPECS = tuple(replace(spec, arrival_seconds=0.0) for spec in WORKLOAD.specs)
"""Job 0 asks for two GPUs, jobs 1 and 2 for one."""
PRICED = replace(HEADER.settings, pools=(Pool(UNTYPED, 2, 2, 36.0),))
START = start_of(replace(HEADER, settings=PRICED), replace(WORKLOAD, specs=SPECS))
QUOTAS = tuple(
    Command(number, CommandKind.TENANT, -1, 0.0, terms=TenantTerms(tenant, gpu_hours=1e3))
    for number, tenant in ((4, "red"), (5, "blue"))
)
PLACED = (
    *({}, {0: (0, 1)}, {1: (0,)}, {1: (1,)}, {1: (0,), 2: (1,)}, {1: (1,), 2: (0,)}),
    {1: (0,), 2: (0,)},  # as a pair
)


@st.composite
def rounds(draw: st.DrawFn) -> list[RoundRecord]:
    """Rounds on a host that starts and stops containers late, and on which containers fail."""
    late, held = st.floats(0.0, 9.0), dict[int, tuple[int, ...]]()
    found, begun = list[RoundRecord](), set[int]()
    for number in range(draw(st.integers(2, 6))):
        clock = 100.0 * number
        ends = list[ContainerEvent]()
        for job in sorted(held):
            if kind := draw(st.sampled_from([None, *PATIENCE])):
                at = clock - draw(st.floats(0.0, 100.0))  # it may be before its launch
                ends.append(event(job, kind, at, *held.pop(job)))
        now, events = draw(st.sampled_from(PLACED)), list[ContainerEvent]()
        for job in sorted(held.keys() - now.keys()):
            events.append(event(job, EventKind.PREEMPTED, clock + draw(late), *held[job]))
        for job, gpus in now.items():
            if held.get(job) != gpus:
                kind = EventKind.RESUMED if job in begun else EventKind.STARTED
                events.append(event(job, kind, clock + draw(late), *gpus))
        held, begun = dict(now), begun | now.keys()
        found.append(
            round_record(
                *(number, clock, ()),
                arrivals=() if number else SPECS,
                commands=() if number else QUOTAS,
                finished=tuple(sorted(ends, key=lambda end: end.at_seconds)),
                solve=CLEARED,
                leases=tuple(Lease(job, gpus) for job, gpus in now.items()),
                events=tuple(events),
            )
        )
    return found


@settings(max_examples=12)
@given(records=rounds())
@pytest.mark.slow
def test_leases_accounts_quotas_and_costs_count_the_same(records: list[RoundRecord]) -> None:
    history = ServiceHistory(START, RunProgress(RunState.initial(START)), None, None)  # type: ignore[arg-type]
    history = replace(history, position=history.before)
    for record, digest, _ in chained(START, records):
        history = history.append(record, digest)
    outcomes = [
        RoundOutcome(r.round, r.clock_seconds, r.finished, r.solve, r.leases, r.events)
        for r in records
    ]
    with TemporaryDirectory() as folder:
        write(Path(folder), START, chained(START, records), compact=False)
        asked = "job_id, seconds, gpus, scale_factor * (seconds - shared_seconds / 2), cost"
        sql = f"SELECT {asked}, market_cost, start_seconds FROM leases ORDER BY job_id, round"
        leases = Analytics(Path(folder)).query(sql)[1]
    by_tenant = defaultdict[str, float](float)
    for spec in SPECS:
        own = [lease for lease in leases if lease[0] == spec.job_id]
        assert all(lease[1] >= 0.0 for lease in own)
        account = make_job_history(history, outcomes, (), spec.job_id, ())
        gpu_seconds = sum(lease[3] for lease in own)
        assert account.gpu_hours * 3600.0 == pytest.approx(gpu_seconds, abs=1e-3)
        assert account.cost == pytest.approx(gpu_seconds * 0.01, abs=1e-5)
        assert account.cost == pytest.approx(sum(lease[4] for lease in own), abs=1e-5)
        paid = sum(lease[5] or 0.0 for lease in own)
        assert (account.market_cost or 0.0) == pytest.approx(paid, abs=1e-3)
        shown = [(row.from_s, row.gpus) for row in account.held]
        assert shown == [(lease[6], tuple(lease[2])) for lease in own]
        by_tenant[spec.tenant] += gpu_seconds
    for tenant, gpu_seconds in by_tenant.items():
        account = history.position.accounts.get(tenant)
        assert (account.gpu_seconds if account else 0.0) == pytest.approx(gpu_seconds, abs=1e-3)
        used = history.state.tenancy.usage[tenant].used
        assert used == pytest.approx(gpu_seconds, abs=1e-3)
