"""Forecast errors on the public traces, beside the published rule and plain extrapolation."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.coverage import FINISH, LEFT, START, intervals
from benchmarks.forecast_error import ForecastError, forecast_errors
from predictor.job import Mode
from warehouse.workloads.trace import read_workload

TRACES = {"jobs120_gpus32": "tacc_throughputs.json", "jobs220_gpus64": "wisr_throughputs.json"}


@pytest.fixture(scope="module")
def rows(data: Path) -> dict[str, list[ForecastError]]:
    """Errors of adaptive jobs by trace."""
    return {
        name: [
            row
            for row in forecast_errors(
                read_workload(data / f"{name}.trace", data / profile, data / "gns_regimes.csv")
            )
            if row.mode is not Mode.STATIC
        ]
        for name, profile in TRACES.items()
    }


@pytest.mark.parametrize("trace", TRACES)
def test_errors_are_small_and_never_far_above_the_better_of_the_others(
    rows: dict[str, list[ForecastError]], trace: str
) -> None:
    assert len(rows[trace]) == 12
    assert np.mean([row.error for row in rows[trace]]) <= 0.03
    for row in rows[trace]:
        assert row.error <= min(row.error_published, row.error_extrapolation) + 0.01


def test_the_published_rule_and_extrapolation_err_as_is_known(
    rows: dict[str, list[ForecastError]],
) -> None:
    gns = [row for row in rows["jobs220_gpus64"] if row.mode is Mode.GNS]
    assert [row.error_published for row in gns] == pytest.approx(
        [0.05, 0.06, 0.08, 0.10, 0.15, 0.21], abs=0.015
    )
    assert [row.error_extrapolation for row in gns] == pytest.approx(
        [0.12, 0.10, 0.06, 0.03, 0.01, 0.02], abs=0.01
    )


def test_intervals_hold_four_fifths_of_the_truths(rows: dict[str, list[ForecastError]]) -> None:
    scored = [row for some in rows.values() for row in some]
    held = sum(row.coverage_80 * row.jobs for row in scored) / sum(row.jobs for row in scored)
    assert 0.8 <= held <= 0.95  # more, as many of these forecasts are exact


def test_so_do_those_that_a_run_records_and_those_of_starts_and_finishes(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOCKWAVE_DATA", str(data.parent))
    found = intervals("120 jobs", "shockwave", 60)
    assert all(interval.width > 0.0 for interval in found)
    of = {
        kind: [interval for interval in found if interval.of == kind]
        for kind in (LEFT, START, FINISH)
    }
    assert np.mean([interval.held for interval in of[LEFT]]) == pytest.approx(0.8, abs=0.05)
    for kind in (START, FINISH):
        assert np.mean([interval.held for interval in of[kind]]) == pytest.approx(0.8, abs=0.15)
    both = [interval for interval in of[LEFT] if interval.baseline == interval.baseline]
    assert np.mean([interval.width for interval in both]) < np.mean(
        [interval.baseline for interval in both]
    )
