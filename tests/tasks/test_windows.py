"""Nodes that are set aside for a time: for maintenance, or for the jobs of a tenant."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.explain.whatif import Change, fork
from solver.policies import POLICIES
from tasks.commands import NO_TERMS, Command, CommandKind
from tests.runs import Made, check_sound, check_stored, make
from tests.strategies import examples
from tests.tasks.test_cordon import MIXED, SINGLES, held, serve
from tests.tasks.test_eligibility import JOB
from tests.tasks.test_tenancy import LONG
from warehouse.store.audit import audit

BOTH = f'[[jobs]]\n{LONG}tenant = "a"\n[[jobs]]\n{LONG}tenant = "b"\nscale_factor = 8\n'


def window(begin: float, seconds: float, node: int = 1, tenant: str = "") -> Command:
    kind = CommandKind.RESERVE if tenant else CommandKind.MAINTAIN
    terms = replace(NO_TERMS, tenant=tenant, window_hours=seconds / 3600.0)
    return Command(0, kind, node, min(begin, 1.0), begin, terms=terms)


def nodes_of(made: Made, number: int) -> dict[int, set[int]]:
    return {job: {gpu // 2 for gpu in gpus} for job, gpus in held(made)[number].items()}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["shockwave", "fifo", "gavel", "tiresias-las"])
def test_jobs_leave_a_node_for_its_maintenance_and_come_back(tmp_path: Path, policy: str) -> None:
    made = make(serve(tmp_path, SINGLES, window(240.0, 480.0), policy=policy))
    there = [
        (record.clock_seconds, any(1 in nodes for nodes in nodes_of(made, number).values()))
        for number, record in enumerate(made.records[:-1])
    ]
    assert {used for at, used in there if 240.0 <= at < 720.0} == {False}
    assert {used for at, used in there if at < 240.0 or 720.0 <= at < 1_000.0} == {True}
    check_sound(made)
    check_stored(tmp_path, made)


def test_a_job_that_is_not_preempted_stays_to_its_end(tmp_path: Path) -> None:
    text = f"[[jobs]]\n{JOB.replace('checkpointing', 'opaque')}scale_factor = 8\n"
    made = make(serve(tmp_path, text, window(200.0, 9e5), policy="fifo"))
    assert all(now == {1: tuple(range(8))} for now in held(made)[:-1])
    check_sound(made)


def test_a_gang_that_needs_the_node_leaves_and_waits_for_the_end(tmp_path: Path) -> None:
    text = f"[[jobs]]\n{LONG}scale_factor = 8\n"
    made = make(serve(tmp_path, text, window(240.0, 7_200.0), policy="shockwave"))
    without = [n for n, now in enumerate(held(made)[:-1]) if not now]
    begins, ends = made.records[without[0]], made.records[without[-1] + 1]
    assert without == [*range(without[0], without[-1] + 1)]
    assert begins.clock_seconds == pytest.approx(240.0)
    (left,) = begins.events
    assert (left.kind, left.reason) == ("preempted", "node 1 is under maintenance")
    assert ends.clock_seconds == pytest.approx(7_440.0)
    check_sound(made)


def test_a_fork_on_fewer_nodes_keeps_the_windows(tmp_path: Path) -> None:
    commands = window(100.0, 5_000.0), window(200.0, 5_000.0, node=3)
    made = make(serve(tmp_path, SINGLES, *commands, policy="fifo"))
    forked = fork(check_stored(tmp_path, made), tmp_path, 3, Change(gpus=4), tmp_path / "fork")
    assert audit(tmp_path / "fork", forked).findings == ()


@pytest.mark.parametrize("policy", ["shockwave", "fifo", "gandiva-fair"])
def test_a_reserved_node_is_its_tenants(tmp_path: Path, policy: str) -> None:
    made = make(serve(tmp_path, BOTH, window(0.0, 3_600.0, tenant="a"), policy=policy))
    for number, record in enumerate(made.records[:-1]):
        if 0.0 < record.clock_seconds < 3_600.0:
            assert nodes_of(made, number) == {1: {1}}  # the gang of 8 waits
    assert any(2 in now for now in held(made))
    check_sound(made)


windows = st.lists(
    st.builds(
        window,
        st.floats(1.0, 5e3),
        st.floats(60.0, 5e3),
        st.integers(0, 3),
        st.sampled_from(["", "", "a", "b"]),
    ),
    max_size=5,
)
TENANTS = f'{MIXED}[[jobs]]\n{JOB}array = "0-3"\ntenant = "a"\n'


@examples(12)
@given(windows, st.sampled_from(sorted({"shockwave", "fifo", "srtf", "themis"} & {*POLICIES})))
def test_whatever_is_set_aside_the_invariants_hold(
    tmp_path_factory: pytest.TempPathFactory, commands: list[Command], policy: str
) -> None:
    folder = tmp_path_factory.mktemp("windows")
    check_sound(make(serve(folder, TENANTS, *commands, policy=policy)))
