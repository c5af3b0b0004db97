import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import InputError
from solver.cluster import Cluster, place


def test_jobs_get_the_first_free_gpus_in_order() -> None:
    assert place(Cluster(8), {3: 2, 1: 4}, {}) == {3: (0, 1), 1: (2, 3, 4, 5)}


def test_a_running_job_stays_where_it_is() -> None:
    placed = place(Cluster(4), {1: 2, 2: 1}, {2: (0,), 9: (1, 2)})
    assert placed == {1: (1, 2), 2: (0,)}


def test_more_than_there_is_cannot_be_placed() -> None:
    with pytest.raises(ValueError, match="5 GPUs planned of 4"):
        place(Cluster(4), {1: 4, 2: 1}, {})


@pytest.mark.parametrize("gpus", [0, -3])
def test_a_cluster_has_gpus(gpus: int) -> None:
    with pytest.raises(InputError, match="is not positive"):
        Cluster(gpus)


@given(st.lists(st.tuples(st.sampled_from((1, 2, 4)), st.booleans(), st.booleans()), max_size=12))
def test_gpus_are_disjoint_and_running_jobs_stay(jobs: list[tuple[int, bool, bool]]) -> None:
    cluster, free = Cluster(16), list(range(16))[::-1]
    held, wanted, room = {}, {}, 16
    for job, (gang, runs, goes_on) in enumerate(jobs):
        if runs and gang <= len(free):
            held[job] = tuple(sorted(free.pop() for _ in range(gang)))
        if goes_on and gang <= room:
            wanted[job] = gang
            room -= gang
    placed = place(cluster, wanted, held)
    used = [gpu for gpus in placed.values() for gpu in gpus]
    assert len(used) == len(set(used)) == sum(wanted.values())
    assert set(used) <= set(range(16))
    assert all(placed[job] == held[job] for job in wanted if job in held)
    assert all(list(gpus) == sorted(gpus) for gpus in placed.values())
    assert list(placed) == list(wanted)
