"""Models of step times, their fit, and the batch sizes with the best goodput."""

from dataclasses import replace
from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.application import LocalBatch, StepTime, measure_gain
from predictor.goodput import (
    LISTS,
    StepModel,
    choose_batch,
    collect_points,
    find_goodputs,
    fit_step_model,
    list_candidates,
    measure_misfit,
)
from tests.applications import toy_profile
from tests.strategies import examples
from warehouse.workloads.applications import read_applications

TRUE = StepModel(0.05, 0.002, 0.2, 0.004, 0.05, 0.002, 1.6)

SHAPES = tuple((nodes, gpus) for nodes, gpus in ((1, 1), (1, 2), (1, 4), (2, 8), (4, 16)))

times = st.floats(1e-3, 2.0)
models = st.builds(StepModel, *[times] * 6, st.floats(1.05, 9.5))


def seconds(model: StepModel, nodes: int, gpus: int, size: int, more: int = 0) -> float:
    """The modelled seconds of a step."""
    return float(model.step_seconds(*np.array([nodes, gpus, size, more], float)))


def measure(model: StepModel, nodes: int, gpus: int, size: int) -> StepTime:
    """What a job would measure that behaves as the model says."""
    step = seconds(model, nodes, gpus, size)
    return StepTime("", nodes, gpus, size, step, step - float(model.pass_seconds(np.array(size))))


def test_a_step_adds_what_does_not_overlap() -> None:
    model = StepModel(0.1, 0.01, 0.5, 0.05, 0.2, 0.02, 1.0)
    assert seconds(model, 1, 1, 10) == pytest.approx(0.1 + 0.1, abs=1e-7)
    assert seconds(model, 1, 4, 10) == pytest.approx(0.2 + 0.2 + 2 * 0.02)
    assert seconds(model, 2, 4, 10) == pytest.approx(0.2 + 0.5 + 2 * 0.05)
    assert seconds(model, 2, 2, 10, more=3) == pytest.approx(4 * 0.2 + 0.5)
    overlapping = model._replace(overlap=2.0, within=0.15)
    assert seconds(overlapping, 1, 2, 10) == pytest.approx(0.25)  # 0.2² + 0.15² = 0.25²


@given(models, models)
@examples(100)
def test_the_gradient_is_that_of_finite_differences(true: StepModel, model: StepModel) -> None:
    rows = [measure(true, *shape, size) for shape in SHAPES for size in (8, 32)]
    # No model fits exactly: there second derivatives are large.
    points = collect_points(
        [
            replace(row, step_seconds=(1.1 + 0.3 * (n % 3)) * row.step_seconds)
            for n, row in enumerate(rows)
        ]
    )
    at = np.array(model)
    found = [
        (measure_misfit(at + step, points)[0] - measure_misfit(at - step, points)[0]) / (2e-6 * x)
        for x, step in zip(at, np.diag(1e-6 * at), strict=True)
    ]
    assert measure_misfit(at, points)[1] == pytest.approx(np.array(found), rel=1e-3, abs=1e-5)


def test_a_fit_predicts_what_was_not_measured() -> None:
    fitted = fit_step_model(
        tuple(measure(TRUE, *shape, size) for shape in SHAPES for size in (8, 64))
    )
    for nodes, gpus, size in ((1, 3, 16), (3, 12, 32), (8, 32, 48)):
        expected = seconds(TRUE, nodes, gpus, size)
        assert seconds(fitted, nodes, gpus, size) == pytest.approx(expected, rel=1e-3)


def test_a_model_of_one_gpu_believes_in_perfect_scaling() -> None:
    fitted = fit_step_model((measure(TRUE, 1, 1, 16),))
    alone = seconds(TRUE, 1, 1, 16)
    assert fitted.fixed == pytest.approx(alone / 2)  # half of the only pass measured
    assert seconds(fitted, 16, 64, 16) == pytest.approx(alone, rel=1e-3)


def test_several_nodes_are_slower_than_one_until_they_were_tried() -> None:
    fitted = fit_step_model(tuple(measure(TRUE, 1, gpus, 16) for gpus in (1, 2, 4)))
    assert fitted.across == pytest.approx(1.1 * fitted.within)
    assert fitted.across_slope == pytest.approx(1.1 * fitted.within_slope)


@pytest.mark.slow
def test_published_measurements_are_fitted(data: Path) -> None:
    folder = data.parent / "pollux"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    for app in read_applications(folder, ("t4",)).values():
        fitted = fit_step_model(app.steps)
        errors = [
            log(seconds(fitted, row.nodes, row.gpus, row.local_batch_size) / row.step_seconds)
            for row in app.steps
        ]
        assert sqrt(np.mean(np.square(errors))) < 0.14, app.name


def test_gain_by_hand() -> None:
    assert measure_gain(1.0, 3.0, 1.0) == pytest.approx(1.0)
    # At four times the batch size a step is worth (3 + 1) / (3 / 4 + 1) = 16 / 7 steps.
    assert measure_gain(1.0, 3.0, 4.0) == pytest.approx(16 / 7)
    assert measure_gain(0.0, 3.0, 4.0) == pytest.approx(4.0)  # nothing but noise


def test_the_batch_size_grows_with_the_noise(tmp_path: Path) -> None:
    app = toy_profile(tmp_path).applications["toy"]
    model = StepModel(1.0, 0.01, 1.0, 1e-8, 1.0, 1e-8, 1.0)
    batch, goodput = choose_batch(app, model, (1.0, 0.0), 1, 2, (10, 40))
    assert batch == LocalBatch(5, 0)  # without noise a larger batch does nothing
    assert goodput == pytest.approx(1.0 / 2.05)
    batch, goodput = choose_batch(app, model, (0.0, 1.0), 1, 2, (10, 40))
    assert batch == LocalBatch(20, 0)
    assert goodput == pytest.approx(4.0 / 2.2)
    batch, goodput = choose_batch(app, model, (0.0, 1.0), 1, 2, (10, 20))
    assert batch == LocalBatch(10, 0)  # the largest that the job allows
    assert goodput == pytest.approx(2.0 / 2.1)


def test_no_batch_size_is_found_for_too_many_gpus(tmp_path: Path) -> None:
    app = toy_profile(tmp_path).applications["toy"]
    nodes, gpus = np.array([4, 5]), np.array([8, 9])
    goodputs, _, _ = find_goodputs(app, TRUE, (1.0, 3.0), nodes, gpus, (10, 40))
    assert goodputs[0] > 0.0  # 8 × 5 samples are the largest batch
    assert goodputs[1] == 0.0


def test_lists_of_candidates_are_shared_and_small_together() -> None:
    counts = tuple(range(1, 361))
    found = list_candidates((32, 1, 64), TRUE, (1,) * 360, counts, (32, 4096))
    assert list_candidates((32, 1, 64), TRUE, (1,) * 360, counts, (32, 4096)) is found
    for column in found:
        with pytest.raises(ValueError, match="read-only"):
            column[0, 0] = 1.0
    assert sum(column.nbytes for column in found) * LISTS < 40e6
