"""Tenants: quotas over windows, budgets, priorities, and their replay from records."""

from collections import defaultdict, deque
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.explain.sentences import describe_answer
from flows.explain.why import why
from flows.runs.simulation import prepare
from predictor.allocation import Demand
from predictor.belief import Belief
from predictor.job import JobKind, JobSpec, make_timed_job
from predictor.options import JobOptions
from solver.deciding import place
from tasks.commands import Command, CommandKind, TenantTerms
from tasks.queue_simulation import QueuedJob, QueueSimulation
from tasks.record import RuntimeKind, Settings, Start, make_pool
from tasks.tenancy import QuotaUse, Tenancy, may_use_image
from tests.runs import Memory, as_service, check_stored, make, planned, violated
from tests.tasks.test_eligibility import JOB, start

HOUR = 3600.0
ROUND = 120.0
QUOTA, CARRIED = 1.0, 0.5
TERMS = TenantTerms("a", gpu_hours=QUOTA, window_hours=1.0, rollover=CARRIED)


def service(path: Path, text: str, *terms: TenantTerms) -> Start:
    """A service whose jobs come at once, and the terms of tenants after them."""
    settings = Settings(
        "shockwave", make_pool(4), round_seconds=ROUND, runtime=RuntimeKind.FAITHFUL
    )
    commands = [Command(0, CommandKind.TENANT, -1, 0.0, terms=new) for new in terms]
    return as_service(start(path, text).workload, settings, commands)


LONG = JOB.replace("1000", "9000")
TWO = f'[[jobs]]\n{LONG}tenant = "a"\nscale_factor = 2\n[[jobs]]\n{LONG}tenant = "b"\n'


@pytest.mark.slow
def test_a_quota_holds_in_each_window_and_what_is_left_is_carried_over(tmp_path: Path) -> None:
    made = make(service(tmp_path, TWO, TERMS))
    used = defaultdict[int, float](float)
    for record in made.records:
        held = sum(len(lease.gpus) for lease in record.leases if lease.job_id == 1)
        used[int(record.clock_seconds // HOUR)] += held * ROUND
    most, over = QUOTA * HOUR, 2 * ROUND
    assert used[0] == pytest.approx(most)
    assert all(seconds <= most + over for seconds in used.values())
    assert sum(used.values()) >= 9000.0
    others = [r for r in made.records if 2 in {lease.job_id for lease in r.leases}]
    assert len(others) >= 9000.0 / ROUND  # nobody else waits
    name = check_stored(tmp_path, made)
    waits = next(r.round for r in made.records if 1 not in {lease.job_id for lease in r.leases})
    answer = why("1", tmp_path, name, waits)
    assert answer.obstacles.quota_until_seconds == HOUR
    assert "Tenant a has used up its quota of GPU-hours until 3,600 s." in [
        *describe_answer(answer)
    ]
    assert answer.prospects.start_seconds is not None
    assert answer.prospects.start_seconds.median >= HOUR


def test_an_opaque_job_keeps_its_gpus_over_its_quota(tmp_path: Path) -> None:
    opaque = TWO.replace("checkpointing", "opaque", 1)
    made = make(service(tmp_path, opaque, TERMS))
    held = [1 in {lease.job_id for lease in record.leases} for record in made.records]
    assert held[: held.index(False)] == [True] * held.index(False)
    assert held.count(True) >= 9000.0 / ROUND


def test_a_quota_is_charged_until_a_job_ends(tmp_path: Path) -> None:
    text = f'[[jobs]]\n{JOB}tenant = "a"\nscale_factor = 2\nseconds = 130\n[[jobs]]\n{JOB}'
    made = make(service(tmp_path, text, TERMS))
    (end,) = [e for record in made.records for e in record.finished if e.job_id == 1]
    assert end.at_seconds % ROUND  # it ends within a round
    assert made.run.state.tenancy.usage["a"].used == pytest.approx(2 * end.at_seconds)


def test_a_play_charges_jobs_that_end_in_it_until_they_end(tmp_path: Path) -> None:
    text = f'[[jobs]]\n{JOB}tenant = "a"\nscale_factor = 2\n'
    with prepare(service(tmp_path, text, TERMS)).open_run(Memory()) as run:
        this, now = planned(run)
        now = replace(now, restart_seconds=0.0)
        jobs = {1: QueuedJob(this.active[1], 130.0)}
        rng, tenancy = np.random.default_rng(1), this.state.tenancy
        play = QueueSimulation(partial(place, run.policy), now, jobs, deque(), rng, tenancy)
        play.run(this.plan, {1})
    assert play.ends == {1: 130.0}
    assert play.tenancy.usage["a"].used == pytest.approx(2 * 130.0)


def test_an_audit_finds_a_job_that_runs_over_a_quota(tmp_path: Path) -> None:
    made = make(service(tmp_path, TWO, TERMS))
    for terms, said in ((TERMS, ""), (replace(TERMS, gpu_hours=0.5), "job 1 is launched, and its")):
        found = violated(
            made,
            (
                replace(r, commands=tuple(replace(c, terms=terms) for c in r.commands))
                for r in made.records
            ),
        )
        assert said in " ".join(found)
        assert bool(said) is bool(found)


@given(
    st.lists(st.tuples(st.floats(0.0, 5 * HOUR), st.floats(0.0, HOUR)), max_size=20),
    st.floats(0.0, 3.0),
)
def test_no_more_is_carried_over_than_was_left_and_may_be(
    rounds: list[tuple[float, float]], rollover: float
) -> None:
    terms = replace(TERMS, rollover=rollover)
    command = Command(1, CommandKind.TENANT, -1, 0.0, terms=terms)
    tenancy, clock = Tenancy().after(0.0, {}, [command]), 0.0
    for passed, held in rounds:
        clock += passed
        tenancy = tenancy.after(clock, {"a": held}, ())
        found = tenancy.usage["a"]
        assert found.window == int(clock // HOUR)
        assert 0.0 <= found.carried <= rollover * HOUR + 1e-6
        assert found.carried <= max(QUOTA * HOUR * found.window, 0.0) + 1e-6
        until = tenancy.spent_until("a")
        assert (until is not None) == (found.used >= QUOTA * HOUR + found.carried)
        assert until is None or until > clock - 1e-6


def test_idle_windows_are_rolled_over_one_by_one() -> None:
    terms = replace(TERMS, rollover=2.5)
    assert QuotaUse().at(2 * HOUR, terms) == QuotaUse(2, 0.0, 2 * HOUR)
    assert QuotaUse().at(9 * HOUR, terms) == QuotaUse(9, 0.0, 2.5 * HOUR)
    assert QuotaUse(0, 0.75 * HOUR).at(HOUR, terms) == QuotaUse(1, 0.0, 0.25 * HOUR)


def job(job_id: int, tenant: str, budget: float = 1.0, priority: float = 1.0) -> Belief:
    options = JobOptions(priority=priority)
    spec: JobSpec = make_timed_job(
        job_id,
        JobKind.CHECKPOINTING,
        Demand.gang(1),
        900.0,
        0.0,
        image="a",
        tenant=tenant,
        budget=budget,
        options=options,
    )
    return Belief(spec)


def test_priorities_divide_what_a_tenant_has_and_touch_no_other() -> None:
    beliefs = {1: job(1, "a", priority=3.0), 2: job(2, "a"), 3: job(3, "b"), 4: job(4, "a", 2.0)}
    tenancy = Tenancy({"a": TenantTerms("a", budget=2.0)}, {})
    assert Tenancy().divide_budgets({3: beliefs[3]}, [3]) == {}
    found = tenancy.divide_budgets(beliefs, [1, 2, 3])
    assert found == {1: pytest.approx(3.0), 2: pytest.approx(1.0)}  # 2 × (1 + 1) in all
    assert sum(tenancy.divide_budgets(beliefs, [1, 2, 3, 4]).values()) == pytest.approx(8.0)
    assert Tenancy().divide_budgets(beliefs, [2, 3, 4]) == {2: 1.0, 4: 2.0}


def test_a_job_of_a_higher_priority_goes_first(tmp_path: Path) -> None:
    wide = f'{LONG}scale_factor = 4\ntenant = "a"\n'
    text = f"[[jobs]]\n{wide}[[jobs]]\n{wide}priority = 9\n"
    made = make(service(tmp_path, text))
    assert [lease.job_id for lease in made.records[0].leases] == [2]
    budgets = {bid.job_id for bid in made.records[0].bids}
    assert budgets == {1, 2}


def test_terms_of_images_are_patterns() -> None:
    terms = TenantTerms("a", images=("team/*:v?", "x@sha256:*"))
    named = ("", "team/train:v1", "x@sha256:" + "0" * 64, "team/train:v10", "y")
    assert [may_use_image(terms, image) for image in named] == [True, True, True, False, False]
    assert may_use_image(None, "y")
