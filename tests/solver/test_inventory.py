"""Inventories of clusters, by hand and on random pools."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Allocation, Demand
from predictor.errors import InputError
from solver.inventory import InService, Inventory, Pool
from tests.strategies import among, cluster

MIXED = Inventory((Pool("v100", 8, 4), Pool("k80", 6, 2), Pool("v100", 4, 2)))
"""GPUs 0 to 7 on nodes 0 and 1, 8 to 13 on nodes 2 to 4, 14 to 17 on nodes 5 and 6."""


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    """One to four pools of three types; a type may have several."""
    pools = []
    for _ in range(draw(st.integers(1, 4))):
        size, nodes = draw(among(1, 2, 3, 4)), draw(st.integers(1, 4))
        pools.append(Pool(draw(among("v100", "k80", "p100")), size * nodes, size))
    return Inventory(tuple(pools))


@pytest.mark.parametrize(("gpus", "size"), [(8, 3), (8, 0), (4, 8)])
def test_nodes_are_whole(gpus: int, size: int) -> None:
    with pytest.raises(InputError, match="are not whole nodes"):
        Pool("gpu", gpus, size)


@pytest.mark.parametrize("gpus", [0, -3])
def test_a_pool_has_gpus(gpus: int) -> None:
    with pytest.raises(InputError, match="is not positive"):
        Pool("gpu", gpus)


def test_a_pool_of_more_gpus_than_any_cluster_has_is_refused() -> None:
    with pytest.raises(InputError, match="out of range"):
        Pool("gpu", 1_000_001)


def test_gpus_and_nodes_are_numbered_through_the_pools() -> None:
    assert (MIXED.gpus, MIXED.nodes) == (18, 7)
    assert [MIXED.node(gpu) for gpu in (0, 7, 8, 10, 13, 14, 17)] == [0, 1, 2, 3, 4, 5, 6]
    assert [MIXED.gpus_of(node) for node in (1, 2, 5)] == [range(4, 8), range(8, 10), range(14, 16)]


def test_gpus_are_counted_by_type() -> None:
    assert MIXED.types == ("v100", "k80")
    assert MIXED.capacities == {"v100": 12, "k80": 6}


@pytest.mark.parametrize("number", [18, 10_000])
def test_a_gpu_or_node_beyond_the_last_is_refused(number: int) -> None:
    with pytest.raises(IndexError, match=f"no GPU {number}"):
        MIXED.node(number)
    with pytest.raises(IndexError, match=f"no node {number}"):
        MIXED.gpus_of(number)


def test_a_gang_bids_for_each_type_of_which_a_pool_has_enough() -> None:
    assert MIXED.menu(Demand.gang(5)) == (
        Allocation("v100", 5, nodes=2),
        Allocation("k80", 5, nodes=3),
    )
    assert MIXED.menu(Demand.gang(8)) == (Allocation("v100", 8, nodes=2),)
    assert MIXED.menu(Demand.gang(9)) == ()


def test_of_two_pools_of_a_type_a_job_bids_for_the_one_with_fewer_nodes() -> None:
    pools = Pool("v100", 6, 2), Pool("v100", 4, 4)
    expected = tuple(Allocation("v100", gpus, nodes) for gpus, nodes in ((3, 1), (4, 1), (5, 3)))
    assert Inventory(pools).menu(Demand(3, 5)) == expected


def test_a_job_bids_for_the_types_that_it_can_run_on() -> None:
    assert MIXED.menu(Demand(2, 2, ("k80",))) == (Allocation("k80", 2),)
    assert MIXED.menu(Demand(2, 2, ("a100",))) == ()


def test_an_elastic_job_bids_for_every_number_of_gpus_up_to_all_there_are() -> None:
    assert cluster(6, 2).menu(Demand(3, 9)) == tuple(
        Allocation("gpu", gpus, nodes) for gpus, nodes in ((3, 2), (4, 2), (5, 3), (6, 3))
    )


@given(inventories())
def test_every_gpu_is_on_the_node_that_has_it(inventory: Inventory) -> None:
    by_node = [gpu for node in range(inventory.nodes) for gpu in inventory.gpus_of(node)]
    assert by_node == list(range(inventory.gpus))
    for node in range(inventory.nodes):
        gpus = inventory.gpus_of(node)
        assert {inventory.node(gpu) for gpu in gpus} == {node}
    assert sum(inventory.capacities.values()) == inventory.gpus


@given(inventories(), st.integers(1, 5), st.integers(0, 3))
def test_every_allocation_of_a_menu_can_be_had_and_on_no_fewer_nodes(
    inventory: Inventory, least: int, more: int
) -> None:
    demand = Demand(least, least + more)
    menu = inventory.menu(demand)
    assert len(menu) == len({(asked.gpu_type, asked.gpus) for asked in menu})
    for asked in menu:
        assert demand.least <= asked.gpus <= demand.most
        assert asked.gpus <= inventory.capacities[asked.gpu_type]
        had = first_of_pools(inventory, asked.gpus)
        assert asked == min(found for found in had if found.gpu_type == asked.gpu_type)
    largest = max(pool.gpus for pool in inventory.pools)
    assert bool(menu) == (least <= largest)


def first_of_pools(inventory: Inventory, gpus: int) -> list[Allocation]:
    """The first GPUs of each pool that has enough."""
    found, first = [], 0
    for pool in inventory.pools:
        if pool.gpus >= gpus:
            nodes = {inventory.node(gpu) for gpu in range(first, first + gpus)}
            found.append(Allocation(pool.gpu_type, gpus, len(nodes)))
        first += pool.gpus
    return found


def types(inventory: Inventory) -> list[str]:
    """The type of each GPU."""
    return [pool.gpu_type for pool in inventory.pools for _ in range(pool.gpus)]


def test_nodes_in_service_are_numbered_without_gaps() -> None:
    nodes = InService(cluster(16, 4), (1,))
    assert nodes.inventory == cluster(12, 4)
    assert nodes.numbered((0, 3, 8, 15)) == (0, 3, 4, 11)
    assert nodes.known_as((0, 3, 4, 11)) == (0, 3, 8, 15)
    assert nodes.numbered((3, 4)) == ()  # one of them is out of service
    assert nodes.numbered((15, 16)) == ()  # one of them is not there
    assert nodes.numbered(()) == ()
    assert InService(cluster(8, 4), (0, 1)).inventory is None
    assert nodes.without(frozenset({1, 3})) == cluster(8, 4)
    assert nodes.without(frozenset({1, 3})) is nodes.without(frozenset({3, 1})), "made once"
    assert nodes.without(frozenset({0, 2, 3})) is None


def test_a_pool_without_a_node_in_service_is_left_out() -> None:
    nodes = InService(MIXED, (0, 2, 3, 4))
    assert nodes.inventory == Inventory((Pool("v100", 4, 4), Pool("v100", 4, 2)))
    assert nodes.numbered((4, 7, 14, 17)) == (0, 3, 4, 7)
    assert nodes.known_as((0, 3, 4, 7)) == (4, 7, 14, 17)
    assert nodes.numbered((8,)) == ()


@given(inventories(), st.data())
def test_what_is_in_service_is_numbered_there_and_back(
    whole: Inventory, data: st.DataObject
) -> None:
    drained = sorted(data.draw(st.sets(st.integers(0, whole.nodes - 1))))
    nodes, gone = InService(whole, drained), set(drained)
    left = [gpu for gpu in range(whole.gpus) if whole.node(gpu) not in gone]
    if nodes.inventory is None:
        assert left == []
        return
    inventory = nodes.inventory
    assert (inventory.gpus, inventory.nodes) == (len(left), whole.nodes - len(drained))
    every = tuple(range(len(left)))
    assert nodes.known_as(every) == tuple(left)
    assert nodes.numbered(left) == every
    assert types(inventory) == [types(whole)[gpu] for gpu in left]
    gpus = sorted(data.draw(st.sets(st.integers(0, whole.gpus - 1), min_size=1)))
    there_too = nodes.numbered(gpus)
    if gone.isdisjoint(map(whole.node, gpus)):
        assert nodes.known_as(there_too) == tuple(gpus)
        # GPUs of a node stay together, in order.
        for here, there in zip(gpus, there_too, strict=True):
            assert whole.gpus_of(whole.node(here)).index(here) == inventory.gpus_of(
                inventory.node(there)
            ).index(there)
        assert len({*map(inventory.node, there_too)}) == len({*map(whole.node, gpus)})
    else:
        assert there_too == ()
