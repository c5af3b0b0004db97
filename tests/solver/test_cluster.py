import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import InputError
from solver.cluster import Cluster, Gang, place


def gangs(**sizes: int) -> list[Gang]:
    """Gangs j1, j2, … in order."""
    return [Gang(int(name[1:]), gpus) for name, gpus in sizes.items()]


def test_jobs_get_the_first_free_gpus_in_order() -> None:
    assert place(Cluster(8), gangs(j3=2, j1=4), {}) == {3: (0, 1), 1: (2, 3, 4, 5)}


def test_a_running_job_stays_where_it_is() -> None:
    placed = place(Cluster(4), gangs(j1=2, j2=1), {2: (0,), 9: (1, 2)})
    assert placed == {1: (1, 2), 2: (0,)}


def test_what_does_not_fit_is_left_out() -> None:
    assert place(Cluster(4), gangs(j1=4, j2=1), {}) == {1: (0, 1, 2, 3)}


def test_a_gang_goes_to_the_node_with_the_least_room_that_suffices() -> None:
    cluster, held = Cluster(12, 4), {9: (0,), 8: (4, 5)}
    running = [Gang(9, 1), Gang(8, 2)]
    assert place(cluster, [*running, Gang(1, 2)], held)[1] == (6, 7)
    assert place(cluster, [*running, Gang(1, 3)], held)[1] == (1, 2, 3)
    assert place(cluster, [*running, Gang(1, 4)], held)[1] == (8, 9, 10, 11)


def test_a_large_gang_takes_whole_nodes_and_one_more() -> None:
    cluster, held = Cluster(16, 4), {9: (0, 1)}
    assert place(cluster, [Gang(9, 2), Gang(1, 10)], held)[1] == (2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


def test_only_a_gang_that_may_is_spread() -> None:
    cluster, held = Cluster(8, 4), {9: (0, 1), 8: (4, 5, 6)}
    running = [Gang(9, 2), Gang(8, 3)]
    assert place(cluster, [*running, Gang(1, 3)], held)[1] == (2, 3, 7)
    assert 1 not in place(cluster, [*running, Gang(1, 3, consolidate=True)], held)


@pytest.mark.parametrize(("gpus", "size"), [(8, 3), (8, 0), (4, 8)])
def test_nodes_are_whole(gpus: int, size: int) -> None:
    with pytest.raises(InputError, match="are not whole nodes"):
        Cluster(gpus, size)


@pytest.mark.parametrize("gpus", [0, -3])
def test_a_cluster_has_gpus(gpus: int) -> None:
    with pytest.raises(InputError, match="is not positive"):
        Cluster(gpus)


@given(
    st.sampled_from((1, 2, 4, 8)),
    st.lists(
        st.tuples(st.sampled_from((1, 2, 4, 11)), st.booleans(), st.booleans(), st.booleans()),
        max_size=12,
    ),
)
def test_gpus_are_disjoint_and_running_jobs_stay(
    size: int, jobs: list[tuple[int, bool, bool, bool]]
) -> None:
    cluster, free = Cluster(16, size), list(range(16))[::-1]
    held, wanted, room = {}, [], 16
    for job, (gpus, runs, goes_on, consolidate) in enumerate(jobs):
        if runs and gpus <= len(free):
            held[job] = tuple(sorted(free.pop() for _ in range(gpus)))
        if goes_on and gpus <= room:
            wanted.append(Gang(job, gpus, consolidate))
            room -= gpus
    placed = place(cluster, wanted, held)
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
                assert len(set(map(cluster.node, gpus))) == cluster.fewest_nodes(gang.gpus)
    assert list(placed) == [gang.job_id for gang in wanted if gang.job_id in placed]
