"""Coverage of intervals, and its standard error."""

import math

import pytest

from benchmarks.coverage import FAIR, FINISH, LEFT, RHO, START, Interval, intervals, row, table


def interval(job: int, *, held: bool, run: str = "one") -> Interval:
    return Interval(FINISH, (run, job), "static", 3, held, 2.0, math.nan, False, 10.0)


def test_the_error_is_that_of_the_jobs() -> None:
    alone = [interval(job, held=job % 5 > 0) for job in range(100)]
    found = row(FINISH, "all", alone)
    assert (found["held"], found["jobs"]) == (0.8, 100)
    assert found["error"] == pytest.approx(math.sqrt(0.8 * 0.2 / 100))
    repeated = row(FINISH, "all", alone * 30)
    assert repeated["error"] == pytest.approx(found["error"])
    elsewhere = [interval(job, held=job % 5 > 0, run="other") for job in range(100)]
    twice = row(FINISH, "all", alone + elsewhere)
    assert twice["jobs"] == 200
    assert twice["error"] == pytest.approx(found["error"] / math.sqrt(2.0))


def test_a_single_job_says_next_to_nothing() -> None:
    assert row(FINISH, "all", [interval(0, held=True)] * 9)["error"] == pytest.approx(0.2)
    assert row(FINISH, "all", [interval(0, held=False)] * 9)["error"] == pytest.approx(0.8)


@pytest.mark.slow
def test_a_run_has_intervals_of_all_that_is_forecast() -> None:
    found = intervals("generated 16 10", "srtf", 20)
    assert {each.of for each in found} == {LEFT, START, FINISH, FAIR, RHO}
    for of in (FAIR, RHO):
        held = [each.held for each in found if each.of == of]
        assert sum(held) / len(held) > 0.6
    truths = {each.job: each.left for each in found if each.of == RHO}
    assert all(0.3 < rho < 3.0 for rho in truths.values())


def test_what_is_outside_of_its_band_is_bold() -> None:
    ones = [interval(job, held=job < 43) for job in range(50)]
    heads, _, everything, static = table(
        [row(FINISH, group, ones) for group in ("all", "static", "tenth 3")]
    ).splitlines()
    assert heads.split(" | ")[6:8] == [f"{FINISH}: jobs", "held"]
    assert everything == f"| all |{' – |' * 5} 50 | **86 ± 5** | 20 | – | – |{' – |' * 9}"
    assert static.split(" | ")[7] == "86 ± 5"
    assert LEFT in heads
