"""When a job whose containers fail is launched again, and when it is given up."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.runtime import ContainerEvent, EventKind, Observation
from predictor.job import EpochReport
from tasks.backoff import PATIENCE, BackOff

ROUND_SECONDS = 60.0
FAILURES = tuple(PATIENCE)


def seen(number: int, kind: EventKind | None, *, trained: bool = False) -> Observation:
    """A round at whose end the container of job 0 ends like this, after an epoch or none."""
    clock = number * ROUND_SECONDS
    ends = (ContainerEvent(0, kind, clock, (0,), f"{kind} in {number}"),) if kind else ()
    reports = (EpochReport(0, number, 1, 8, 1.0),) if trained else ()
    return Observation(clock, ends, reports, ())


def tries(*kinds: EventKind, most: int = 1_000) -> tuple[int, int, str]:
    """Failures and rounds until a job is given up that fails thus over and over, and the reason."""
    backoff, number = BackOff(), 0
    for count in range(most):
        while not backoff.is_ready(0, number * ROUND_SECONDS):
            number += 1
        number += 1
        judged = backoff.give_up(seen(number, kinds[count % len(kinds)]))
        if judged.ended:
            return count + 1, number, judged.finished[-1].reason
        backoff = backoff.after(judged, ROUND_SECONDS)
    return most, number, ""


def test_a_job_that_stops_for_ever_is_given_up_later_than_one_that_crashes() -> None:
    assert tries(EventKind.CRASHED) == (
        *(5, 5 + 0 + 1 + 3 + 7),
        "crashed 5 times in a row, the last time: crashed in 16",
    )
    assert tries(EventKind.STOPPED) == (
        *(10, 10 + 0 + 1 + 7 * 3),
        "stopped 10 times in a row, the last time: stopped in 32",
    )
    assert tries(EventKind.UNSTARTED) == (
        *(10, 10 + 0 + 1 + 3 + 7 + 5 * 15),
        "unstarted 10 times in a row, the last time: unstarted in 96",
    )
    assert tries(EventKind.LOST)[0] == 1_000


def test_a_job_says_how_often_it_is_tried_again() -> None:
    crash = seen(1, EventKind.CRASHED)
    (_, end) = BackOff().give_up(crash, {0: 0}).finished
    assert (end.kind, end.reason) == (EventKind.FAILED, "crashed once: crashed in 1")
    assert not BackOff().give_up(crash, {0: 1}).ended
    assert not BackOff().give_up(seen(1, EventKind.STOPPED), {0: 0}).ended
    backoff = BackOff()
    for number in range(1, 8):
        judged = backoff.give_up(seen(number, EventKind.CRASHED), {0: 7})
        assert not judged.ended
        backoff = backoff.after(judged, ROUND_SECONDS)
    assert backoff.waits[0] == (7 + 15) * ROUND_SECONDS  # the longest wait
    assert backoff.give_up(seen(8, EventKind.CRASHED), {0: 7}).ended == (0,)


@pytest.mark.parametrize("other", [EventKind.CRASHED, EventKind.LOST])
def test_other_failures_between_stops_do_not_save_a_job(other: EventKind) -> None:
    count, rounds, reason = tries(EventKind.STOPPED, other)
    assert count <= 20
    assert rounds <= 100
    assert "in a row" in reason


@given(
    st.lists(
        st.tuples(st.sampled_from([None, *FAILURES]), st.sampled_from([*[False] * 9, True])),
        min_size=20,  # fewer hardly ever have so many failures in a row
        max_size=60,
    )
)
def test_a_job_is_given_up_with_the_last_of_its_tries_and_not_before(
    course: list[tuple[EventKind | None, bool]],
) -> None:
    backoff, counts = BackOff(), Counter[EventKind]()
    for number, (kind, trained) in enumerate(course):
        observation = seen(number, kind, trained=trained)
        judged = backoff.give_up(observation)
        if trained:
            counts.clear()
        if kind:
            counts[kind] += 1
        spent = kind is not None and not trained and counts[kind] >= PATIENCE[kind].tries
        assert judged.ended == ((0,) if spent else ())
        assert judged.finished[: len(observation.finished)] == observation.finished
        assert backoff.give_up(judged) == judged  # as a replay asks
        backoff = backoff.after(judged, ROUND_SECONDS)
        if spent:
            assert backoff == BackOff()
            return
        assert {kind: count for (_, kind), count in backoff.failures.items()} == dict(counts)
        if kind:
            wait = (backoff.waits[0] - observation.clock_seconds) / ROUND_SECONDS
            assert wait == min(2 ** (counts[kind] - 1) - 1, PATIENCE[kind].longest_wait)
