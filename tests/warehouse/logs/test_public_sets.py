"""Philly's JSON and PAI's tables: attempts, missing times, gangs of tasks, shares of GPUs."""

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from flows.runs.start import fit_to_cluster
from flows.runs.workload_source import Source
from predictor.errors import InputError
from tasks.record import Settings, make_pool
from warehouse.workloads.kinds import Format
from warehouse.workloads.logs.log import ClusterLog
from warehouse.workloads.trace_writer import write_workload


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    nodes = [{"ip": f"m{n}", "gpus": [f"gpu{g}" for g in range(k)]} for n, k in enumerate(gpus)]
    times = [f"2017-10-07 {time}" if time else None for time in (start, end)]
    return {"start_time": times[0], "end_time": times[1], "detail": nodes}


def job(number: int, *attempts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": f"application_{number}",
        "attempts": list(attempts),
        "submitted_time": "2017-10-07 01:00:00",
        "user": "ce2f4c",
    } | more


PHILLY = [
    job(1, attempt("01:12:00", "01:13:00", 8), attempt("01:14:00", "02:14:00", 8, 8)),
    job(2, attempt(None, None, 1), attempt("03:00:00", "03:00:30", 1), status="Killed", vc="b"),
    job(3, attempt("01:12:00", None, 8)),
    job(4),
    job(5, attempt(None, None, 1)),
    job(6, attempt("00:12:00", "00:13:00", 1)),
    job(1, attempt("01:12:00", "01:13:00", 8)),
]


def read(path: Path, format_: Format, **options: Any) -> ClusterLog:
    return Source(trace=path, format=format_, **options).read_log()


@pytest.mark.parametrize("format_", [Format.PHILLY_JSON, Format.PHILLY])
def test_jobs_with_attempts(tmp_path: Path, format_: Format) -> None:
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(PHILLY, indent=1))
    log = read(path, format_)
    assert [(j.seconds, j.gpus, j.attempts, j.tenant, j.user, j.state) for j in log.jobs] == [
        (3_660, 16, 2, "ee9e8c", "ce2f4c", "Pass"),
        (30, 1, 2, "b", "ce2f4c", "Killed"),
    ]
    assert log.left_out == {
        "still running when the log was written": 1,
        "never started": 1,
        "attempts without times": 1,
        "started before its submission": 1,
        "an id that was there before": 1,
    }
    assert len(read(path, format_, only="status=Killed|Failed").jobs) == 1


def test_the_archive_as_published(tmp_path: Path) -> None:
    content, archive = json.dumps(PHILLY).encode(), io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("trace-data/cluster_gpu_util", "trace-data/cluster_job_log"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    path = tmp_path / "trace-data.tar.gz"
    path.write_bytes(gzip.compress(archive.getvalue()))
    assert len(read(path, Format.PHILLY_JSON).jobs) == 2
    with pytest.raises(InputError, match="is an archive of 2 files: cluster_gpu_util, cluster_job"):
        read(path, Format.ITP)


TASKS = """\
a,ps,1.0,Terminated,100.0,700.0,600.0,29.3,,
a,worker,3.0,Terminated,110.0,710.0,600.0,29.3,25.0,T4
b,tensorflow,1.0,Failed,150.0,160.0,600.0,29.3,100.0,V100
"""
JOBS = "b,i2,u2,Failed,90.0,165.0\na,i1,u1,Terminated,40.0,720.0\nc,i3,u3,Waiting,41.0,\n"


def test_arrivals_and_users_come_from_the_table_of_jobs(tmp_path: Path) -> None:
    tasks = tmp_path / "pai_task_table.csv"
    tasks.write_text(TASKS)
    alone = read(tasks, Format.PAI)
    assert [(j.arrival_seconds, j.seconds, j.gpus, j.gpu_type) for j in alone.jobs] == [
        (100, 600, 0.75, "T4"),
        (150, 10, 1, "V100"),
    ]
    jobs = tmp_path / "pai_job_table.csv.gz"
    jobs.write_bytes(gzip.compress(JOBS.encode()))
    for place in (tasks, tmp_path, jobs):
        found = read(place, Format.PAI).jobs
        assert [(j.arrival_seconds, j.user, j.tenant, j.key) for j in found] == [
            (40, "u1", "u1", "a"),
            (90, "u2", "u2", "b"),
        ]
    for only, keys in (
        ("user=u2", ["b"]),
        ("User=u2", ["b"]),
        ("gpu_type=T*", ["a"]),
        ("status=Term*|Failed", ["a", "b"]),
    ):
        assert [j.key for j in read(tasks, Format.PAI, only=only).jobs] == keys
    (unknown,) = (line for line in JOBS.splitlines() if line.startswith("b,"))
    jobs.write_bytes(gzip.compress(JOBS.replace(f"{unknown}\n", "").encode()))
    assert [j.key for j in read(tasks, Format.PAI, only="user=u*").jobs] == ["a"]
    header = tmp_path / "pai_task_table.header"
    header.write_text(
        "task_name,job_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
    )
    assert [j.key for j in read(tasks, Format.PAI).jobs] == ["worker", "tensorflow"]


def test_shares_of_gpus_are_slots(tmp_path: Path) -> None:
    tasks = tmp_path / "pai_task_table.csv"
    tasks.write_text(TASKS)
    source = Source(trace=tasks, format=Format.PAI)
    workload = source.open()
    assert (workload.slots, workload.source) == (4, "pai_task_table.csv, 1/4 GPU a slot")
    assert [spec.demand.least for spec in workload.specs] == [3, 4]
    settings, _ = fit_to_cluster(workload, Settings("fifo", make_pool(2)))
    (pool,) = settings.pools
    assert (pool.gpus, pool.gpus_per_node) == (8, 4)
    with pytest.raises(InputError, match="shares of GPUs, for which the format has no place"):
        write_workload(workload, tmp_path / "out")
    whole = Source(trace=tasks, format=Format.PAI, slots=1).open()
    assert [spec.demand.least for spec in whole.specs] == [1, 1]
