"""The public traces have their published properties, and any trace the jobs of its fields."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from predictor.allocation import Allocation
from predictor.errors import InputError
from predictor.job import Mode, Regime
from tests.warehouse.trace_files import Files, job_line
from warehouse.workloads.regimes import read_regimes
from warehouse.workloads.tables import read_throughputs
from warehouse.workloads.trace import read_workload


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


PUBLIC = [
    ("jobs120_gpus32.trace", "tacc_throughputs.json", "truth_jobs120.csv", 120),
    ("jobs220_gpus64.trace", "wisr_throughputs.json", "truth_jobs220.csv", 220),
]


@pytest.mark.parametrize(("trace", "profile", "truth", "jobs"), PUBLIC)
def test_public_traces_agree_with_their_ground_truth(
    data: Path, trace: str, profile: str, truth: str, jobs: int
) -> None:
    workload = read_workload(data / trace, data / profile, data / "gns_regimes.csv")
    with (data / truth).open(newline="") as file:
        rows = {int(row["job_id"]): row for row in csv.DictReader(file)}
    assert sorted(spec.job_id for spec in workload.specs) == list(range(jobs))
    for spec, hidden in zip(workload.specs, workload.truths, strict=True):
        row = rows[spec.job_id]
        assert hidden.job_id == spec.job_id
        assert (spec.model, spec.mode) == (row["model"], row["mode"])
        assert (spec.batch_size, spec.demand.least) == (
            int(row["init_bs"]),
            int(row["scale_factor"]),
        )
        assert spec.total_steps == int(row["total_steps"])
        assert spec.epochs == int(row["num_epochs"])
        assert spec.samples_per_epoch == int(row["num_samples_per_epoch"])
        assert spec.arrival_seconds == float(row["arrival_time"])
        assert math.isclose(hidden.isolated_seconds, float(row["isolated_runtime"]), rel_tol=1e-9)


@pytest.mark.parametrize(("trace", "profile", "truth", "jobs"), PUBLIC)
def test_without_the_regime_table_gns_jobs_never_change(
    data: Path, trace: str, profile: str, truth: str, jobs: int
) -> None:
    workload = read_workload(data / trace, data / profile)
    changing = {
        spec.mode
        for spec, hidden in zip(workload.specs, workload.truths, strict=True)
        if len(hidden.targets) > 1
    }
    assert changing == {Mode.ACCORDION}


def test_reading_splits_what_is_declared_from_what_is_hidden(files: Files) -> None:
    (spec,), (hidden,) = (workload := files.read()).specs, workload.truths
    assert workload.source == "one.trace"
    assert (spec.epochs, spec.batch_size, spec.max_batch_size) == (4, 5, 80)
    assert hidden.isolated_seconds == 2 * (59_675 / 5 / 10.0) + 2 * (59_675 / 10 / 8.0)
    assert hidden.targets == (Regime(5, 1), Regime(10, 2))  # due an epoch ahead


def test_jobs_are_numbered_by_line_and_ordered_by_arrival(files: Files) -> None:
    lines = [job_line(arrival="30"), "", job_line(arrival="10"), job_line(arrival="30")]
    files.trace.write_text("\n".join(lines))
    workload = files.read()
    order = [(spec.job_id, spec.arrival_seconds) for spec in workload.specs]
    assert order == [(1, 10.0), (0, 30.0), (2, 30.0)]
    assert [hidden.job_id for hidden in workload.truths] == [1, 0, 2]


def test_accordion_turns_to_the_largest_batch_size_unless_it_cannot_run(files: Files) -> None:
    files.write_trace(mode="accordion", total_steps=str(20 * 11_935))
    (hidden,) = files.read().truths
    assert hidden.targets == (Regime(5, 10), Regime(80, 11))
    files.write_profile({"('LM (batch size 5)', 1)": {"null": 10}})
    (hidden,) = files.read().truths
    assert hidden.targets == (Regime(5, 21),)


def test_pairs_and_bare_models_of_the_throughput_table_are_left_out(files: Files) -> None:
    files.write_profile(
        {
            "('LM (batch size 5)', 1)": {"null": 10.0, "('LM (batch size 5)', 1)": [6.0, 6.0]},
            "('A3C', 1)": {"null": 3.0},
        }
    )
    assert read_throughputs(files.profile).rates == {("LM", 5, "v100", 1): 10.0}


def test_the_only_worker_type_is_taken_whatever_its_name(files: Files) -> None:
    table = json.loads(files.profile.read_text())["v100"]
    files.profile.write_text(json.dumps({"measured": {"a100": {"date": "today"}}, "a100": table}))
    assert read_throughputs(files.profile).rates["LM", 5, "a100", 1] == 10.0


def test_a_worker_type_that_is_asked_for_is_taken_and_no_other(files: Files) -> None:
    slow, fast = ({"('LM (batch size 5)', 1)": {"null": rate}} for rate in (10.0, 40.0))
    files.profile.write_text(json.dumps({"v100": slow, "a100": fast, "measured": {}}))
    for asked, taken, rate in (
        ((), "v100", 10.0),
        (("v100",), "v100", 10.0),
        (("a100",), "a100", 40.0),
    ):
        rates = {("LM", 5, taken, 1): rate}
        assert read_throughputs(files.profile, asked).rates == rates
        workload = read_workload(files.trace, files.profile, files.regimes, asked)
        assert workload.profile.rates == rates
    both = read_throughputs(files.profile, ("a100", "v100"))
    assert both.rates == {("LM", 5, "v100", 1): 10.0, ("LM", 5, "a100", 1): 40.0}
    with pytest.raises(InputError, match="has no worker type 'h100'; measure it with shockwave"):
        read_throughputs(files.profile, ("h100",))
    files.profile.write_text(json.dumps({"v100": slow}))
    with pytest.raises(InputError, match="has no worker type 'a100'"):
        read_throughputs(files.profile, ("a100",))


def test_restarts_are_the_median_of_what_was_measured_on_as_many_gpus_of_a_type(
    files: Files,
) -> None:
    keys = [f"('LM (batch size {size})', {gpus})" for gpus in (1, 2) for size in (5, 10, 20)]
    took = {"v100": (4.0, 9.0, 5.0, 3.0, 3.0, 2.0), "k80": (8.0, 7.0, 7.5, 6.0, 6.0, 6.5)}
    table: dict[str, Any] = {kind: {key: {"null": 1.0} for key in keys} for kind in took}
    table["t4"] = table["v100"]
    table["measured"] = {
        kind: {"entries": {k: {"restart_seconds": s} for k, s in zip(keys, each, strict=True)}}
        for kind, each in took.items()
    }
    files.profile.write_text(json.dumps(table))
    measured = {("v100", 1): 5.0, ("v100", 2): 3.0, ("k80", 1): 7.5, ("k80", 2): 6.0}
    both = read_throughputs(files.profile, ("v100", "k80", "t4"))
    assert both.restarts == measured
    assert both.of_types(["k80"]).restarts == {("k80", 1): 7.5, ("k80", 2): 6.0}
    # Of as many GPUs as are nearest, and of types that were not measured what holds otherwise.
    restarts = [
        both.restart(Allocation(kind, gpus), 20.0) for kind, gpus in (("k80", 8), ("t4", 1))
    ]
    assert restarts == [6.0, 20.0]
    for wrong in ("soon", 0.0, -1.0, float("nan"), None):
        table["measured"]["k80"]["entries"][keys[0]]["restart_seconds"] = wrong
        files.profile.write_text(json.dumps(table))
        with pytest.raises(InputError, match=r'measured, k80, .*has no "restart_seconds" above 0'):
            read_throughputs(files.profile, ("k80",))


def test_regimes_run_from_their_epoch_to_the_next(files: Files) -> None:
    files.write_regimes("LM,5,1,0:5;3:10;7:20")
    regimes = read_regimes(files.regimes).gns["LM", 5, 1]
    assert regimes == (Regime(5, 3), Regime(10, 4), Regime(20, math.inf))


SIZES = '"samples_per_epoch": 100, "max_batch_size": 20'


def test_a_job_may_declare_what_the_columns_cannot(files: Files) -> None:
    files.write_trace(
        job_type="net (batch size 10)",
        total_steps="25",
        mode="static",
        command=f'{{{SIZES}, "job_id": 7, "tenant": "red", "consolidate": true, '
        '"max_seconds": 90}',
    )
    files.write_profile({"('net (batch size 10)', 1)": {"null": 2.0}})
    ((spec,), (hidden,)) = (workload := files.read()).specs, workload.truths
    assert (spec.job_id, spec.tenant, spec.consolidate, spec.max_seconds) == (7, "red", True, 90)
    assert (spec.samples_per_epoch, spec.max_batch_size, spec.epochs) == (100, 20, 3)
    assert (hidden.job_id, hidden.isolated_seconds) == (7, 15.0)


def test_what_a_job_of_a_public_model_leaves_out_is_as_published(files: Files) -> None:
    files.write_trace(command='{"max_batch_size": 40}')
    (spec,) = files.read().specs
    assert (spec.job_id, spec.samples_per_epoch, spec.max_batch_size) == (0, 59_675, 40)
