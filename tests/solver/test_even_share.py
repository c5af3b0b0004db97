from dataclasses import replace

import pytest

from predictor.allocation import Demand
from predictor.arrivals import COUNTED, arrivals_left
from predictor.job import JobSpec, Mode
from predictor.options import JobOptions, parse_tasks
from solver.fair_share import FairShare


def spec(job_id: int, arrival: float) -> JobSpec:
    return JobSpec(job_id, "cnn", 16, 16, Demand.gang(2), Mode.STATIC, 10, 1_008, arrival)


def test_jobs_receive_an_even_share_of_the_time_that_they_were_there() -> None:
    share = FairShare().after(100.0, [spec(0, 20.0)], [0], gpus=1)
    assert (share.service(0), share.contention) == (80.0, 1.0)
    share = share.after(200.0, [spec(1, 140.0), spec(2, 160.0)], [0, 1, 2], gpus=1)
    # Contention is counted between rounds: alone until this one, then three on one GPU.
    assert [share.service(job) for job in (0, 1, 2)] == [180.0, 60.0, 40.0]
    assert (share.contention, share.arrived) == (3.0, (20.0, 140.0, 160.0))
    share = share.after(500.0, [], [0, 2], gpus=4)
    assert [share.service(job) for job in (0, 2)] == [280.0, 140.0]
    assert share.contention == 1.0
    with pytest.raises(KeyError):
        share.service(1)


def test_nobody_is_served_while_no_node_is_in_service() -> None:
    share = FairShare().after(100.0, [spec(0, 0.0)], [0], gpus=0)
    away = share.after(900.0, [spec(1, 500.0)], [0, 1], gpus=1)
    assert [away.service(job) for job in (0, 1)] == [100.0, 0.0]
    assert away.after(1_000.0, [], [0, 1], gpus=2).service(0) == 150.0


def test_an_array_comes_once_and_does_not_hide_the_arrivals_before() -> None:
    steady = [spec(number, 3_600.0 * number) for number in range(COUNTED + 1)]
    clock = steady[-1].arrival_seconds
    share = FairShare().after(clock, steady, [], gpus=1)
    array = [
        replace(spec(1_000 + task.place, clock + 60.0), options=JobOptions(task=task))
        for task in parse_tasks("0-299%4")
    ]
    after = share.after(clock + 60.0, array, [], gpus=1)
    assert after.arrived == (*share.arrived[1:], clock + 60.0)
    left = arrivals_left(clock + 60.0, after.arrived)
    assert left == pytest.approx(arrivals_left(clock, share.arrived), rel=0.01) == 3_600.0 * COUNTED
