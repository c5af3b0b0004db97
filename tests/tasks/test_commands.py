"""Commands that a service takes in: their effects, and their replay from records alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.runtime import EventKind
from flows.explain.replay import replay
from flows.explain.whatif import Change, whatif
from flows.explain.why import why
from flows.runs.start import make_start
from tasks.commands import NO_NODE, Command, CommandKind, NewNode
from tasks.invariants import Invariants
from tasks.record import RuntimeKind, Settings, Start, make_pool
from tasks.state import RunState, advance
from tests.runs import chained, make, write
from tests.strategies import examples
from warehouse.analytics.questions import Analytics
from warehouse.store.audit import audit
from warehouse.store.reader import Reader, add_taken_in
from warehouse.workloads.generator import generate_workload
from warehouse.workloads.mix import Mix

JOBS = 5
MIX = Mix(shortest_seconds=6_000.0, longest_seconds=9_000.0, scale_factors={1: 1.0})
KINDS = [kind for kind in CommandKind if kind not in (CommandKind.REFUSED, CommandKind.REMOVE)]

Given = list[tuple[CommandKind, int, float, bool]]
"""Kinds, which job or node, when, and whether a hold is undone later; a drain always is."""

given_orders = st.lists(
    st.tuples(
        st.sampled_from(KINDS), st.integers(0, JOBS + 2), st.floats(0.0, 20_000.0), st.booleans()
    ),
    max_size=12,
)
UNDONE = {CommandKind.HOLD: CommandKind.RELEASE, CommandKind.DRAIN: CommandKind.UNCORDON}


def service(given: Given) -> Start:
    """A service on 4 nodes of 2 GPUs whose jobs and commands are known beforehand."""
    made = generate_workload(
        JOBS, rng=np.random.default_rng(3), mean_interarrival_seconds=300.0, mix=MIX
    )
    entries: list[tuple[float, CommandKind | None, int]] = [
        (spec.arrival_seconds, None, place) for place, spec in enumerate(made.specs)
    ]
    for kind, target, at, later in given:
        entries.append((at, kind, target % 4 if kind.of_node else target))
        if kind is CommandKind.DRAIN or (kind is CommandKind.HOLD and later):
            entries.append((at + 3_000.0, UNDONE[kind], entries[-1][2]))
    entries.sort(key=lambda entry: entry[0])
    numbered = list(enumerate(entries, start=1))
    ids = {target: number for number, (_, kind, target) in numbered if kind is None}
    jobs = [(ids[place], spec, made.truths[place]) for place, spec in enumerate(made.specs)]
    truths = tuple(replace(truth, job_id=job_id) for job_id, _, truth in jobs)
    workload = replace(
        made,
        specs=tuple(replace(spec, job_id=job_id) for job_id, spec, _ in jobs),
        truths=truths,
        service=True,
        commands=tuple(
            Command(
                number,
                kind,
                target if kind.of_node else ids.get(target, 99),
                at,
                value=3.0 if kind is CommandKind.BUDGET else 0.0,
                node=NewNode("", "v100", 2) if kind is CommandKind.ADD else NO_NODE,
            )
            for number, (at, kind, target) in numbered
            if kind is not None
        ),
    )
    settings = Settings(
        "shockwave", make_pool(8, 2), round_seconds=600.0, runtime=RuntimeKind.FAITHFUL
    )
    return make_start(workload, settings, service=True)


@examples(15)
@given(given_orders)
def test_orders_are_obeyed_and_the_records_alone_say_so(given: Given) -> None:
    start = service(given)
    made = make(start)
    state = RunState.initial(start)
    for record, digest, _ in made.rounds:
        state = advance(start.header, state, record, digest)
    assert state == made.states[-1]
    nothing = replace(start.workload, specs=(), truths=(), commands=())
    workload = add_taken_in(nothing, made.records)
    assert workload == start.workload
    invariants = Invariants(start.header, workload)
    assert [problem for record in made.records for problem in invariants.check(record)] == []
    for record, after in zip(made.records, made.states[1:], strict=True):
        assert all(after.orders.may_run(lease.job_id) for lease in record.leases)
    cancelled = {c.target for c in workload.commands if c.kind is CommandKind.CANCEL}
    ends = [event for record in made.records for event in record.finished]
    assert {e.job_id for e in ends if e.kind is EventKind.WITHDRAWN} <= cancelled
    unended = {spec.job_id for spec in workload.specs} - {event.job_id for event in ends}
    assert unended <= state.orders.held


GIVEN: Given = [
    (CommandKind.HOLD, 0, 700.0, True),
    (CommandKind.REQUEUE, 1, 1_300.0, False),
    (CommandKind.CANCEL, 2, 1_900.0, False),
    (CommandKind.BUDGET, 3, 2_500.0, False),
    (CommandKind.DRAIN, 3, 3_100.0, False),
]


def test_each_command_has_its_effect_and_only_that() -> None:
    start = service(GIVEN)
    made = make(start)
    ids = [spec.job_id for spec in made.specs]
    taken = {c.kind: r.round for r in made.records for c in r.commands}
    holds = [{lease.job_id for lease in record.leases} for record in made.records]
    held = range(taken[CommandKind.HOLD], taken[CommandKind.RELEASE])
    assert ids[0] in holds[held.start - 1]
    assert not any(ids[0] in holds[number] for number in held)
    assert ids[0] in holds[held.stop]
    requeued = taken[CommandKind.REQUEUE]
    assert [ids[1] in holds[requeued + step] for step in (-1, 0, 1)] == [True, False, True]
    cancelled = taken[CommandKind.CANCEL]
    assert made.records[cancelled + 1].ended == (ids[2],)
    assert ids[2] in holds[cancelled - 1]
    assert ids[2] not in holds[cancelled]
    weighed = taken[CommandKind.BUDGET]
    budgets = [state.beliefs[ids[3]].spec.budget for state in made.states[weighed : weighed + 2]]
    assert budgets == [1.0, 3.0]
    drained = range(taken[CommandKind.DRAIN], taken[CommandKind.UNCORDON])
    assert {r.round for r in made.records if r.solve.drained == (3,)} == {*drained}


@pytest.mark.slow
def test_a_history_with_commands_is_audited_replayed_explained_and_forked(tmp_path: Path) -> None:
    made = make(service(GIVEN))
    name = write(tmp_path, made.start, made.rounds, compact=False)
    assert name.startswith("service-")
    reader = Reader(tmp_path)
    assert reader.start(name) == made.start
    assert reader.records(name) == [(record, digest) for record, digest, _ in made.rounds]
    found = audit(tmp_path, name)
    assert (found.findings, found.jobs, found.unended) == ((), JOBS, 0)
    compared = replay(name, tmp_path)
    assert (compared.differences, compared.complete) == ([], True)
    ids = [spec.job_id for spec in made.specs]
    assert why(ids[0], tmp_path, name, 2).job.job_id == ids[0]
    asked = "SELECT job_id, isolated_seconds, jct_seconds FROM job_outcomes ORDER BY job_id"
    rows = Analytics(tmp_path).query(asked, [name])[1]
    assert [row[:2] for row in rows] == [
        (t.job_id, t.isolated_seconds) for t in made.start.workload.truths
    ]
    assert [row[2] is None for row in rows] == [job_id == ids[2] for job_id in ids]
    same = whatif(name, tmp_path, 4, Change())
    assert all(before == after for _, before, after in same.figures)
    other = whatif(name, tmp_path, 4, Change(gpus=4))
    assert dict((figure, after) for figure, _, after in other.figures)["makespan_s"]


def test_an_audit_finds_an_entry_that_was_taken_in_twice(tmp_path: Path) -> None:
    made = make(service(GIVEN))
    number = next(record.round for record in made.records if record.commands)
    records = list(made.records)
    records[number] = replace(records[number], commands=records[number].commands * 2)
    name = write(tmp_path, made.start, chained(made.start, records), compact=False)
    problems = [finding.problem for finding in audit(tmp_path, name).findings]
    assert any("are taken in, not" in problem for problem in problems)
