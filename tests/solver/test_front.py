"""The front of `benchmarks.front`: a lower bound on the worst ρ, by makespan."""

import math

import numpy as np
import pytest

from benchmarks.front import Fluid, Rule, find_place
from flows.runs.workload_source import Source

ONE_AND_TWO = Fluid(
    arrived=np.zeros(2),
    gangs=np.array([1.0, 2.0]),
    alone=np.array([300.0, 100.0]),
    fair=np.array([350.0, 150.0]),
    gpus=2,
    limit=300.0,
)
"""Two jobs on two GPUs, without rounds and restarts. Evenly shared, both run at 2/3 of their speed
until the larger gang ends after 150 s; the other has 200 s left."""


@pytest.mark.parametrize(("makespan", "rho"), [(1.0, 200 / 150), (1.1, 170 / 150), (1.2, 1.0)])
def test_the_front_of_two_jobs_is_that_worked_out_by_hand(makespan: float, rho: float) -> None:
    # The long job may pause for 300 × makespan - 300 seconds. Meanwhile the gang of two has both
    # GPUs. Then it has one, half of its speed: in all it takes 200 s, less the pause.
    assert ONE_AND_TWO.find_least_rho(makespan) == pytest.approx(rho, abs=0.004)


def test_a_makespan_below_the_limit_is_out_of_reach() -> None:
    assert ONE_AND_TWO.find_least_rho(0.99) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["shockwave", "srtf", "fifo"])
def test_no_policy_is_below_the_front(policy: str) -> None:
    workload = Source(jobs=12, contention_factor=1.5, seed=3).open(4)
    place = find_place(Rule(policy), workload, 4)
    assert place.makespan >= 1.0
    assert place.rho.max() >= place.front - 0.001
