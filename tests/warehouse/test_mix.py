"""Distributions of generated jobs, and the contention of a mix and a mean gap."""

import math
from typing import Any

import numpy as np
import pytest

from predictor.errors import InputError
from predictor.job import Mode
from warehouse.workloads.generator import generate_workload
from warehouse.workloads.mix import Mix


@pytest.mark.parametrize(
    ("mix", "mean"),
    [
        (Mix(600.0, 600.0, {4: 2.0}), 2_400.0),
        (Mix(1.0, math.e, {1: 1.0, 3: 1.0}), 2 * (math.e - 1)),  # log-uniform
    ],
)
def test_mean_gpu_seconds(mix: Mix, mean: float) -> None:
    assert mix.mean_gpu_seconds() == pytest.approx(mean)


def test_the_gap_follows_from_contention_and_gpus() -> None:
    mix = Mix(600.0, 600.0, {4: 1.0})
    assert mix.interarrival_seconds(1.0, 8) == 300.0
    assert mix.interarrival_seconds(3.0, 8) == 100.0
    assert mix.interarrival_seconds(1.0, 16) == 150.0


@pytest.mark.slow
def test_drawn_jobs_bring_the_contention_that_was_asked_for() -> None:
    mix = Mix()
    gap = mix.interarrival_seconds(2.0, 32)
    workload = generate_workload(
        3_000, rng=np.random.default_rng(3), mean_interarrival_seconds=gap, mix=mix
    )
    work = float(workload.figures()["gpu_hours"]) * 3_600
    assert work / workload.specs[-1].arrival_seconds / 32 == pytest.approx(2.0, rel=0.07)


def test_only_values_that_differ_from_the_default_are_described() -> None:
    assert Mix().changes == ""
    assert Mix(60.0, 600.0).changes == "60 to 600 s long"
    assert Mix(scale_factors={3: 1.0}, modes={Mode.STATIC: 1.0}).changes == (
        "scale factors 3=1, modes static=1"
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shortest_seconds": 0.5}, "shortest_seconds: 0.5 is out of range; give seconds from 1"),
        ({"shortest_seconds": math.nan}, "shortest_seconds: nan is out of range; give seconds"),
        ({"longest_seconds": 700.0}, "longest_seconds: 700 is out of range; give seconds from 720"),
        ({"longest_seconds": math.inf}, "longest_seconds: inf is out of range; give seconds from"),
        ({"scale_factors": {}}, "scale_factors: nothing has a weight above 0; give one of them a"),
        ({"scale_factors": {1: 0.0}}, "scale_factors: nothing has a weight above 0; give one of"),
        ({"scale_factors": {0: 1.0}}, "scale_factors: 0 is out of range; give 1 or more"),
        ({"scale_factors": {2: -1.0}}, "scale_factors: the weight -1 of 2 is out of range; give 0"),
        (
            {"modes": {Mode.GNS: math.nan}},
            "modes: the weight nan of gns is out of range; give 0 or",
        ),
    ],
)
def test_a_value_out_of_range(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Mix(**changed)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("factor", "gpus", "message"),
    [
        (0.0, 8, "contention_factor: 0 is not a positive number; give the work that arrives over"),
        (math.inf, 8, "contention_factor: inf is not a positive number"),
        (math.nan, 8, "contention_factor: nan is not a positive number"),
        (1.0, 0, "gpus: 0 is not positive; give at least 1"),
    ],
)
def test_a_contention_factor_is_positive_and_of_some_gpus(
    factor: float, gpus: int, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        Mix().interarrival_seconds(factor, gpus)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("factor", [1e-300, 1e-9, 1e308])
def test_a_contention_factor_gives_a_gap_between_arrivals(factor: float) -> None:
    with pytest.raises(InputError, match=r"^contention_factor: .* a mean gap of "):
        Mix(longest_seconds=720.0).interarrival_seconds(factor, 10**6 if factor > 1 else 8)
