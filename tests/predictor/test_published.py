"""The published predictor, by hand and against the recorded windows of the published system."""

import json
from pathlib import Path

import pytest

from predictor.published_predictor import (
    ProfiledRegime,
    calibrate,
    mean_epoch_seconds,
    remaining_seconds,
    seconds_done,
)
from predictor.throughput import epoch_seconds
from warehouse.workloads.trace import read_workload

# 4 epochs of 10 s, then 6 of 4 s.
SCHEDULE = (ProfiledRegime(16, 4, 9.6), ProfiledRegime(32, 6, 4.4))


def test_durations_are_whole_seconds_and_at_least_one() -> None:
    assert [regime.whole_seconds for regime in SCHEDULE] == [10, 4]
    assert ProfiledRegime(16, 1, 0.2).whole_seconds == 1
    assert [seconds_done(SCHEDULE, epochs) for epochs in (0, 3, 4, 5, 10)] == [0, 30, 40, 44, 64]


def test_the_epoch_under_way_counts_in_the_mean_but_there_is_none_after_the_last() -> None:
    assert mean_epoch_seconds(SCHEDULE, 0) == 10
    assert mean_epoch_seconds(SCHEDULE, 5) == pytest.approx(48 / 6)
    assert mean_epoch_seconds(SCHEDULE, 10) == pytest.approx(6.4)


def test_remaining_time_by_hand() -> None:
    # At the start: masses 5 + 1 and 5, scaled to 10 epochs: 60/11 and 50/11; one epoch of
    # the first is under way. 49/11 · 10 s + 50/11 · 4 s, and 10 of ⌊9 + 1⌋ epochs are left.
    assert remaining_seconds(SCHEDULE, 0) == pytest.approx(490 / 11 + 200 / 11)
    # With five epochs complete: 9 and 7 of 16, so 5.625 and 4.375; four and two come off.
    assert remaining_seconds(SCHEDULE, 5) == pytest.approx((16.25 + 9.5) * 5 / 5)


def test_durations_are_scaled_where_the_measured_speed_is_far_off() -> None:
    def factor(samples: float, seconds: float = 44.0, before: float = 1.0) -> float:
        return calibrate(SCHEDULE, 100, factor=before, samples=samples, seconds=seconds)

    # In 44 s the profile has 5 epochs of 100 samples.
    assert factor(500.0) == 1.0
    assert factor(301.0) == 1.0
    assert factor(250.0) == 2.0
    assert factor(1_000.0) == 0.5
    assert factor(0.0) == 1.0
    assert factor(500.0, before=3.0) == 3.0
    # After its end the last epoch is taken to go on, at the durations scaled before.
    assert factor(100.0, seconds=72.0) == pytest.approx(12.0)
    assert factor(100.0, seconds=72.0, before=2.0) == pytest.approx(11.0)


def test_the_published_windows_were_predicted_like_this(data: Path) -> None:
    workload = read_workload(
        data / "jobs120_gpus32.trace", data / "tacc_throughputs.json", data / "gns_regimes.csv"
    )
    schedules = {
        spec.job_id: tuple(
            ProfiledRegime(
                regime.batch_size,
                int(regime.epochs),
                epoch_seconds(workload.profile, spec, regime.batch_size),
            )
            for regime in truth.profiled
        )
        for spec, truth in zip(workload.specs, workload.truths, strict=True)
    }
    alike, unscaled, jobs = 0, 0, 0
    for line in (data / "windows_jobs120.jsonl").read_text().splitlines():
        for job in json.loads(line)["jobs"]:
            done, schedule = job["epoch_progress"], schedules[job["jobid"]]
            if done < job["epochs"]:
                scale = job["epoch_dur"] / mean_epoch_seconds(schedule, done)
                expected = scale * remaining_seconds(schedule, done)
                jobs += 1
                alike += job["remaining"] == pytest.approx(expected, rel=1e-6)
                unscaled += scale == pytest.approx(1.0, rel=1e-9)
    # The others: durations scaled between two looks, or a mass that rounds to a whole one.
    assert alike > 0.99 * jobs
    assert unscaled > 0.95 * jobs
