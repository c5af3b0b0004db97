from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Allocation, Demand
from predictor.belief import Belief
from predictor.job import JobSpec, Mode
from predictor.throughput import UNTYPED, Profile
from solver.inventory import Inventory
from solver.list_scheduling import make_claims, next_round
from solver.placement import GangRequest, place
from solver.plan import ActiveJob, Situation
from tests.strategies import certain, cluster, examples


def gangs(**sizes: int) -> list[GangRequest]:
    """Gangs j1, j2, … in order."""
    return [GangRequest(int(name[1:]), gpus) for name, gpus in sizes.items()]


def test_jobs_get_the_first_free_gpus_in_order() -> None:
    assert place(cluster(8).pools[0], gangs(j3=2, j1=4), {}) == {3: (0, 1), 1: (2, 3, 4, 5)}


def test_a_running_job_stays_where_it_is() -> None:
    placed = place(cluster(4).pools[0], gangs(j1=2, j2=1), {2: (0,), 9: (1, 2)})
    assert placed == {1: (1, 2), 2: (0,)}


def test_what_does_not_fit_is_left_out() -> None:
    assert place(cluster(4).pools[0], gangs(j1=4, j2=1), {}) == {1: (0, 1, 2, 3)}


def test_a_gang_goes_to_the_node_with_the_least_room_that_suffices() -> None:
    nodes, held = cluster(12, 4).pools[0], {9: (0,), 8: (4, 5)}
    running = [GangRequest(9, 1), GangRequest(8, 2)]
    assert place(nodes, [*running, GangRequest(1, 2)], held)[1] == (6, 7)
    assert place(nodes, [*running, GangRequest(1, 3)], held)[1] == (1, 2, 3)
    assert place(nodes, [*running, GangRequest(1, 4)], held)[1] == (8, 9, 10, 11)


def test_a_large_gang_takes_whole_nodes_and_one_more() -> None:
    nodes, held = cluster(16, 4).pools[0], {9: (0, 1)}
    assert place(nodes, [GangRequest(9, 2), GangRequest(1, 10)], held)[1] == (
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        9,
        10,
        11,
    )


def test_only_a_gang_that_may_is_spread() -> None:
    nodes, held = cluster(8, 4).pools[0], {9: (0, 1), 8: (4, 5, 6)}
    running = [GangRequest(9, 2), GangRequest(8, 3)]
    assert place(nodes, [*running, GangRequest(1, 3)], held)[1] == (2, 3, 7)
    assert 1 not in place(nodes, [*running, GangRequest(1, 3, consolidate=True)], held)


@given(
    st.sampled_from((1, 2, 4, 8)),
    st.lists(
        st.tuples(st.sampled_from((1, 2, 4, 11)), st.booleans(), st.booleans(), st.booleans()),
        max_size=12,
    ),
    st.permutations(range(16)),  # of which jobs hold GPUs, so that nodes are held in part
)
def test_gpus_are_disjoint_and_running_jobs_stay(
    size: int, jobs: list[tuple[int, bool, bool, bool]], free: list[int]
) -> None:
    nodes = cluster(16, size)
    held, wanted, room = {}, [], 16
    for job, (gpus, runs, goes_on, consolidate) in enumerate(jobs):
        if runs and gpus <= len(free):
            held[job] = tuple(sorted(free.pop() for _ in range(gpus)))
        if goes_on and gpus <= room:
            wanted.append(GangRequest(job, gpus, consolidate))
            room -= gpus
    placed = place(nodes.pools[0], wanted, held)
    used = [gpu for gpus in placed.values() for gpu in gpus]
    assert len(used) == len(set(used))
    assert set(used) <= set(range(16))
    for gang in wanted:
        if gang.job_id not in placed:
            assert gang.consolidate
            assert gang.job_id not in held
        else:
            gpus = placed[gang.job_id]
            assert list(gpus) == sorted(gpus)
            assert len(gpus) == gang.gpus
            if gang.job_id in held:
                assert gpus == held[gang.job_id]
            elif gang.consolidate:
                assert len(set(map(nodes.node, gpus))) == nodes.pools[0].fewest_nodes(gang.gpus)
    assert list(placed) == [gang.job_id for gang in wanted if gang.job_id in placed]


def situation(inventory: Inventory, *jobs: ActiveJob) -> Situation:
    return Situation(0.0, inventory, 100.0, 1, jobs)


def job(
    job_id: int, gpus: int, held: tuple[int, ...] = (), *, consolidate: bool = False
) -> ActiveJob:
    demand = Demand.gang(gpus)
    spec = JobSpec(job_id, "cnn", 1, 1, demand, Mode.STATIC, 1, 1, 0.0, consolidate=consolidate)
    menu = (Allocation(UNTYPED, gpus),)
    return ActiveJob(Belief(spec), certain(job_id, 1.0, 1), held, len(held), menu, Profile({}))


def strict(job_id: int, gpus: int, held: tuple[int, ...] = ()) -> ActiveJob:
    return job(job_id, gpus, held, consolidate=True)


def served(inventory: Inventory, *jobs: ActiveJob) -> dict[int, tuple[int, ...]]:
    return next_round(situation(inventory, *jobs), make_claims(jobs))


def test_the_last_in_the_way_of_a_consolidated_gang_makes_way_for_it() -> None:
    placed = served(cluster(8, 4), strict(0, 4), job(1, 2, (0, 1)), job(2, 1, (4,)))
    assert placed == {0: (4, 5, 6, 7), 1: (0, 1), 2: (2,)}
    placed = served(cluster(8, 4), strict(0, 4), job(2, 1, (4,)), job(1, 2, (0, 1)))
    assert placed == {0: (0, 1, 2, 3), 2: (4,), 1: (5, 6)}


def test_a_consolidated_gang_does_not_wait_for_scattered_jobs_before_it_to_end() -> None:
    # One GPU is taken on each of three nodes. The emptiest node is cleared; the others stay.
    before = job(0, 1, (0,)), job(1, 2, (4, 5)), job(2, 1, (8,))
    placed = served(cluster(12, 4), *before, strict(3, 4))
    assert placed == {0: (6,), 1: (4, 5), 2: (8,), 3: (0, 1, 2, 3)}


def test_no_later_job_takes_the_turn_of_a_consolidated_gang() -> None:
    # The four fit by their number; the last finds no room, and nobody else pays for that.
    held = {1: (0, 1, 2), 2: (4, 5, 6), 3: (8, 9)}
    later = [strict(job_id, len(gpus), gpus) for job_id, gpus in held.items()]
    placed = served(cluster(12, 4), strict(0, 4), *later)
    assert placed == {0: (8, 9, 10, 11), 1: (0, 1, 2), 2: (4, 5, 6)}


def test_where_one_gang_finds_no_room_smaller_ones_may() -> None:
    gangs = [strict(0, 3), strict(1, 3), strict(2, 2), strict(3, 2), strict(4, 1), job(5, 1)]
    placed = served(cluster(8, 4), *gangs)
    assert sorted(placed) == [0, 1, 4, 5]


@st.composite
def crowds(draw: st.DrawFn, sizes: Sequence[int], gangs: Sequence[int]) -> Situation:
    """Jobs in the order in which they are served, some of them running."""
    inventory = cluster(16, draw(st.sampled_from(sizes)))
    wanted = draw(st.lists(st.tuples(st.sampled_from(gangs), st.booleans()), max_size=14))
    running: dict[int, tuple[int, ...]] = {}
    if draw(st.booleans()):  # those that a round left, in any order
        order = draw(st.permutations(range(len(wanted))))
        first = [job(j, wanted[j][0], consolidate=wanted[j][1]) for j in order]
        ended = draw(st.sets(st.sampled_from(order))) if order else set()
        left = served(inventory, *first).items()
        running = {job_id: gpus for job_id, gpus in left if job_id not in ended}
    return situation(
        inventory,
        *(
            job(job_id, gpus, running.get(job_id, ()), consolidate=consolidate)
            for job_id, (gpus, consolidate) in enumerate(wanted)
        ),
    )


def check(inputs: Situation, placed: Mapping[int, tuple[int, ...]]) -> None:
    used = [gpu for gpus in placed.values() for gpu in gpus]
    assert len(used) == len(set(used)), "two jobs share a GPU"
    assert set(used) <= set(range(inputs.inventory.gpus))
    for active in inputs.jobs:
        spec, gpus = active.spec, placed.get(active.job_id, ())
        assert len(gpus) in (0, active.gang)
        if gpus and spec.consolidate:
            nodes = set(map(inputs.inventory.node, gpus))
            assert len(nodes) == inputs.inventory.pools[0].fewest_nodes(active.gang)


def by_number(inputs: Situation) -> list[int]:
    """Who would run if placement did not matter."""
    free, chosen = inputs.inventory.gpus, []
    for active in inputs.jobs:
        if active.gang <= free:
            free -= active.gang
            chosen.append(active.job_id)
    return chosen


@examples(100)
@given(crowds((1, 2, 4, 8, 16), (1, 1, 2, 4, 8, 16)))
def test_powers_of_two_never_lose_their_turn_to_placement(inputs: Situation) -> None:
    placed = next_round(inputs, make_claims(inputs.jobs))
    check(inputs, placed)
    assert list(placed) == by_number(inputs)


@examples(100)
@given(crowds((2, 4, 8, 16), (1, 2, 3, 5, 6, 11)))
def test_any_gangs_are_placed_whole_and_the_first_is_served(inputs: Situation) -> None:
    placed = next_round(inputs, make_claims(inputs.jobs))
    check(inputs, placed)
    if inputs.jobs:
        assert inputs.jobs[0].job_id in placed
    idle = inputs.inventory.gpus - sum(map(len, placed.values()))
    for active in inputs.jobs:
        if active.job_id not in placed:
            assert active.spec.consolidate or active.gang > idle


@examples(100)
@given(crowds((1, 2, 4, 8, 16), (1, 2, 3, 4, 6)))
def test_who_runs_where_all_fit_stays(inputs: Situation) -> None:
    placed = next_round(inputs, make_claims(inputs.jobs))
    again = situation(
        inputs.inventory,
        *(replace(active, gpus=placed.get(active.job_id, ())) for active in inputs.jobs),
    )
    assert next_round(again, make_claims(again.jobs)) == placed
