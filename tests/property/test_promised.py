"""Tenants have the cells that they are promised, under every policy."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from flows.explain.sentences import NO_BOUND
from flows.explain.why import why
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from predictor.errors import InputError
from predictor.job import JobSpec
from predictor.rows import from_json, to_json
from solver.cells.declared import TenantCells, TypeLevel
from solver.inventory import Pool
from solver.promised import PolicyMemory
from tasks.commands import Command, CommandKind, TenantTerms
from tasks.record import Parameter, RuntimeKind, Settings, Start
from tasks.round import run_round
from tests.runs import Made, Memory, check_sound, make, mixed, violated, write
from tests.strategies import examples
from warehouse.workloads.generator import generate_workload

TENANTS = ("vision", "speech", "other")
LEVELS = (TypeLevel("", "pair", 2), TypeLevel("", "node", 2), TypeLevel("", "rack", 2))


def start(
    policy: str, nodes: int, cells: tuple[TenantCells, ...], seed: int, jobs: int = 10
) -> Start:
    """A run of generated jobs of three tenants, which arrive within an hour or so."""
    workload = generate_workload(
        jobs, rng=np.random.default_rng(seed), mean_interarrival_seconds=400.0
    )
    specs = tuple(
        replace(spec, tenant=TENANTS[spec.job_id % len(TENANTS)]) for spec in workload.specs
    )
    asked = Settings(
        policy,
        (Pool("", 4 * nodes, 4),),
        round_seconds=600.0,
        runtime=(RuntimeKind.VIRTUAL, RuntimeKind.FAITHFUL)[seed % 2],
        levels=LEVELS,
        cells=cells,
    )
    return make_start(replace(workload, specs=specs), asked)


@st.composite
def starts(draw: st.DrawFn, policy: str) -> Start:
    """Runs of which the promises can be kept."""
    cells = tuple(
        TenantCells(tenant, "", level, number)
        for tenant in TENANTS[:2]
        for level in ("gpu", "pair", "node", "rack")
        if (number := draw(st.integers(0, 2)))
    )
    nodes = draw(st.sampled_from((2, 4, 6)))
    try:
        return start(policy, nodes, cells, draw(st.integers(0, 99)))
    except InputError:  # promises that do not fit, or a job that does not
        assume(False)
        raise


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["shockwave", "fifo", "gavel"])
@settings(examples(3), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_promises_are_kept_in_every_round(policy: str, data: st.DataObject) -> None:
    check_sound(make(data.draw(starts(policy))))


CELLS = (TenantCells("vision", "", "node", 1), TenantCells("speech", "", "pair", 1))


@pytest.mark.slow
def test_an_overdue_job_that_trades_waits_for_those_before_it_and_for_cells_only() -> None:
    waited = 0
    for seed in range(3):
        begun = start("shockwave", 2, CELLS, seed, jobs=24)
        asked = replace(begun.header.settings, parameters=(Parameter("overdue", 0.2),))
        with prepare(make_start(begun.workload, asked)).open_run(Memory()) as run:
            while not run.finished:
                this = run_round(run)
                gpus = {job: len(held) for job, held in this.plan.placement.items()}
                before = sum(number for job, number in gpus.items() if job not in this.plan.order)
                first_by = zip(this.plan.order, this.plan.first_by, strict=True)
                for job in (job for job, seconds in first_by if seconds == 0.0):
                    if job in gpus:
                        before += gpus[job]
                    else:
                        assert before > 8 - this.active[job].gang
                        waited += 1
    assert waited > 5


@pytest.fixture(scope="module")
def made() -> Made:
    return make(start("srtf", 2, CELLS, 4, jobs=14))


def inside(made: Made) -> Iterator[tuple[int, PolicyMemory]]:
    """Rounds whose plans note that somebody is in cells."""
    for record in made.records:
        noted = from_json(PolicyMemory, record.memory)
        if noted.held:
            yield record.round, noted


def test_jobs_in_cells_keep_their_gpus_to_their_end_and_others_trade(made: Made) -> None:
    specs: dict[int, JobSpec] = {spec.job_id: spec for spec in made.specs}
    ever = {job.job_id for _, noted in inside(made) for job in noted.held}
    assert {specs[job].tenant for job in ever} == {"vision", "speech"}
    events = [event for record in made.records for event in record.events]
    preempted = {event.job_id for event in events if event.kind == "preempted"}
    assert preempted, "the rest is traded, and idle cells with it"
    for number, noted in inside(made):
        held = {job.job_id: job.whole for job in noted.held}
        leases = {lease.job_id: lease.gpus for lease in made.records[number].leases}
        assert held.items() <= leases.items()
        following = made.records[number + 1 : number + 2]
        ended = {event.job_id for record in following for event in record.finished}
        for record in following:
            later = {lease.job_id: lease.gpus for lease in record.leases}
            assert all(later[job] == held[job] for job in held.keys() - ended)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda held: held[1:], "cells of tenant"),
        (
            lambda held: (replace(held[0], gpus=((7,),), levels=(("pair",),)), *held[1:]),
            "does not hold their GPUs",
        ),
    ],
)
def test_an_audit_finds_promises_that_are_not_kept(made: Made, change: object, said: str) -> None:
    number, noted = next(inside(made))
    forged = replace(noted, held=change(noted.held))  # type: ignore[operator]
    records = made.records[: number + 1]
    records[-1] = replace(records[-1], memory=to_json(forged))
    assert said in " ".join(violated(made, records))


def test_why_tells_who_is_in_cells_and_why_others_are_not(made: Made, tmp_path: Path) -> None:
    run = write(tmp_path, made.start, made.rounds)
    number, noted = next(inside(made))
    first = why(noted.held[0].job_id, tmp_path, run, number)
    assert "It runs in cells promised to its tenant (" in str(first)
    outside = next(
        (record.round, spec.job_id)
        for record, state in zip(made.records, made.states[1:], strict=True)
        for spec in [belief.spec for belief in state.beliefs.values()]
        if record.round >= number
        and spec.tenant == "vision"
        and spec.job_id not in {job.job_id for job in from_json(PolicyMemory, state.memory).held}
    )
    other = why(outside[1], tmp_path, run, outside[0])
    assert other.line.promised == "too few cells of tenant 'vision' in pool '0'"
    assert "It has no cells of its tenant, so it competes with all jobs: too few" in str(other)
    assert (NO_BOUND in str(other), NO_BOUND in str(first)) == (True, False)


@pytest.mark.parametrize("policy", ["gandiva", "shockwave"])
@pytest.mark.slow
def test_jobs_that_share_gpus_or_choose_types_trade_beside_cells(policy: str) -> None:
    plain = mixed(policy, jobs=14, together=0.8 if policy == "gandiva" else 0.0)
    specs = tuple(
        replace(spec, tenant=TENANTS[spec.job_id % len(TENANTS)]) for spec in plain.workload.specs
    )
    asked = plain.header.settings
    kinds = asked.inventory.types
    cells = (TenantCells("vision", kinds[0], "gpu", 2), TenantCells("speech", kinds[1], "gpu", 2))
    made = make(make_start(replace(plain.workload, specs=specs), replace(asked, cells=cells)))
    check_sound(made)
    assert any(True for _ in inside(made))
    assert any(record.pairs for record in made.records) == (policy == "gandiva")


def test_an_audit_expects_no_cells_of_opportunistic_jobs() -> None:
    plain = start("fifo", 2, CELLS, 4, jobs=14)
    specs = tuple(
        replace(spec, opportunistic=spec.job_id % 2 == 1) for spec in plain.workload.specs
    )
    made = make(make_start(replace(plain.workload, specs=specs), plain.header.settings))
    check_sound(made)
    guaranteed = {job.job_id for _, noted in inside(made) for job in noted.held}
    assert guaranteed
    assert not guaranteed & {spec.job_id for spec in specs if spec.opportunistic}


def commanded(command: Command) -> Made:
    """A service with cells that takes in a command at half an hour."""
    plain = start("srtf", 2, CELLS, 4, jobs=14)
    known = plain.workload
    before = sum(spec.arrival_seconds < command.at_seconds for spec in known.specs)
    ids = {spec.job_id: at + 1 + (at >= before) for at, spec in enumerate(known.specs)}
    workload = replace(
        known,
        specs=tuple(replace(spec, job_id=ids[spec.job_id]) for spec in known.specs),
        truths=tuple(replace(truth, job_id=ids[truth.job_id]) for truth in known.truths),
        commands=(replace(command, number=before + 1),),
        service=True,
    )
    return make(make_start(workload, plain.header.settings, service=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        Command(1, CommandKind.CORDON, 0, 1_800.0),
        Command(1, CommandKind.CORDON, 1, 1_800.0),
        Command(1, CommandKind.TENANT, -1, 1_800.0, terms=TenantTerms("vision", gpu_hours=1.0)),
    ],
    ids=["cordon 0", "cordon 1", "quota"],
)
def test_no_job_gets_cells_on_a_cordoned_node_or_over_its_quota(command: Command) -> None:
    made = commanded(command)
    check_sound(made)
    kept = made.run.state
    assert kept.orders.cordoned or kept.tenancy.usage
