"""The policy inputs of our run of the published policy, against those of the published run.

The recorded windows hold each job's predicted remaining time, mean epoch and finish-time
objective. The two runs part where equally good solutions were taken, so the windows are
compared field by field up to there, and from there on by replaying the recording.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.windows import read_windows
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from harness.conformance import CASES
from predictor.published_predictor import ProfiledRegime, mean_epoch_seconds, seconds_done
from predictor.throughput import epoch_seconds
from solver.fidelity import Fidelity
from solver.policies import shockwave_published
from solver.policies.shockwave_published import FinishEstimates
from solver.window.counts import solve_counts
from solver.window.published import lay_out_by_priority, make_published_market
from tasks.record import Settings, make_pool
from tasks.round import run_round
from tasks.sources import Workload
from tests.runs import Memory
from warehouse.workloads.trace import read_workload

ALIKE = 12
"""Windows from the start, up to the first in which some job has to wait."""


@pytest.fixture(scope="module")
def workload(data: Path) -> Workload:
    return read_workload(
        data / "jobs120_gpus32.trace", data / "tacc_throughputs.json", data / "gns_regimes.csv"
    )


@pytest.fixture(scope="module")
def recorded(data: Path) -> list[dict[str, Any]]:
    lines = (data / "windows_jobs120.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_first_windows_are_the_recorded_ones(
    workload: Workload, recorded: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[dict[str, Any]] = []
    make_market: Callable[..., Any] = make_published_market

    def listen(**inputs: Any) -> Any:
        met.append(inputs)
        return make_market(**inputs)

    monkeypatch.setattr(shockwave_published, "make_published_market", listen)
    settings = Settings(
        "shockwave-published",
        make_pool(32),
        fidelity=Fidelity.REFERENCE,
        parameters=CASES[0].tuning,
    )
    start = make_start(workload, settings)
    with prepare(start).open_run(Memory()) as run:
        while len(met) < ALIKE:
            run_round(run)
    for ours, theirs in zip(met, recorded, strict=False):
        assert ours["clock_seconds"] == theirs["round_index"] * theirs["round_duration"]
        assert list(ours["job_ids"]) == [job["jobid"] for job in theirs["jobs"]]
        assert ours["gangs"] == [job["nworkers"] for job in theirs["jobs"]]
        for ours_name, name in (
            ("epochs", "epochs"),
            ("epochs_done", "epoch_progress"),
            ("epoch_seconds", "epoch_dur"),
            ("remaining", "remaining"),
            ("finish_objectives", "finish_time_objective"),
        ):
            expected = [job[name] for job in theirs["jobs"]]
            assert ours[ours_name] == pytest.approx(expected, rel=1e-6), (theirs["seq"], name)


def test_every_recorded_finish_objective_follows_from_the_windows_before(
    workload: Workload, recorded: list[dict[str, Any]]
) -> None:
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
    accounts: dict[int, FinishEstimates] = {}
    active: set[int] = set()
    alike = jobs = 0
    for window in recorded:
        number, share = window["round_index"], min(1.0, window["ngpus"] / len(window["jobs"]))
        changed = active != (active := {job["jobid"] for job in window["jobs"]})
        for job in window["jobs"]:
            job_id, objective = job["jobid"], job["finish_time_objective"]
            schedule, epochs = schedules[job_id], job["epoch_progress"]
            if job_id not in accounts:  # nothing is done yet: the first estimate is the admission
                admitted = objective - job["remaining"] / share
                assert admitted == pytest.approx(number * window["round_duration"], abs=0.1)
                accounts[job_id] = FinishEstimates(admitted)
            if changed:
                factor = job["epoch_dur"] / mean_epoch_seconds(schedule, epochs)
                run = factor * seconds_done(schedule, epochs) + job["remaining"]
                finish = accounts[job_id].submitted_at + run / share
                accounts[job_id] = accounts[job_id].estimated(number, finish)
            expected = accounts[job_id].finish_objective(number)
            assert expected == pytest.approx(objective, rel=0.02)
            alike += expected == pytest.approx(objective, rel=1e-6)
            jobs += 1
    assert jobs == 6285
    assert alike > 0.99 * jobs  # durations of the others were scaled again between two looks


def test_laying_out_by_priority_gives_up_few_rounds(data: Path) -> None:
    wanted = placed = 0
    for problem in read_windows(data / "windows_jobs120.jsonl"):
        market, counts = problem.market, solve_counts(problem.market).counts
        table = lay_out_by_priority(market, counts, market.weights)
        assert (table.sum(axis=1) <= counts).all()
        here = int(market.gangs @ counts), int(market.gangs @ table.sum(axis=1))
        assert here[1] >= 0.95 * here[0], problem.seq
        wanted, placed = wanted + here[0], placed + here[1]
    assert placed >= 0.99 * wanted
