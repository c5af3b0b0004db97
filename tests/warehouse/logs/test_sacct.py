"""Slurm's accounting: requeues, reused ids, arrays, resources, JSON, and changes of the clocks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.runs.workload_source import Source
from predictor.errors import InputError
from tests.warehouse.logs.samples import DAY, SACCT, sacct
from warehouse.workloads.kinds import Format
from warehouse.workloads.logs.log import ClusterLog, TableJob
from warehouse.workloads.logs.sacct import HEADER


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sacct.txt"


@pytest.fixture(scope="session")
def slurm(data: Path) -> Path:
    """Folder of recorded output of `sacct`."""
    return data.parent / "sacct"


def read(file: Path, *rows: list[str], **options: Any) -> ClusterLog:
    lines = ["|".join(SACCT), *("|".join(row) for row in rows)]
    file.write_text("\n".join(lines) + "\n")
    return Source(trace=file, format=Format.SACCT, **options).read_log()


def read_one(file: Path, *rows: list[str], **options: Any) -> TableJob:
    (job,) = read(file, *rows, **options).jobs
    return job


def test_the_recorded_samples(slurm: Path) -> None:
    text = Source(trace=slurm / "sacct-sample.txt", format=Format.SACCT).read_log()
    found = {job.key: (job.seconds, job.gpus, job.attempts, job.gpu_type) for job in text.jobs}
    assert found == {
        "950": (4, 2, 1, "a100"),
        "951": (5, 8, 1, "v100"),
        "955": (2, 1, 1, "a100"),
        "956": (68, 1, 1, "a100"),
        "957": (6, 1, 1, "a100"),
        "959": (11, 1, 2, "a100"),
        "961": (3, 2, 2, "a100"),
        "965": (2, 1, 1, "v100"),
        **{f"952_{task}": (1, 1, 1, "a100") for task in range(6)},
    }
    assert text.left_out == {
        "steps of jobs": 26,
        "still running when the log was written": 4,
        "ran for 0 s": 2,
        "never started": 1,
        "without GPUs": 1,
    }
    by_id = {job.key: job for job in text.jobs}
    document = Source(trace=slurm / "sacct-sample.json", format=Format.SACCT).read_log()
    for job in document.jobs:
        who = job.state.split(" ")[0]  # the JSON does not say by whom a job was cancelled
        same = by_id[job.key]
        assert job == replace(same, place=job.place, state=same.state.split(" ")[0])
        assert job.state == who
    assert len(document.jobs) == 7
    with pytest.raises(InputError, match=r"only: the JSON of sacct has no 'stat'; choose from Jo"):
        Source(trace=slurm / "sacct-sample.json", format=Format.SACCT, only="stat=A").read_log()


def test_jobs_of_json_that_are_none(file: Path) -> None:
    file.write_text('{"jobs": [{"job_id": 1}, {"job_id": 2}]}')
    with pytest.raises(InputError, match="is not a job of sacct"):
        Source(trace=file, format=Format.SACCT).read_log()
    with pytest.raises(InputError, match="holds no jobs to read \\(2 unreadable\\)"):
        Source(trace=file, format=Format.SACCT, skip_unusable=True).read_log()


@pytest.mark.parametrize("delimiter", ["\t", ",", ";"])
def test_quotation_marks_that_nobody_closed(file: Path, delimiter: str) -> None:
    rows = [sacct(str(n), "08:00:00", "08:00:00", "08:01:00", 60) for n in range(1, 6)]
    at = SACCT.index("JobName")
    for row, name in zip(rows, ['"a', 'b"', '"', "'c", '"all of it"'], strict=True):
        row[at] = name
    lines = [delimiter.join(SACCT), *map(delimiter.join, rows)]
    file.write_text("\n".join(lines) + "\n")
    log = Source(trace=file, format=Format.SACCT).read_log()
    assert [job.key for job in log.jobs] == ["1", "2", "3", "4", "5"]
    assert [job.name for job in log.jobs][:2] == ['"a', 'b"']


def test_gpus_of_older_versions(file: Path) -> None:
    header = "JobID|Submit|ElapsedRaw|AllocGRES|ReqGRES|NNodes"
    file.write_text(f"{header}\n1|2026-10-05T08:00:00|60||gpu:v100:2|3\n")
    (job,) = Source(trace=file, format=Format.SACCT).read_log().jobs
    assert (job.gpus, job.gpu_type) == (6, "v100")


def test_an_id_that_ended_for_good_comes_again_as_another_job(file: Path) -> None:
    log = read(
        file,
        sacct("5", "10:00:00", "10:00:00", "10:01:00", 60, "COMPLETED"),
        sacct("5", "08:00:00", "08:00:00", "08:00:30", 30, "NODE_FAIL"),
        sacct("5", "08:00:30", "08:01:00", "08:01:10", 10, "CANCELLED by 0"),
    )
    assert [(job.seconds, job.attempts) for job in log.jobs] == [(40, 2), (60, 1)]


def test_a_job_that_slurm_lost(file: Path) -> None:
    log = read(
        file,
        sacct("48", "08:00:00", "08:00:00", "Unknown", 0, "PENDING", JobName="allocation"),
        sacct("49", "08:00:00", "08:00:00", "08:01:00", 60),
    )
    assert log.left_out == {"lost by Slurm (sacctmgr show runawayjobs)": 1}


@pytest.mark.parametrize(
    ("resources", "gpus", "kind"),
    [
        ("cpu=1,gres/gpu:a100=2,gres/gpu=2", 2, "a100"),
        ("cpu=1,gres/gpu=3", 3, ""),
        ("gres/gpu:a100=2,gres/gpu:h100=4", 6, "a100"),
    ],
)
def test_gpus_of_resources(file: Path, resources: str, gpus: int, kind: str) -> None:
    row = sacct("1", "08:00:00", "08:00:00", "08:01:00", 60, AllocTRES=resources)
    job = read_one(file, row)
    assert (job.gpus, job.gpu_type) == (gpus, kind)


def test_gpus_that_are_no_number(file: Path) -> None:
    row = sacct("1", "08:00:00", "08:00:00", "08:01:00", 60, AllocTRES="cpu=4,gres/gpu=two")
    with pytest.raises(
        InputError, match=r"sacct\.txt:2, AllocTRES: 'cpu=4,gres/gpu=two' has no num"
    ):
        read(file, row)


@pytest.mark.parametrize(
    ("limit", "seconds"), [("60", 3600), ("UNLIMITED", 0), ("Partition_Limit", 0), ("", 0)]
)
def test_limits(file: Path, limit: str, seconds: float) -> None:
    row = sacct("1", "08:00:00", "08:00:00", "08:01:00", 60, TimelimitRaw=limit)
    assert read_one(file, row).limit_seconds == seconds


def test_few_columns_and_clocks_for_durations(file: Path) -> None:
    file.write_text(
        "allocgres|nnodes|elapsed|submit|jobid|timelimit|\n"
        "gpu:a100:4|2|1-02:00:03|2026-10-05T08:00:00|7|2-00:00:00|\n"
    )
    (job,) = Source(trace=file, format=Format.SACCT).read_log().jobs
    assert (job.gpus, job.seconds, job.limit_seconds) == (8, 93_603, 172_800)


def test_gpus_must_be_there(file: Path) -> None:
    file.write_text("JobID|Submit|Start|End\n")
    with pytest.raises(InputError, match=r"missing column 'AllocTRES' or 'ReqTRES'"):
        Source(trace=file, format=Format.SACCT).read_log()


def test_json_of_newer_versions(file: Path) -> None:
    number = {"set": True, "infinite": False, "number": 90}
    job = {
        "job_id": 12,
        "name": "x|y",
        "array": {"job_id": 11, "task_id": number | {"number": 3}},
        "association": {"user": "ann"},
        "account": "lab",
        "state": {"current": ["COMPLETED"]},
        "time": {
            "submission": 100,
            "eligible": 100,
            "start": 130,
            "end": 190,
            "elapsed": 60,
            "limit": number | {"infinite": True},
        },
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 4}], "requested": []},
    }
    file.write_text(json.dumps({"meta": {}, "jobs": [job]}))
    (read,) = Source(trace=file, format=Format.SACCT).read_log().jobs
    assert (read.key, read.seconds, read.gpus, read.limit_seconds, read.state) == (
        *("11_3", 60, 4, 0, "COMPLETED"),
    )
    file.write_text(json.dumps({"jobs": [job]})[:-9])
    with pytest.raises(InputError, match=r"sacct\.txt, job 0: is not valid JSON"):
        Source(trace=file, format=Format.SACCT).read_log()


AUTUMN = {
    "Submit": "2026-10-25T01:50:00",
    "Eligible": "2026-10-25T01:50:00",
    "Start": "2026-10-25T02:10:00",
    "End": "2026-10-25T02:05:00",
}


def test_an_hour_that_comes_twice(file: Path) -> None:
    """The clocks go back at 03:00: the job starts in summer time, and ends in winter time."""
    row = sacct("1", "08:00:00", "08:00:00", "09:00:00", 3300, **AUTUMN)
    job = read_one(file, row, zone="Europe/Berlin")
    assert job.start_seconds is not None
    assert job.end_seconds is not None
    assert job.start_seconds - job.arrival_seconds == 1_200
    assert job.end_seconds - job.start_seconds == 3_300


def test_an_hour_that_comes_twice_in_a_requeued_job(file: Path) -> None:
    """It ends after the clocks went back, and its first start to its end is not what it ran."""
    rows = (
        sacct("1", "01:00:00", "01:00:00", "01:10:00", 600, "REQUEUED"),
        sacct("1", "01:10:00", "02:50:00", "02:20:00", 1_800),
    )
    night = [[field.replace(DAY, "2026-10-25T") for field in row] for row in rows]
    job = read_one(file, *night, zone="Europe/Berlin")
    assert job.attempts == 2
    assert job.start_seconds is not None
    assert job.end_seconds is not None
    # From 01:00 in summer to 02:20 in winter time.
    assert job.end_seconds - job.start_seconds == 2 * 3_600 + 20 * 60


def test_an_hour_that_never_comes(file: Path) -> None:
    """Start and end are an hour apart on the clock, and none in time but for the elapsed."""
    columns = [name for name in SACCT if name != "ElapsedRaw"]
    row = dict(zip(SACCT, sacct("1", "08:00:00", "08:00:00", "09:00:00", 0), strict=True))
    row |= {"Submit": "2026-03-29T01:00:00", "Eligible": "", "Start": "2026-03-29T01:30:00"}
    row |= {"End": "2026-03-29T03:30:00"}
    file.write_text("|".join(columns) + "\n" + "|".join(row[name] for name in columns) + "\n")
    source = Source(trace=file, format=Format.SACCT, zone="Europe/Berlin")
    assert source.read_log().jobs[0].seconds == 3_600
    assert Source(trace=file, format=Format.SACCT).read_log().jobs[0].seconds == 7_200


def test_an_unknown_zone(file: Path) -> None:
    with pytest.raises(InputError, match=r"zone: 'Berlin' is not a time zone"):
        read(file, sacct("1", "08:00:00", "08:00:00", "08:01:00", 60), zone="Berlin")


def test_an_export_without_a_header(file: Path) -> None:
    row = dict(zip(SACCT, sacct("1", "08:00:00", "08:00:00", "08:01:00", 60), strict=True))
    file.write_text("\x1f".join(row.get(name, "") for name in HEADER) + "\n")
    (job,) = Source(trace=file, format=Format.SACCT).read_log().jobs
    assert (job.seconds, job.gpus, job.user) == (60, 2, "ann")
    file.write_text("1|2|3\n")
    with pytest.raises(InputError, match="its first line has none of the columns JobID"):
        Source(trace=file, format=Format.SACCT).read_log()


def test_a_header_apart_has_the_delimiter_of_its_log(file: Path) -> None:
    row = "|".join(sacct("1", "08:00:00", "08:00:00", "08:01:00", 60))
    file.write_text(f"{row}\n")
    (header := file.with_name("header.txt")).write_text("|".join(SACCT) + "\n")
    log = Source(trace=file, format=Format.SACCT, header=str(header)).read_log()
    assert [job.key for job in log.jobs] == ["1"]


def test_jobs_run_on_the_gpus_that_they_had(file: Path) -> None:
    read(
        file,
        sacct("1", "08:00:00", "08:00:00", "08:01:00", 60),
        sacct("2", "08:00:00", "08:00:00", "08:01:00", 60, AllocTRES="gres/gpu:v100=1,gres/gpu=1"),
        sacct("3", "08:00:00", "08:00:00", "08:01:00", 60, AllocTRES="gres/gpu=1"),
    )
    workload = Source(trace=file, format=Format.SACCT).open(gpu_types=("A100", "h100"))
    assert [spec.demand.types for spec in workload.specs] == [("A100",), (), ()]
    assert workload.profile.gpu_types == ("A100", "h100")
    assert {spec.demand.types for spec in Source(trace=file, format=Format.SACCT).open().specs} == {
        ()
    }


def test_bytes_that_are_no_text_are_replaced(file: Path) -> None:
    read(file, sacct("1", "08:00:00", "08:00:00", "08:01:00", 60, JobName="naxx"))
    file.write_bytes(file.read_bytes().replace(b"naxx", b"na\xefve\x07"))
    (job,) = Source(trace=file, format=Format.SACCT).read_log().jobs
    assert job.name == "na\ufffdve"


def test_only_is_asked_of_whole_jobs(file: Path) -> None:
    rows = [
        sacct("8", "08:01:00", "08:02:00", "08:03:00", 60, "REQUEUED"),
        sacct("8", "08:03:00", "08:05:00", "08:06:40", 100),
        sacct("9", "08:03:00", "08:05:00", "08:06:40", 100, "FAILED"),
    ]
    log = read(file, *rows, only="State=COMPLETED|TIMEOUT")
    assert [(job.key, job.seconds) for job in log.jobs] == [("8", 160)]
    assert log.left_out == {"not selected": 1}


def test_exports_that_overlap_were_put_together(file: Path) -> None:
    done = sacct("8", "08:01:00", "08:02:00", "08:05:00", 180)
    rows = [sacct("8", "08:01:00", "08:02:00", "Unknown", 60, "RUNNING"), [*SACCT], done, done]
    log = read(file, *rows)
    assert [(job.seconds, job.attempts) for job in log.jobs] == [(180, 1)]
    assert log.left_out == {"an id that was there before": 2}


def test_commas_that_nobody_quoted(file: Path) -> None:
    rows = [
        sacct("1", "08:00:00", "08:00:00", "08:01:00", 60, JobName="a, b"),
        sacct("2", "08:00:00", "None", "08:01:00", 0, "CANCELLED by 3"),
        sacct("3", "08:00:00", "08:00:00", "08:01:00", 60, "FAILED", NodeList="n3"),
    ]
    file.write_text("\n".join(",".join(row) for row in ([*SACCT], *rows)))
    log = Source(trace=file, format=Format.SACCT).read_log()
    assert [(job.gpus, job.name, job.state) for job in log.jobs] == [
        (2, "a, b", "COMPLETED"),
        (2, "train", "FAILED"),
    ]
    assert log.left_out == {"never started": 1}
