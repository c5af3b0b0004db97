"""Runs whose policy reads the losses of epochs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.quality import figures, ran, workload_of
from containers.leasing.telemetry import JobLog
from flows.runs.start import make_start
from predictor.errors import InputError
from predictor.job import EpochLoss
from solver.inventory import Pool
from tasks.record import RuntimeKind, Settings
from tests.runs import check_sound, check_stored, make
from warehouse.store.reader import Reader
from warehouse.workloads.mix import Mix
from warehouse.workloads.tables import read_throughputs

SHORT = Mix(shortest_seconds=600.0, longest_seconds=1800.0)


@pytest.mark.slow
def test_losses_fall_sooner_than_under_fair_sharing() -> None:
    mix = Mix(shortest_seconds=1800.0, longest_seconds=3600.0)
    workload = workload_of(20, 1, 100.0, mix)
    runs = {policy: ran(workload, policy, 4) for policy in ("slaq", "gavel")}
    quality, fair = figures(workload, runs)
    assert float(quality["to_90"]) < 0.95 * float(fair["to_90"])
    assert float(quality["left"]) < 0.95 * float(fair["left"])


@pytest.mark.parametrize("runtime", [RuntimeKind.VIRTUAL, RuntimeKind.FAITHFUL])
def test_each_epoch_has_its_loss_and_the_run_is_kept_and_decided_again(
    runtime: RuntimeKind, tmp_path: Path
) -> None:
    workload, silent = workload_of(6, 3, 60.0, SHORT), 2
    truths = [replace(t, losses=() if t.job_id == silent else t.losses) for t in workload.truths]
    workload = replace(workload, truths=tuple(truths))
    made = make(make_start(workload, Settings("slaq", (Pool("", 4, 4),), runtime=runtime)))
    check_sound(made)
    for truth in workload.truths:
        found = [loss for r in made.records for loss in r.losses if loss.job_id == truth.job_id]
        assert [loss.epoch for loss in found] == list(range(len(truth.losses)))
        assert [loss.loss for loss in found] == list(truth.losses)
    run = check_stored(tmp_path, made)
    assert [record for record, _ in Reader(tmp_path).records(run)] == made.records


def test_policies_that_read_no_losses_have_none_in_their_records() -> None:
    workload = workload_of(3, 3, 60.0, SHORT)
    made = make(make_start(workload, Settings("srtf", (Pool("", 4, 4),))))
    assert not made.header.losses
    assert not any(record.losses for record in made.records)


def test_a_container_tells_each_loss_once(tmp_path: Path) -> None:
    (spec,) = workload_of(1, 3, 60.0).specs
    log = JobLog(tmp_path, spec)
    line = {"batch_size": spec.batch_size, "seconds": 1.0}
    lines = [{**line, "epoch": n, "loss": 3.0 - n} for n in (0, 1, 1)]
    lines += [{**line, "epoch": 2}, {**line, "epoch": 3, "loss": "NaN"}]
    lines += [{**line, "epoch": 4, "loss": -1e200}]
    (tmp_path / "telemetry.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    news = log.read(trained=False, held_seconds=1.0, most_seconds=10.0)
    assert sum(report.epochs for report in news.reports) == 5
    assert news.losses == (EpochLoss(spec.job_id, 0, 3.0), EpochLoss(spec.job_id, 1, 2.0))
    assert log.read(trained=False, held_seconds=1.0, most_seconds=10.0).losses == ()


def test_curves_stand_beside_the_throughputs(tmp_path: Path) -> None:
    path, rates = tmp_path / "p.json", {"('LM (batch size 5)', 1)": {"null": 10.5}}
    path.write_text(json.dumps({"v100": rates, "losses": {"LM": [3, 2.5]}}))
    assert read_throughputs(path).losses == {"LM": (3.0, 2.5)}
    for wrong in ([], [None], 3, ["x"], [1e999]):
        path.write_text(json.dumps({"v100": rates, "losses": {"LM": wrong}}))
        with pytest.raises(InputError, match="losses, LM"):
            read_throughputs(path)
