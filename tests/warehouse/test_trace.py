"""The public traces give their published facts; a wrong file gives one line that says why."""

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from predictor.errors import InputError
from predictor.job import Mode, Regime
from solver.inventory import Inventory
from tasks.record import one_pool
from tasks.sources import Workload
from warehouse.workloads.regimes import read_regimes
from warehouse.workloads.trace import COLUMNS, read_throughputs, read_workload

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


@dataclass
class Files:
    """A trace of one LM job with its two tables, to spoil."""

    folder: Path

    def __post_init__(self) -> None:
        self.trace, self.profile = self.folder / "one.trace", self.folder / "speed.json"
        self.regimes = self.folder / "regimes.csv"
        self.write_trace()
        rates = {5: 10.0, 10: 8.0, 80: 2.0}
        self.write_profile(
            {f"('LM (batch size {size})', 1)": {"null": rate} for size, rate in rates.items()}
        )
        self.write_regimes("LM,5,1,0:5;2:10")

    def write_trace(self, **changed: str) -> None:
        self.trace.write_text(job_line(**changed) + "\n")

    def write_profile(self, table: dict[str, object]) -> None:
        self.profile.write_text(json.dumps({"v100": table}))

    def write_regimes(self, *rows: str) -> None:
        header = "model,initial_batch_size,scale_factor,schedule"
        self.regimes.write_text("\n".join([header, *rows]) + "\n")

    def read(self) -> Workload:
        return read_workload(self.trace, self.profile, self.regimes)

    def refusal(self) -> str:
        """The message, with the temporary folder left out."""
        with pytest.raises(InputError) as caught:
            self.read()
        return str(caught.value).replace(f"{self.folder}/", "")


def job_line(**changed: str) -> str:
    """A GNS job of four epochs of 11,935 steps."""
    fields = dict.fromkeys(COLUMNS, "-") | {
        "job_type": "LM (batch size 5)",
        "total_steps": "47740",
        "scale_factor": "1",
        "mode": "gns",
        "priority_weight": "1",
        "arrival": "0",
    }
    return "\t".join((fields | changed).values())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


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
        ("('LM (batch size 5)', 1)", {"null": math.inf}),
        ("('LM (batch size 5)', 1)", {"null": 1e300}),
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
        "one.trace:1: no throughput for LM with batch size 5 on 1 GPUs of type v100; "
        "add the measurement to the profile or change the job"
    )


def test_a_job_that_would_run_for_centuries(files: Files) -> None:
    files.write_profile({"('LM (batch size 5)', 1)": {"null": 1e-6}})
    refused = files.refusal()
    assert refused.startswith("one.trace:1, total_steps: a run time of ")
    assert refused.endswith(" s is beyond all bounds; mend the field or the job's throughput")


def test_a_model_that_its_table_does_not_know(files: Files) -> None:
    files.write_profile({"('ResNet-18 (batch size 16)', 1)": {"null": 2.0}})
    assert files.refusal() == "one.trace:1: unknown model 'LM'; known are ResNet-18"


def test_a_missing_regime_column(files: Files) -> None:
    files.regimes.write_text("model,initial_batch_size,schedule\nLM,5,0:5\n")
    assert files.refusal() == (
        "regimes.csv:1: missing column 'scale_factor'; "
        "the header has model, initial_batch_size, schedule"
    )


@pytest.mark.parametrize(
    "schedule", ["", "5", "0:5;x:10", "1:5", "0:5;0:10", "0:5;9:10;4:20", "0:5:1", "0:5;9:5"]
)
def test_a_malformed_schedule(files: Files, schedule: str) -> None:
    files.write_regimes(f"LM,5,1,{schedule}")
    assert files.refusal() == (
        f"regimes.csv:2, schedule: {schedule!r} is not like '0:16;31:32'; "
        "give ascending epochs from 0, each with a larger batch size"
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
        "regimes.csv:3, model: LM (batch size 5) on 1 GPUs is there twice; leave one row out"
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


def test_regimes_run_from_their_epoch_to_the_next(files: Files) -> None:
    files.write_regimes("LM,5,1,0:5;3:10;7:20")
    regimes = read_regimes(files.regimes).gns["LM", 5, 1]
    assert regimes == (Regime(5, 3), Regime(10, 4), Regime(20, math.inf))


def test_a_job_that_needs_more_gpus_than_there_are(files: Files) -> None:
    files.write_profile({"('LM (batch size 5)', 4)": {"null": 10.0}})
    files.write_trace(scale_factor="4")
    workload = files.read()
    workload.check_fits(Inventory(one_pool(4, gpu_type="v100")))
    with pytest.raises(InputError) as caught:
        workload.check_fits(Inventory(one_pool(3, gpu_type="v100")))
    assert str(caught.value).replace(f"{files.folder}/", "") == (
        "one.trace:1, job 0: needs 4 GPUs, and the cluster has 3; "
        "give a larger cluster or leave the job out"
    )


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
