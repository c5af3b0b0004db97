"""Nodes added to a service and removed from it: its rounds, records, and SQL over them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.explain.whatif import Change, fork
from flows.explain.why import why
from predictor.errors import InputError
from predictor.throughput import UNTYPED
from solver.inventory import Pool, add_nodes
from tasks.commands import Command, CommandKind, NewNode
from tasks.record import RuntimeKind, Settings, Start, make_pool
from tests.runs import as_service, check_sound, check_stored, make, mixed, violated, write
from tests.strategies import examples
from tests.tasks.test_cordon import MIXED, held
from tests.tasks.test_eligibility import JOB, start
from warehouse.analytics.questions import Analytics
from warehouse.store.audit import audit

ADD, REMOVE = CommandKind.ADD, CommandKind.REMOVE
Given = list[tuple[CommandKind, int, float]]


def service(
    path: Path, text: str, orders: Given, policy: str = "shockwave", sizes: Sequence[int] = ()
) -> Start:
    """A service on two nodes of two GPUs, whose jobs come at once and before the commands.

    Nodes that are added have two GPUs, or so many in turn.
    """
    new = (NewNode("", UNTYPED, gpus) for gpus in chain(sizes, repeat(2)))
    settings = Settings(policy, make_pool(4, 2), round_seconds=120.0, runtime=RuntimeKind.FAITHFUL)
    return as_service(start(path, text).workload, settings, ordered(orders, new))


def ordered(orders: Given, new: Iterator[NewNode]) -> list[Command]:
    """Orders as commands, with a new node for each addition."""
    return [
        Command(0, order, -1, at, node=next(new)) if order is ADD else Command(0, order, node, at)
        for order, node, at in orders
    ]


SINGLES = f'[[jobs]]\n{JOB}array = "0-7"\n'


@pytest.mark.slow
def test_an_added_node_is_given_out_and_a_removed_one_is_left(tmp_path: Path) -> None:
    made = make(service(tmp_path, SINGLES, [(ADD, -1, 100.0), (REMOVE, 0, 400.0)]))
    rounds = held(made)
    taken = {c.kind: r.round for r in made.records for c in r.commands}
    used = [{gpu for gpus in now.values() for gpu in gpus} for now in rounds]
    assert all(gpus == {0, 1, 2, 3} for gpus in used[: taken[ADD]])
    assert all(gpus == {*range(6)} for gpus in used[taken[ADD] : taken[REMOVE]])
    assert used[taken[REMOVE]] == {2, 3, 4, 5}
    assert all(gpus.isdisjoint({0, 1}) for gpus in used[taken[REMOVE] :])
    preempted = [e for e in made.records[taken[REMOVE]].events if e.kind == "preempted"]
    assert {gpu for event in preempted for gpu in event.gpus} >= {0, 1}
    check_sound(made)
    name = check_stored(tmp_path, made)
    both = [why(1, tmp_path, name, taken[REMOVE] - before) for before in (1, 0)]
    found = [(said.supply.total, said.supply.free, said.supply.drained) for said in both]
    assert found == [(6, 4, ()), (4, 0, ())]
    assert "out of service" not in str(both[1])
    asked = "SELECT busy_gpus + idle_gpus FROM rounds ORDER BY round"
    there = [row[0] for row in Analytics(tmp_path).query(asked, [name])[1]]
    between = taken[REMOVE] - taken[ADD]
    after = len(there) - taken[REMOVE]
    assert there == [4] * taken[ADD] + [6] * between + [4] * after
    asked = "SELECT gpus, gpus_on, changes FROM inventories"
    assert Analytics(tmp_path).query(asked, [name])[1] == [
        (4, [2, 2, 2], [{"round": taken[ADD], "gpus": 2}, {"round": taken[REMOVE], "gpus": -2}])
    ]
    asked = "SELECT max(utilization), min(utilization) > 0.4 FROM run_summary"
    most, used_well = Analytics(tmp_path).query(asked, [name])[1][0]
    assert most <= 1.0
    assert used_well


def test_a_gang_spans_the_node_that_was_added(tmp_path: Path) -> None:
    text = f"[[jobs]]\n{JOB}scale_factor = 4\n[[jobs]]\n{JOB}"
    made = make(service(tmp_path, text, [(ADD, -1, 100.0), (REMOVE, 0, 100.0)]))
    assert (2, 3, 4, 5) in held(made)[-2].values() or (2, 3, 4, 5) in held(made)[1].values()
    check_sound(made)


def test_a_smaller_and_a_larger_node_are_pools_of_their_own(tmp_path: Path) -> None:
    singles = f'[[jobs]]\n{JOB}array = "0-12"\n'
    text = f"{singles}[[jobs]]\n{JOB}scale_factor = 4\n"
    made = make(service(tmp_path, text, [(ADD, -1, 100.0)] * 3, sizes=(1, 4, 4)))
    used = {gpu for now in held(made) for gpus in now.values() for gpu in gpus}
    assert used == {*range(13)}
    check_sound(made)
    name = check_stored(tmp_path, made)
    asked = "SELECT gpus_on FROM inventories"
    assert Analytics(tmp_path).query(asked, [name])[1] == [([2, 2, 1, 4, 4],)]


@pytest.mark.slow
def test_why_knows_no_type_whose_nodes_were_removed(tmp_path: Path) -> None:
    first = mixed("fifo", jobs=4, runtime=RuntimeKind.FAITHFUL)
    orders: Given = [(REMOVE, 0, 1.0), *((REMOVE, node, 700.0) for node in range(1, 7))]
    orders.append((ADD, -1, 1300.0))
    new = iter([NewNode("", "v100", 2)])
    at_once = tuple(replace(spec, arrival_seconds=0.0) for spec in first.workload.specs)
    workload = replace(first.workload, specs=at_once)
    made = make(as_service(workload, first.header.settings, ordered(orders, new)))
    name = write(tmp_path, made.start, made.rounds)
    answers = [why(1, tmp_path, name, number) for number in range(4)]
    found = [(there.supply.total, there.supply.free, there.supply.drained) for there in answers]
    assert found == [(10, 6, ()), (8, 4, ()), (0, 0, ()), (2, 2, ())]
    rhos = [there.prospects.rho for there in answers]
    assert [rho and rho.median for rho in rhos] == [
        pytest.approx(0.391, 0.01),
        pytest.approx(0.480, 0.01),
        None,
        pytest.approx(0.675, 0.01),
    ]


@pytest.mark.slow
def test_a_fork_has_the_nodes_of_its_run(tmp_path: Path) -> None:
    made = make(service(tmp_path, SINGLES, [(ADD, -1, 100.0), (REMOVE, 0, 400.0)]))
    name, last = write(tmp_path, made.start, made.rounds), len(made.rounds) - 1
    for change in (Change(gpus=8), Change(pools=make_pool(8, 2, UNTYPED))):
        for number in (0, last):
            with pytest.raises(InputError, match="nodes were added to or removed from"):
                fork(name, tmp_path, number, change, tmp_path / "fork")
    forked = fork(name, tmp_path, 2, Change(policy="fifo"), tmp_path / "fork")
    assert audit(tmp_path / "fork", forked).findings == ()


def test_an_audit_finds_what_is_launched_where_no_node_is(tmp_path: Path) -> None:
    made = make(service(tmp_path, SINGLES, [(ADD, -1, 100.0)]))
    number = next(r.round for r in made.records if r.commands)
    records = list(made.records)
    records[number] = replace(records[number], commands=())
    assert "there is no GPU 4" in violated(made, records)
    made = make(service(tmp_path, SINGLES, [(REMOVE, 0, 100.0)]))
    records = list(made.records)
    number = next(r.round for r in records if r.commands)
    records[number] = replace(records[number], solve=replace(records[number].solve, drained=()))
    assert "node 0 is in service against an order" in violated(made, records)


@pytest.mark.parametrize("per_node", [1, 2])
def test_numbers_stay_when_nodes_are_added(per_node: int) -> None:
    pools = (Pool("a", 4, 2), Pool("b", 2, per_node, 1.0))
    added = [Pool("b", 2, 2, 1.0), Pool("a", 2, 2), Pool("a", 2, 2)]
    added += [Pool("a", 1, 1), Pool("a", 4, 4), Pool("b", 2, 2)]
    found = add_nodes(pools, added)
    alike = (Pool("b", 4, 2, 1.0),) if per_node == 2 else (pools[1], added[0])
    assert found == (pools[0], *alike, Pool("a", 4, 2), *added[3:])


orders = st.lists(
    st.tuples(
        st.sampled_from([ADD, REMOVE, CommandKind.DRAIN, CommandKind.UNCORDON]),
        st.integers(0, 2),
        st.floats(1.0, 1e4),
    ),
    max_size=5,
)


@examples(10)
@given(orders, st.sampled_from(["shockwave", "fifo", "gavel"]))
def test_whatever_is_ordered_the_invariants_hold(
    tmp_path_factory: pytest.TempPathFactory, given_orders: Given, policy: str
) -> None:
    undone: Given = [(ADD, -1, 12_000.0), (ADD, -1, 12_001.0)]
    asked = [*sorted(given_orders, key=lambda order: order[2]), *undone]
    check_sound(make(service(tmp_path_factory.mktemp("nodes"), MIXED, asked, policy)))
