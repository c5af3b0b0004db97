"""A regime table may have single jobs; rows that do not fit the job are refused."""

import json
import math
from pathlib import Path

import pytest

from containers.virtual.truth import GroundTruth
from predictor.errors import InputError
from predictor.job import Regime
from warehouse.workloads.published_rules import published_gns
from warehouse.workloads.regimes import read_regimes
from warehouse.workloads.trace import COLUMNS, read_workload

HEADER = "model,initial_batch_size,scale_factor,schedule,job_id,profiled,isolated_seconds"
RATES = {8: 1.0, 16: 1.0, 32: 0.5}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def read(folder: Path, *rows: str, mode: str = "accordion", **declared: object) -> GroundTruth:
    """The truth of one job of ten epochs of 4 steps from batch size 8."""
    sizes = {"samples_per_epoch": 32, "max_batch_size": 32}
    job = dict.fromkeys(COLUMNS, "-") | {
        "job_type": "net (batch size 8)",
        "command": json.dumps(sizes | declared),
        "total_steps": "40",
        "scale_factor": "1",
        "mode": mode,
        "priority_weight": "1",
        "arrival": "0",
    }
    (folder / "t").write_text("\t".join(job.values()))
    table = {f"('net (batch size {size})', 1)": {"null": rate} for size, rate in RATES.items()}
    (folder / "p").write_text(json.dumps({"v100": table}))
    (folder / "r").write_text("\n".join([HEADER, *rows]))
    (truth,) = read_workload(folder / "t", folder / "p", folder / "r").truths
    return truth


def refusal(folder: Path, *rows: str, mode: str = "accordion") -> str:
    with pytest.raises(InputError) as caught:
        read(folder, *rows, mode=mode)
    return str(caught.value).replace(f"{folder}/", "")


def test_one_job_has_a_schedule_of_its_own(folder: Path) -> None:
    truth = read(folder, "net,8,1,0:8;2:32;5:8,0,,")
    assert truth.targets == (Regime(8, 2), Regime(32, 3), Regime(8, 5))
    assert truth.profiled == truth.targets
    assert truth.isolated_seconds == 2 * 4 + 3 * 2 + 5 * 4


def test_its_targets_may_end_elsewhere_and_its_profile_differ(folder: Path) -> None:
    truth = read(folder, "net,8,1,0:8;2:32;4,0,0:8;1:32,123.5")
    assert truth.targets == (Regime(8, 2), Regime(32, 2))
    assert truth.profiled == (Regime(8, 1), Regime(32, 9))
    assert truth.isolated_seconds == 123.5


def test_a_row_without_a_job_is_about_all_of_a_kind(folder: Path) -> None:
    truth = read(folder, "net,8,1,0:8;3:16,,,", mode="gns")
    assert truth.profiled == (Regime(8, 3), Regime(16, 7))


def test_a_jobs_own_row_comes_before_that_of_its_kind(folder: Path) -> None:
    rows = ["net,8,1,0:8;3:16,,,", "net,8,1,0:8;6:32,4,,"]
    truth = read(folder, *rows, mode="gns", job_id=4)
    assert truth.profiled == (Regime(8, 6), Regime(32, 4))


def test_tables_hold_both(folder: Path) -> None:
    path = folder / "r"
    path.write_text("\n".join([HEADER, "net,8,1,0:8;3:16,,,", "net,8,1,0:8;3:16,7,,"]))
    table = read_regimes(path)
    assert table.gns == {("net", 8, 1): (Regime(8, 3), Regime(16, math.inf))}
    assert table.own.keys() == {7}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("net,16,1,0:8,0,,", ": job 0 is net (batch size 8) on 1 GPU, not net (batch size 16) on"),
        ("net,8,1,0:8;10:16,0,,", ", schedule: epoch 10 is beyond the job's 10; let the last"),
        ("net,8,1,0:8,0,0:8;12:16,", ", profiled: epoch 12 is beyond the job's 10; let the last"),
        ("net,8,1,0:8,0,0:8;9,", ", profiled: does not end with the job's 10 epochs; give no end"),
        ("net,8,1,0:8;2:24,0,,", ": no throughput for net with batch size 24 on 1 GPU of type "),
        ("net,8,1,0:8,0,,0", ", isolated_seconds: 0.0 is not positive; give a positive number"),
        ("net,8,1,0:8,zero,,", ", job_id: 'zero' is not a whole number; correct the field"),
        ("net,8,1,0:8,1,,", ", job_id: the trace has no job 1; give the table of this trace"),
    ],
)
def test_a_row_that_is_not_of_its_job(folder: Path, row: str, message: str) -> None:
    assert refusal(folder, "other,8,1,0:8,,,", row).startswith(f"r:3{message}")


@pytest.mark.parametrize("column", ["schedule", "profiled"])
@pytest.mark.parametrize(
    "text", ["5", "0:8;x", "1:8", "0:8;0:16", "0:8;5:16;3", "0:8;4:16;4", "0:0", "0:8:1", ";"]
)
def test_a_malformed_schedule(folder: Path, column: str, text: str) -> None:
    row = f"net,8,1,{text},0,," if column == "schedule" else f"net,8,1,0:8,0,{text},"
    assert refusal(folder, row) == (
        f"r:2, {column}: {text!r} is not like '0:16;31:32' or '0:16;31:32;90'; "
        "give ascending epochs from 0, each with a batch size, and if need be the end"
    )


@pytest.mark.parametrize(
    ("mode", "rows", "message"),
    [
        ("accordion", 2 * ("net,8,1,0:8,0,,",), "r:3, job_id: job 0 is there twice; leave one row"),
        ("static", ("net,8,1,0:8;2:16,0,,",), "r:2, schedule: a static job never changes; give"),
        ("gns", ("net,8,1,0:16;2:8,0,,",), "r:2, schedule: the batch size of a GNS job never"),
    ],
)
def test_rows_that_no_job_has(folder: Path, mode: str, rows: tuple[str, ...], message: str) -> None:
    assert refusal(folder, *rows, mode=mode).startswith(message)


def test_the_published_regimes_are_those_of_the_published_table(data: Path) -> None:
    assert read_regimes(data / "gns_regimes.csv").gns == published_gns()


def test_published_regimes_by_name(data: Path) -> None:
    files = data / "jobs120_gpus32.trace", data / "tacc_throughputs.json"
    table = data / "gns_regimes.csv"
    assert read_workload(*files, Path("published")) == read_workload(*files, table)
