"""What the comparison of elastic jobs in containers and in simulation accepts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.elastic_fidelity import ELASTIC, GANGS, NAMES, speed_of, summarize
from containers.virtual.truth import GroundTruth
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode, Regime
from predictor.throughput import Profile
from tasks.record import RuntimeKind, Settings, make_pool
from tasks.sources import Workload


def judge(makespans: float, speed: float, gain: float = 1.0, gain_at_speed: float = 1.0) -> int:
    """The number of problems, given simulated over real figures.

    Args:
        makespans: Ratio of makespans.
        speed: Speed of the machine over that of the profile.
        gain: Ratio of what elasticity changes, simulated with the profile.
        gain_at_speed: The same, simulated at the machine's speed.
    """
    rows: list[dict[str, Any]] = []
    for kind in (ELASTIC, GANGS):
        row: dict[str, Any] = {"jobs": kind, "speed": speed, "load_before": 1.0}
        for name in NAMES:
            row |= {f"{how}_{name}": 100.0 for how in ("real", "simulated", "at_speed")}
            row |= {f"{name}_ratio": makespans, f"at_speed_{name}_ratio": makespans}
        if kind == ELASTIC:
            row |= {"simulated_mean_jct_s": 100.0 * gain}
            row |= {"at_speed_mean_jct_s": 100.0 * gain_at_speed}
        rows.append(row)
    return len(summarize(rows)[1])


def test_makespans_may_differ_as_the_speed_did() -> None:
    assert [judge(ratio, speed=1.0) for ratio in (0.92, 0.94, 1.06, 1.08)] == [2, 0, 0, 2]
    slow = [judge(ratio, speed=0.84) for ratio in (0.80, 0.82, 1.06, 1.08, 1.18)]
    assert slow == [2, 0, 0, 2, 2]
    fast = [judge(ratio, speed=1.1) for ratio in (0.92, 0.94, 1.12, 1.14)]
    assert fast == [2, 0, 0, 2]


def test_elasticity_is_judged_at_the_speed_of_the_machine() -> None:
    assert judge(1.0, 1.0, gain=1.3) == 0
    assert judge(1.0, 1.0, gain_at_speed=0.88) == 1


def test_speeds_follow_the_batch_size_of_each_epoch(tmp_path: Path) -> None:
    """A job whose batch size changes within rounds trains exactly as its profile says."""
    rates = {("net", 32, "", 1): 2.0, ("net", 64, "", 1): 0.5}
    spec = JobSpec(
        job_id=0,
        model="net",
        batch_size=32,
        max_batch_size=64,
        demand=Demand.gang(1),
        mode=Mode.GNS,
        epochs=4,
        samples_per_epoch=640,
        arrival_seconds=0.0,
    )
    regimes = Regime(32, 1), Regime(64, 3)  # 10 s, then 20 s an epoch
    truth = GroundTruth(0, 70.0, regimes, regimes)
    profile = Profile(rates)
    settings = replace(
        Settings("fifo", make_pool(1), round_seconds=30.0, restart_seconds=0.0),
        runtime=RuntimeKind.FAITHFUL,
    )
    run = simulate(make_start(Workload("net", (spec,), (truth,), profile), settings), tmp_path)
    assert speed_of(tmp_path, run, profile, (spec,)) == pytest.approx(1.0)
    half = Profile({key: rate / 2.0 for key, rate in rates.items()})
    assert speed_of(tmp_path, run, half, (spec,)) == pytest.approx(2.0)
