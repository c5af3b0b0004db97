"""Claims by placement: gangs are consolidated where that is worth the restarts."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Allocation, Demand
from predictor.belief import Belief
from predictor.job import JobSpec, Mode
from predictor.throughput import Profile
from solver.inventory import Inventory, Pool
from solver.list_scheduling import make_claims, next_round, split_by_placement
from solver.plan import ActiveJob, Situation
from tests.strategies import among, certain, examples

NODES = Inventory((Pool("v100", 4, 2), Pool("k80", 4, 2)))
"""V100s 0 to 3, K80s 4 to 7, two a node."""

Key = tuple[str, int, str, int]


def job(
    job_id: int,
    gpus: int,
    profile: Profile,
    held: tuple[int, ...] = (),
    *,
    epochs: float = 1_000.0,
    consolidate: bool = False,
    nodes: Inventory = NODES,
) -> ActiveJob:
    demand = Demand.gang(gpus)
    spec = JobSpec(job_id, "cnn", 8, 8, demand, Mode.STATIC, 1, 1, 0.0, consolidate=consolidate)
    menu = nodes.menu_of(spec, 8, profile)
    there = nodes.allocation(held) if held else None
    left = certain(job_id, epochs, 8)
    return ActiveJob(Belief(spec), left, held, len(held), menu, profile, held=there)


def served(*jobs: ActiveJob, nodes: Inventory = NODES) -> dict[int, tuple[int, ...]]:
    return next_round(situation(*jobs, nodes=nodes), make_claims(jobs))


def situation(*jobs: ActiveJob, nodes: Inventory = NODES) -> Situation:
    return Situation(0.0, nodes, 100.0, 1, jobs, restart_seconds=20.0)


def rates(v100: float, k80: float, spread: float) -> Profile:
    """Steps per second of gangs of two, and of those spread over V100s; one GPU makes a step."""
    alone = {("cnn", 8, kind, 1): 1.0 for kind in ("v100", "k80")}
    two = {("cnn", 8, "v100", 2): v100, ("cnn", 8, "k80", 2): k80}
    return Profile(alone | two, by_nodes={2: Profile({("cnn", 8, "v100", 2): spread})})


def test_a_gang_is_rather_spread_than_on_a_slower_type_and_the_other_way_round() -> None:
    for spread, gpus in ((5.0, (1, 3)), (2.0, (4, 5))):
        profile = rates(10.0, 3.0, spread)
        others = [job(n, 1, profile, gpus) for n, gpus in enumerate(((0,), (2,)), start=1)]
        # Two steps a second saved over some seconds are not worth a restart.
        short = job(9, 2, profile, epochs=10.0)
        assert served(*others, short)[9] == gpus


def test_claims_of_a_spread_gang_follow_those_on_which_it_is_faster() -> None:
    profile = rates(10.0, 3.0, 2.0)
    one, two = job(1, 2, profile), job(2, 2, profile)
    order, consolidated = split_by_placement(situation(one, two), make_claims([one, two]))
    asked = [(job.job_id, there.gpu_type, there.nodes) for job, there, _ in order]
    on = [("v100", 1), ("k80", 1), ("v100", 2)]
    assert asked == [(number, *there) for number in (1, 2) for there in on]
    # 1,000 steps take 100 s or 500 s on two GPUs.
    assert consolidated == {0: 800.0, 3: 800.0}


def test_a_spread_gang_stays_where_a_move_saves_less_than_its_restart() -> None:
    profile = rates(10.0, 3.0, 5.0)
    # 20 s more or less on two GPUs, and a restart takes 20 s.
    assert served(job(1, 2, profile, (0, 2), epochs=190.0))[1] == (0, 2)
    assert served(job(1, 2, profile, (0, 2), epochs=210.0))[1] == (0, 1)


def test_two_that_share_their_gpus_are_not_spread() -> None:
    profile = rates(10.0, 3.0, 5.0)
    pair = [job(1, 2, profile), job(2, 2, profile)]
    fillers = [job(3, 1, profile, (0,)), job(4, 1, profile, (2,))]
    first = make_claims(pair[:1])[0]
    together = first._replace(other=pair[1])
    placed = next_round(
        situation(*fillers, *pair), [*make_claims(fillers), together, *make_claims(pair)]
    )
    assert placed[1] != placed[2]


@pytest.mark.parametrize("spread", [0.0, 5.0])
def test_a_gang_without_room_on_a_node_of_one_pool_goes_to_the_next_of_the_type(
    spread: float,
) -> None:
    """Be it that it cannot be spread, or that two others on the way are not worth a restart."""
    nodes = Inventory((Pool("v100", 4, 2), Pool("v100", 2, 2)))
    if not spread:
        nodes = nodes.without((0, 2))
    profile = rates(10.0, 3.0, spread)
    others = [job(n, 1, profile, (gpu,), nodes=nodes) for n, gpu in enumerate((0, 2), start=1)]
    gang = job(9, 2, profile, epochs=10.0, nodes=nodes)
    assert served(*(others if spread else ()), gang, nodes=nodes)[9] == (4, 5)


def test_a_gang_that_keeps_its_node_is_not_passed_over_with_those_that_find_none() -> None:
    nodes = Inventory((Pool("v100", 6, 2),))
    profile = rates(10.0, 3.0, 5.0)
    others = [job(n, 1, profile, (gpu,), nodes=nodes) for n, gpu in enumerate((0, 2), start=1)]
    new = [job(n, 2, profile, epochs=10.0, nodes=nodes) for n in (3, 4)]
    stays = job(5, 2, profile, (4, 5), epochs=10.0, nodes=nodes)
    placed = served(*others, new[0], stays, new[1], nodes=nodes)
    assert placed[3] == (1, 3)
    assert placed[5] == (4, 5)
    assert 4 not in placed


@pytest.mark.parametrize(("epochs", "gpus"), [(250.0, (0, 7)), (350.0, (0, 1))])
def test_all_who_restart_for_a_gang_count(epochs: float, gpus: tuple[int, ...]) -> None:
    """Three would, of whom two lose their GPUs to others and one is laid on those of another."""
    nodes = Inventory((Pool("v100", 12, 4),))
    profile = rates(10.0, 3.0, 5.0)
    taken = (1, 2, 3, 4, 5, 6, 8, 9, 10)
    others = [job(n, 1, profile, (gpu,), nodes=nodes) for n, gpu in enumerate(taken)]
    # 50 and 70 GPU-seconds saved; each that moves loses 20.
    placed = served(*others, job(99, 2, profile, epochs=epochs, nodes=nodes), nodes=nodes)
    assert placed[99] == gpus


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Mapping[Key, float], Mapping[Key, float], list[ActiveJob]]:
    """Rates on one node and on two, and jobs, some of which run."""
    keys = [("cnn", 8, kind, gpus) for kind in NODES.types for gpus in (1, 2, 3, 4)]
    alone = {key: draw(among(1.0, 2.0, 5.0)) for key in keys}
    parts = st.sampled_from((0.0, 0.3, 0.9, 1.0))
    spread = {key: rate * draw(parts) for key, rate in alone.items() if key[3] > 1}
    profile, free = Profile(alone, by_nodes={2: Profile(spread)}), [*range(8)]
    jobs = []
    for number in range(draw(st.integers(1, 7))):
        gpus, held = draw(among(1, 1, 2, 2, 3, 4)), ()
        pool = draw(st.integers(0, 1))
        there = [gpu for gpu in free if gpu // 4 == pool][:gpus]
        if draw(st.booleans()) and len(there) == gpus:
            found = NODES.allocation(there)
            if found.nodes == 1 or spread.get(("cnn", 8, found.gpu_type, gpus), 1.0):
                held = tuple(there)
                free = [gpu for gpu in free if gpu not in there]
        epochs = draw(among(10.0, 1_000.0))
        gang = job(number, gpus, profile, held, epochs=epochs)
        if gang.menu:
            jobs.append(gang)
    return alone, spread, jobs


@examples(200)
@given(rounds())
def test_nobody_is_spread_who_cannot_be_and_equal_rates_change_nothing(
    drawn: tuple[Mapping[Key, float], Mapping[Key, float], list[ActiveJob]],
) -> None:
    alone, _, jobs = drawn
    placed = served(*jobs)
    used = [gpu for gpus in placed.values() for gpu in gpus]
    assert len(used) == len(set(used))
    for active in jobs:
        gpus = placed.get(active.job_id)
        if gpus:
            found = NODES.allocation(gpus)
            assert active.throughput.can_run(active.spec, 8, found)
            assert len({NODES.pool(gpu) for gpu in gpus}) == 1
    # Where placement does not matter, knowing so changes nothing.
    equal = Profile(alone, by_nodes={2: Profile(alone)})
    plain = [replace(active, throughput=Profile(alone)) for active in jobs]
    known = [replace(active, throughput=equal) for active in jobs]
    assert served(*known) == served(*plain)


def test_a_menu_has_the_nodes_that_a_gang_needs_and_bids_by_their_rate() -> None:
    four = {("cnn", 8, kind, 4): 8.0 for kind in NODES.types}
    profile = Profile(four, by_nodes={2: Profile({("cnn", 8, "v100", 4): 2.0})})
    assert job(1, 4, profile).menu == (Allocation("k80", 4, 2), Allocation("v100", 4, 2))
