"""A wrong trace or table gives an error of one line with place and problem."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from predictor.errors import InputError
from solver.inventory import Inventory
from tasks.record import make_pool
from tests.warehouse.trace_files import Files, job_line


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


DIGITS = "1" + 30 * "0"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"job_type": "LM"}, "job_type: 'LM' is not like 'LM (batch size 5)'; give a whole"),
        ({"job_type": "VGG (batch size 5)"}, "job_type: unknown model 'VGG'; choose from LM, "),
        (
            {"job_type": "LM (batch size 0)"},
            "job_type: a batch size of 0; give a whole number above 0",
        ),
        (
            {"mode": "magic"},
            "mode: 'magic' is not an adaptation mode; choose from static, accordion",
        ),
        (
            {"arrival": "-3"},
            "arrival: -3.0 is not a time of 0 or more; give seconds since the start",
        ),
        (
            {"arrival": "nan"},
            "arrival: nan is not a time of 0 or more; give seconds since the start",
        ),
        ({"arrival": "soon"}, "arrival: 'soon' is not a number; correct the field"),
        ({"scale_factor": "0"}, "scale_factor: 0 is not positive; give a positive number"),
        ({"scale_factor": "1.5"}, "scale_factor: '1.5' is not a whole number; correct the field"),
        ({"total_steps": "0"}, "total_steps: 0 is not positive; give a positive"),
        ({"total_steps": ""}, "total_steps: '' is not a whole number; correct the field"),
        ({"total_steps": DIGITS}, f"total_steps: {DIGITS} is too large; correct the field"),
        ({"priority_weight": "0"}, "priority_weight: 0.0 is not positive; give a positive number"),
        ({"priority_weight": "high"}, "priority_weight: 'high' is not a number; correct the field"),
        ({"slo": "soon"}, "slo: 'soon' is not a number; correct the field"),
        ({"slo": "inf"}, "slo: inf is not a finite number; give -1 for none"),
    ],
)
def test_a_wrong_field_is_named_with_its_line(
    files: Files, changed: dict[str, str], message: str
) -> None:
    files.trace.write_text(job_line() + "\n" + job_line(**changed) + "\n")
    assert files.refusal().startswith(f"one.trace:2, {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (job_line().rpartition("\t")[0], ":1: 11 columns instead of 12; the tab-separated columns"),
        ("\n \n", ": holds no jobs; give a trace with at least one line"),
        (
            "\n".join([job_line(), job_line(command='{"job_id": 0}')]),
            ":2: job 0 is there twice; give each job an id of its own",
        ),
    ],
)
def test_a_wrong_trace(files: Files, text: str, message: str) -> None:
    files.trace.write_text(text)
    assert files.refusal().startswith(f"one.trace{message}")


@pytest.mark.parametrize("name", ["one.trace", "speed.json", "regimes.csv"])
def test_a_file_that_cannot_be_read(files: Files, name: str) -> None:
    path = files.folder / name
    path.write_bytes(b"\x80\x02}q\x00.")
    assert files.refusal() == f"{name}: is not UTF-8 text; give a readable file"
    path.unlink()
    assert files.refusal() == f"{name}: No such file or directory; give a readable file"
    path.mkdir()
    assert files.refusal() == f"{name}: Is a directory; give a readable file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"v100":\n {',
            ":2: not valid JSON (Expecting property name enclosed in double quotes); ",
        ),
        ("{}", ": has no worker type 'v100'; give a throughput table"),
        ('{"k80": {}, "p100": {}}', ": has no worker type 'v100'; give a throughput table"),
        ('{"v100": 3}', ": has no worker type 'v100'; give a throughput table"),
        ("[]", ": is not a JSON object; give a throughput table"),
    ],
)
def test_a_file_that_is_no_throughput_table(files: Files, text: str, message: str) -> None:
    files.profile.write_text(text)
    assert files.refusal().startswith(f"speed.json{message}")


@pytest.mark.parametrize(
    ("key", "entry"),
    [
        ("LM on one", {"null": 1.0}),
        ("('LM (batch size 5)',)", {"null": 1.0}),
        ("('LM (batch size 5)', 'x')", {"null": 1.0}),
        ("(5, 1)", {"null": 1.0}),
        ("('LM (batch size 5)', 1)", {}),
        ("('LM (batch size 5)', 1)", 1.0),
        ("('LM (batch size 5)', 1)", {"null": "fast"}),
        ("('LM (batch size 5)', 1)", {"null": "1_0"}),
        ("('LM (batch size ٥)', 1)", {"null": 1.0}),
        ("('LM (batch size 5)', 1)", {"null": math.inf}),
        ("('LM (batch size 5)', 1)", {"null": 1e300}),
        ("('LM (batch size 5)', 1)", {"null": 1e-300}),
        ("('LM (batch size 0)', 1)", {"null": 1.0}),
    ],
)
def test_a_malformed_throughput(files: Files, key: str, entry: object) -> None:
    files.write_profile({key: entry})
    assert files.refusal() == (
        f"speed.json, v100, {key}: is not an entry like "
        '"(\'LM (batch size 5)\', 1)": {"null": 10.5}; correct the entry'
    )


@pytest.mark.parametrize(
    ("entry", "rate", "message"),
    [
        ("LM (batch size 5)", 0, ": no throughput for LM with batch size 5 on 1 GPU of type v100"),
        ("LM (batch size 5)", -1.0, ": no throughput for LM with batch size 5 on 1 GPU of type "),
        (
            "LM (batch size 5)",
            1e-6,
            ", total_steps: a run time of 4.774e+10 s is too large",
        ),
        (
            "ResNet-18 (batch size 16)",
            2.0,
            ": unknown model 'LM' in speed.json; choose from ResNet",
        ),
    ],
)
def test_a_job_that_its_table_cannot_run(
    files: Files, entry: str, rate: float, message: str
) -> None:
    files.write_profile({f"('{entry}', 1)": {"null": rate}})
    assert files.refusal().startswith(f"one.trace:1{message}")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("LM,5,1,0:5;9:5", ", schedule: '0:5;9:5' does not grow until the job ends; give larger"),
        ("LM,5,1,0:5;9:4", ", schedule: '0:5;9:4' does not grow until the job ends; give larger"),
        ("LM,5,1,0:5;9:10;20", ", schedule: '0:5;9:10;20' does not grow until the job ends; give"),
        (
            "LM,5,1,0:10;3:20",
            ", schedule: begins with batch size 10, not 5; begin with the initial",
        ),
        ("LM,five,1,0:5", ", initial_batch_size: 'five' is not a whole number; correct the field"),
        ("LM,5", ": 2 fields instead of 4; the header has model, initial_batch_size, scale_factor"),
    ],
)
def test_a_wrong_regime_row(files: Files, row: str, message: str) -> None:
    files.write_regimes(row)
    assert files.refusal().startswith(f"regimes.csv:2{message}")


def test_two_regime_rows_of_one_kind(files: Files) -> None:
    files.write_regimes("LM,5,1,0:5;3:10", "LM,5,1,0:5;4:10")
    said = "regimes.csv:3, model: LM (batch size 5) on 1 GPU is there twice; leave one row out"
    assert files.refusal() == said


def test_a_job_that_needs_more_gpus_than_there_are(files: Files) -> None:
    files.write_profile({"('LM (batch size 5)', 4)": {"null": 10.0}})
    files.write_trace(scale_factor="4")
    workload = replace(files.read(), source="generated.trace")
    workload.check_fits(Inventory(make_pool(4, gpu_type="v100")))
    said = r"one\.trace:1, job 0: needs 4 GPUs, but the cluster has 3; give a larger cluster or"
    with pytest.raises(InputError, match=said):
        workload.check_fits(Inventory(make_pool(3, gpu_type="v100")))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("{", "command: not valid JSON; correct the object"),
        ("{" + '"a":{' * 5_000, "command: not valid JSON; correct the object"),
        ('{"gpus": 3}', "command: unknown 'gpus'; choose from job_id, tenant, samples_per_epoch, "),
        (
            '{"max_seconds": -1}',
            "command, max_seconds: -1 is not a number of 0 or more; correct the ",
        ),
        (
            '{"max_seconds": Infinity}',
            "command, max_seconds: inf is not a number of 0 or more; correct",
        ),
        (
            '{"job_id": -1}',
            "command, job_id: -1 is not a whole number of 0 or more; correct the object",
        ),
        (
            '{"job_id": true}',
            "command, job_id: True is not a whole number of 0 or more; correct the ",
        ),
        ('{"tenant": 3}', "command, tenant: 3 is not printable text; correct the object"),
        ('{"consolidate": 1}', "command, consolidate: 1 is not true or false; correct the object"),
        ('{"samples_per_epoch": 0}', "samples_per_epoch: 0 is not positive; give a positive "),
        ('{"max_batch_size": 4}', "max_batch_size: 4 is below the initial batch size 5; declare"),
    ],
)
def test_a_wrong_declaration(files: Files, command: str, message: str) -> None:
    files.write_trace(command=command)
    assert files.refusal().startswith(f"one.trace:1, {message}")
