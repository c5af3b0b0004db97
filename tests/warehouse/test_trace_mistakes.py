"""A wrong trace or table gives an error of a line with place and problem."""

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


TRACE_FIELDS = [
    ({"job_type": "LM"}, "job_type: 'LM' is not like 'LM (batch size 5)'; mend the job type"),
    (
        {"job_type": "VGG (batch size 5)"},
        "job_type: unknown model 'VGG'; "
        "known are LM, Recommendation, ResNet-18, ResNet-50, Transformer",
    ),
    (
        {"job_type": "LM (batch size 0)"},
        "batch_size: 0 is not positive; give a positive number",
    ),
    (
        {"mode": "magic"},
        "mode: 'magic' is not an adaptation mode; known are static, accordion, gns",
    ),
    (
        {"arrival": "-3"},
        "arrival: -3.0 is not a time from 0 on; give seconds since the start of the trace",
    ),
    (
        {"arrival": "nan"},
        "arrival: nan is not a time from 0 on; give seconds since the start of the trace",
    ),
    ({"arrival": "soon"}, "arrival: 'soon' is not a number; mend the field"),
    ({"scale_factor": "0"}, "scale_factor: 0 is not positive; give a positive number"),
    ({"scale_factor": "-2"}, "scale_factor: -2 is not positive; give a positive number"),
    ({"scale_factor": "1.5"}, "scale_factor: '1.5' is not a whole number; mend the field"),
    ({"total_steps": "0"}, "total_steps: 0 is not positive; mend the field"),
    ({"total_steps": ""}, "total_steps: '' is not a whole number; mend the field"),
    ({"priority_weight": "0"}, "priority_weight: 0.0 is not positive; give a positive number"),
    (
        {"total_steps": "1" + 30 * "0"},
        f"total_steps: 1{30 * '0'} is beyond all bounds; mend the field",
    ),
    ({"slo": "soon"}, "slo: 'soon' is not a number; mend the field"),
    ({"slo": "inf"}, "slo: inf is not a finite number; give -1 for none"),
    ({"priority_weight": "high"}, "priority_weight: 'high' is not a number; mend the field"),
]


@pytest.mark.parametrize(("changed", "message"), TRACE_FIELDS)
def test_a_wrong_field_is_named_with_its_line(
    files: Files, changed: dict[str, str], message: str
) -> None:
    files.trace.write_text(job_line() + "\n" + job_line(**changed) + "\n")
    assert files.refusal() == f"one.trace:2, {message}"


def test_a_missing_column(files: Files) -> None:
    files.trace.write_text(job_line().rpartition("\t")[0])
    assert files.refusal() == (
        "one.trace:1: 11 columns instead of 12; the tab-separated columns are job_type, command, "
        "working_directory, steps_argument, needs_data, total_steps, scale_factor, mode, "
        "priority_weight, slo, duration, arrival"
    )


def test_an_empty_trace(files: Files) -> None:
    files.trace.write_text("\n \n")
    assert files.refusal() == "one.trace: holds no jobs; give a trace with at least one line"


@pytest.mark.parametrize("name", ["one.trace", "speed.json", "regimes.csv"])
def test_a_binary_file(files: Files, name: str) -> None:
    (files.folder / name).write_bytes(b"\x80\x02}q\x00.")
    assert files.refusal() == f"{name}: is not UTF-8 text; give a readable file"


@pytest.mark.parametrize("name", ["one.trace", "speed.json", "regimes.csv"])
def test_a_missing_file(files: Files, name: str) -> None:
    (files.folder / name).unlink()
    assert files.refusal() == f"{name}: No such file or directory; give a readable file"


def test_a_folder_in_place_of_a_file(files: Files) -> None:
    files.trace.unlink()
    files.trace.mkdir()
    assert files.refusal() == "one.trace: Is a directory; give a readable file"


def test_broken_json(files: Files) -> None:
    files.profile.write_text('{"v100":\n {')
    assert files.refusal() == (
        "speed.json:2: not valid JSON (Expecting property name enclosed in double quotes); "
        "give a throughput table"
    )


@pytest.mark.parametrize("text", ["{}", '{"k80": {}, "p100": {}}', '{"v100": 3}'])
def test_json_without_the_worker_type(files: Files, text: str) -> None:
    files.profile.write_text(text)
    assert files.refusal() == "speed.json: has no worker type 'v100'; give a throughput table"


def test_json_that_is_no_table(files: Files) -> None:
    files.profile.write_text("[]")
    assert files.refusal() == "speed.json: is not a JSON object; give a throughput table"


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
        '"(\'LM (batch size 5)\', 1)": {"null": 10.5}; mend the entry'
    )


@pytest.mark.parametrize("rate", [0, -1.0])
def test_a_job_that_its_table_cannot_run(files: Files, rate: float) -> None:
    files.write_profile({"('LM (batch size 5)', 1)": {"null": rate}})
    assert files.refusal() == (
        "one.trace:1: no throughput for LM with batch size 5 on 1 GPU of type v100 "
        f"in {files.profile.name}; "
        "add the measurement to the profile or change the job"
    )


def test_a_job_that_would_run_for_centuries(files: Files) -> None:
    files.write_profile({"('LM (batch size 5)', 1)": {"null": 1e-6}})
    refused = files.refusal()
    assert refused.startswith("one.trace:1, total_steps: a run time of ")
    assert refused.endswith(" s is beyond all bounds; mend the field or the job's throughput")


def test_a_model_that_its_table_does_not_know(files: Files) -> None:
    files.write_profile({"('ResNet-18 (batch size 16)', 1)": {"null": 2.0}})
    said = f"one.trace:1: unknown model 'LM' in {files.profile.name}; known are ResNet-18"
    assert files.refusal() == said


def test_a_missing_regime_column(files: Files) -> None:
    files.regimes.write_text("model,initial_batch_size,schedule\nLM,5,0:5\n")
    assert files.refusal() == (
        "regimes.csv:1: missing column 'scale_factor'; "
        "the header has model, initial_batch_size, schedule"
    )


@pytest.mark.parametrize("schedule", ["0:5;9:5", "0:5;9:4", "0:5;9:10;20"])
def test_a_schedule_of_a_kind_that_does_not_grow(files: Files, schedule: str) -> None:
    files.write_regimes(f"LM,5,1,{schedule}")
    assert files.refusal() == (
        f"regimes.csv:2, schedule: {schedule!r} does not grow until the job ends; "
        "give larger and larger batch sizes, and no end"
    )


def test_a_schedule_that_begins_with_another_batch_size(files: Files) -> None:
    files.write_regimes("LM,5,1,0:10;3:20")
    assert files.refusal() == (
        "regimes.csv:2, schedule: begins with batch size 10, not 5; "
        "begin with the initial batch size"
    )


@pytest.mark.parametrize("second", ["LM,5,1,0:5;3:10", "LM,5,1,0:5;4:10"])
def test_two_regime_rows_of_one_kind(files: Files, second: str) -> None:
    files.write_regimes("LM,5,1,0:5;3:10", second)
    assert files.refusal() == (
        "regimes.csv:3, model: LM (batch size 5) on 1 GPU is there twice; leave one row out"
    )


def test_a_regime_row_with_a_wrong_number(files: Files) -> None:
    files.write_regimes("LM,five,1,0:5")
    assert files.refusal() == (
        "regimes.csv:2, initial_batch_size: 'five' is not a whole number; mend the field"
    )


def test_a_short_regime_row(files: Files) -> None:
    files.write_regimes("LM,5")
    assert files.refusal() == (
        "regimes.csv:2: 2 fields instead of 4; "
        "the header has model, initial_batch_size, scale_factor, schedule"
    )


def test_a_job_that_needs_more_gpus_than_there_are(files: Files) -> None:
    files.write_profile({"('LM (batch size 5)', 4)": {"null": 10.0}})
    files.write_trace(scale_factor="4")
    workload = replace(files.read(), source="generated.trace")
    workload.check_fits(Inventory(make_pool(4, gpu_type="v100")))
    with pytest.raises(InputError) as caught:
        workload.check_fits(Inventory(make_pool(3, gpu_type="v100")))
    assert str(caught.value).replace(f"{files.folder}/", "") == (
        "one.trace:1, job 0: needs 4 GPUs, and the cluster has 3; "
        "give a larger cluster or leave the job out"
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("{", "command: not valid JSON; mend the object"),
        ("{" + '"a":{' * 5_000, "command: not valid JSON; mend the object"),
        (
            '{"gpus": 3}',
            "command: unknown 'gpus'; "
            "known are job_id, tenant, samples_per_epoch, max_batch_size, consolidate, max_seconds"
            ", opportunistic",
        ),
        (
            '{"max_seconds": -1}',
            "command, max_seconds: -1 is not a number from 0 on; mend the object",
        ),
        (
            '{"max_seconds": Infinity}',
            "command, max_seconds: inf is not a number from 0 on; mend the object",
        ),
        (
            '{"job_id": -1}',
            "command, job_id: -1 is not a whole number from 0 on; mend the object",
        ),
        (
            '{"job_id": true}',
            "command, job_id: True is not a whole number from 0 on; mend the object",
        ),
        ('{"tenant": 3}', "command, tenant: 3 is not printable text; mend the object"),
        ('{"consolidate": 1}', "command, consolidate: 1 is not true or false; mend the object"),
        (
            '{"samples_per_epoch": 0}',
            "samples_per_epoch: 0 is not positive; give a positive number",
        ),
        (
            '{"max_batch_size": 4}',
            "max_batch_size: 4 is below the initial batch size 5; "
            "declare the largest batch size that adaptation may reach",
        ),
    ],
)
def test_a_wrong_declaration(files: Files, command: str, message: str) -> None:
    files.write_trace(command=command)
    assert files.refusal() == f"one.trace:1, {message}"


def test_two_jobs_of_one_id(files: Files) -> None:
    lines = [job_line(), job_line(command='{"job_id": 0}')]
    files.trace.write_text("\n".join(lines))
    assert files.refusal() == ("one.trace:2: job 0 is there twice; give each job an id of its own")
