"""Speed and progress of a measured application, by hand."""

from math import inf
from pathlib import Path

import pytest

from predictor.allocation import Allocation, Demand
from predictor.application import LocalBatch
from predictor.errors import InputError
from predictor.job import JobSpec, Mode
from tests.applications import toy_profile


def test_a_batch_is_divided_between_gpus_and_passes(tmp_path: Path) -> None:
    app = toy_profile(tmp_path).applications["toy"]
    assert app.split(10, 1) == LocalBatch(10, 0)
    assert app.split(20, 1) == LocalBatch(10, 1)  # the noise needs two passes
    assert app.split(20, 2) == LocalBatch(10, 0)
    assert app.split(40, 1) == LocalBatch(20, 1)
    assert app.split(40, 3) == LocalBatch(13, 0)  # 3 × 14 would exceed the largest batch
    assert (app.limit_gpus(40), app.limit_gpus(4)) == (8, 1)


def test_a_step_takes_as_long_as_measured(tmp_path: Path) -> None:
    app = toy_profile(tmp_path).applications["toy"]
    assert app.step_seconds((2,), 20) == pytest.approx(1.0 + 0.2)
    assert app.step_seconds((1,), 40) == pytest.approx(2 * 2.0)  # two passes of 20 samples
    assert app.step_seconds((2,), 30) == pytest.approx(1.5 + 0.2)  # between two local sizes
    assert app.step_seconds((2, 1), 30) == app.step_seconds((1, 2), 30) == pytest.approx(1.6)
    # Between 4 GPUs of 2 nodes and 8 of 4, by counts: half of either.
    assert app.step_seconds((2, 2, 2), 30) == pytest.approx(0.5 + (0.5 + 0.9) / 2)
    assert app.step_seconds((2,), 6) == inf  # 3 samples a GPU were never measured
    assert app.step_seconds((2, 2, 2, 2, 2), 40) == inf


def test_steps_are_worth_more_while_there_is_noise(tmp_path: Path) -> None:
    app = toy_profile(tmp_path).applications["toy"]
    assert app.gain(10, 1, 0) == 1.0
    assert app.gain(20, 2, 0) == pytest.approx(4 / (3 / 2 + 1))
    assert app.gain(20, 2, 1) == pytest.approx(10 / (9 / 2 + 1))
    assert app.steps_in(1, 20, 2) == pytest.approx(55.0)
    assert app.noise(15, 1) == (1.0, 9.0)
    assert (app.iterations(10, 1), app.iterations(15, 1)) == (100.0, 85.0)
    assert [app.progress_after(epochs) for epochs in (0, 1, 2)] == [0.0, 100.0, 200.0]


def test_rates_are_those_of_packed_gpus_of_its_type(tmp_path: Path) -> None:
    profile = toy_profile(tmp_path)
    spec = JobSpec(0, "toy", 40, 40, Demand(1, 8, tuned=4), Mode.STATIC, 2, 1_000, 0.0)
    assert profile.gpu_types == ("t4",)
    assert profile.placement_matters
    assert profile.reference(spec) == Allocation("t4", 4, 2)
    assert profile.rate(spec, 40, Allocation("t4", 4, 2)) == pytest.approx(1 / 1.5)
    assert profile.applications["toy"].pack(Allocation("t4", 3, 2)) == (2, 1)
    larger_node, other_type = Allocation("t4", 4, 1), Allocation("v100", 4, 2)
    assert profile.rate(spec, 40, larger_node) == pytest.approx(1 / 1.5)
    assert not profile.can_run(spec, 40, other_type)
    with pytest.raises(InputError, match="no throughput for toy with batch size 40"):
        profile.rate(spec, 40, other_type)


def test_a_batch_too_small_for_its_gpus_is_as_slow_as_the_smallest_that_is_not(
    tmp_path: Path,
) -> None:
    profile, there = toy_profile(tmp_path), Allocation("t4", 4, 2)
    spec = JobSpec(0, "toy", 10, 40, Demand(1, 8), Mode.STATIC, 2, 1_000, 0.0)
    assert not profile.can_run(spec, 10, there)  # 4 × 5 samples
    assert profile.rate(spec, 10, there) == profile.rate(spec, 20, there) == pytest.approx(1.0)


def test_a_placement_counts_gpus_by_node_and_a_larger_node_as_several(tmp_path: Path) -> None:
    app = toy_profile(tmp_path).applications["toy"]  # measured on nodes of two GPUs
    assert app.place([1, 3, 3]) == (2, 1)
    assert app.place([1, 3, 3, 3]) == (2, 1, 1)
    assert app.pack(Allocation("t4", 3, 1)) == (2, 1)
