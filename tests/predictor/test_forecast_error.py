"""Forecasts compared with the truth."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.forecast_error import POINTS, forecast_errors, until
from predictor.belief import Belief
from predictor.job import Mode, Regime
from warehouse.workloads.generator import generate_workload


@pytest.mark.slow
def test_thirty_jobs_that_change_alike_teach_the_next() -> None:
    workload = generate_workload(1, rng=np.random.default_rng(1))
    (spec,), (truth,) = workload.specs, workload.truths
    spec = replace(
        spec,
        mode=Mode.ACCORDION,
        epochs=50,
        total_steps=0,
        batch_size=16,
        model="translator",
        max_batch_size=256,
    )
    regimes = (Regime(16, 10), Regime(256, 40))

    def errors(jobs: int) -> list[float]:
        many = replace(
            workload,
            specs=tuple(replace(spec, job_id=n) for n in range(jobs)),
            truths=tuple(replace(truth, job_id=n, profiled=regimes) for n in range(jobs)),
        )
        return [row.error * row.jobs for row in forecast_errors(many)]

    assert errors(1)[0] > 0.1
    assert np.subtract(errors(30), errors(29)) == pytest.approx([0.0] * len(POINTS), abs=1e-9)


def test_static_jobs_are_forecast_exactly() -> None:
    workload = generate_workload(5, rng=np.random.default_rng(0))
    statics = replace(
        workload,
        specs=tuple(replace(s, mode=Mode.STATIC, total_steps=0) for s in workload.specs),
        truths=tuple(
            replace(t, profiled=(Regime(s.batch_size, s.epochs),))
            for s, t in zip(workload.specs, workload.truths, strict=True)
        ),
    )
    for row in forecast_errors(statics):
        assert (row.error, row.error_extrapolation, row.coverage_80) == (0.0, 0.0, 1.0)


def test_a_finished_job_is_seen_as_it_was_before() -> None:
    spec = replace(
        generate_workload(1, rng=np.random.default_rng(1)).specs[0],
        mode=Mode.GNS,
        epochs=60,
        total_steps=0,
    )
    whole = Belief(spec, (Regime(16, 10), Regime(32, 20), Regime(64, 30)))
    then = until(whole, 10)
    assert (then.observed, then.batch_size, then.epochs_done) == ((Regime(16, 10),), 32, 10)
    assert until(whole, 0).batch_size == 16
    late = until(whole, 35)
    assert late.observed == (Regime(16, 10), Regime(32, 20), Regime(64, 5))
    assert late.epochs_left == 25
