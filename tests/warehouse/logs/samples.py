"""Lines of each format of logs in its published layout, made up, and the jobs that they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warehouse.workloads.kinds import Format

SACCT = (
    *("JobID", "JobIDRaw", "JobName", "User", "Account", "Partition", "State", "ExitCode"),
    *("Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw", "ReqTRES", "AllocTRES"),
    *("NNodes", "NodeList"),
)
DAY = "2026-10-05T"
TRES = "billing=2,cpu=2,gres/gpu:a100={0},gres/gpu={0},mem=200M,node=1"


def sacct(
    job: str, submit: str, start: str, end: str, elapsed: int, state: str = "COMPLETED", **more: str
) -> list[str]:
    """A row of `sacct`; times are of one day."""
    times = [f"{DAY}{time}" if time[:1].isdigit() else time for time in (submit, start, end)]
    fields = dict.fromkeys(SACCT, "") | {
        "JobID": job,
        "JobIDRaw": job,
        "JobName": "train",
        "User": "ann",
        "Account": "lab",
        "State": state,
        "Submit": times[0],
        "Eligible": times[0],
        "Start": times[1],
        "End": times[2],
        "ElapsedRaw": str(elapsed),
        "TimelimitRaw": "60",
        "ReqTRES": TRES.format(2),
        "AllocTRES": TRES.format(2) if times[1][:1].isdigit() else "",
    }
    return [*(fields | more).values()]


@dataclass(frozen=True)
class Sample:
    """A file of a format.

    Attributes:
        jobs: Arrival since the first job, run time, GPUs, tenant and state of each job.
        left_out: Lines that are not jobs, by reason.
        only: A selection, and the number of jobs that it leaves.
    """

    format: Format
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    jobs: Sequence[tuple[float, float, float, str, str]]
    left_out: Mapping[str, int]
    only: tuple[str, int]


SAMPLES = (
    Sample(
        Format.SACCT,
        SACCT,
        [
            sacct("7", "08:00:00", "08:00:10", "09:00:10", 3600),
            sacct("7.batch", "08:00:10", "08:00:10", "09:00:10", 3600, JobName="batch", User=""),
            sacct("8", "08:01:00", "08:02:00", "08:03:00", 60, "REQUEUED", JobName="ü 图 |\"'"),
            sacct("8", "08:03:00", "08:05:00", "08:06:40", 100, JobName="ü 图 |\"'"),
            sacct("9", "08:02:00", "None", "08:04:00", 0, "CANCELLED by 995"),
            sacct("10", "08:02:00", "Unknown", "Unknown", 0, "PENDING"),
            sacct("11", "08:02:00", "08:03:00", "Unknown", 60, "RUNNING"),
            sacct("12", "08:02:00", "08:03:00", "08:03:30", 30, AllocTRES="cpu=8", ReqTRES="cpu=8"),
            sacct("13", "08:10:00", "08:11:00", "08:12:08", 68, "TIMEOUT", Account="prod"),
        ],
        [
            (0, 3600, 2, "lab", "COMPLETED"),
            (60, 160, 2, "lab", "COMPLETED"),
            (600, 68, 2, "prod", "TIMEOUT"),
        ],
        {
            "steps of jobs": 1,
            "never started": 2,
            "still running when the log was written": 1,
            "without GPUs": 1,
        },
        ("state=COMPL*|REQUEUED,Account=lab", 2),
    ),
    Sample(
        Format.HELIOS,
        (
            *("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time"),
            *("start_time", "end_time", "duration", "queue"),
        ),
        [
            "1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,"
            "2020-06-10 04:55:09,36848,0",
            "1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:37,"
            "2020-06-09 18:45:46,249,10",
            "1425513,uzqls,vcpDC,0,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,"
            "2020-06-17 14:15:21,675233,0",
            "1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:37,"
            "2020-06-09 18:45:46,249,10",
        ],
        [(0, 36848, 1, "vcJkd", "COMPLETED"), (26, 249, 4, "vchbv", "FAILED")],
        {"without GPUs": 1, "an id that was there before": 1},
        ("vc=vcJ*", 1),
    ),
    Sample(
        Format.ACME,
        (
            *("job_id", "user", "node_num", "gpu_num", "cpu_num", "mem_per_pod_GB"),
            *("shared_mem_per_pod", "type", "state", "submit_time", "start_time", "end_time"),
            *("fail_time", "stop_time", "duration", "queue", "gpu_time"),
        ),
        [
            "dlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,"
            "2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,"
            "10.0,1152.0",
            "dlc1t2ypl09b8qtp,uf794,8,64,960,1000,100.0,Pretrain,CANCELLED,"
            "2023-05-17 19:28:42+08:00,2023-05-17 19:28:54+08:00,2023-05-17 19:30:04+08:00,,"
            "2023-05-17 11:30:04+00:00,82,12.0,5248.0",
            "dlcnever,u1,1,8,96,100,10.0,Other,CANCELLED,2023-05-17 11:28:42+00:00,,"
            "2023-05-17 11:30:04+00:00,,2023-05-17 11:30:04+00:00,82,82.0,0.0",
        ],
        [(0, 8, 64, "uf794", "FAILED"), (1664, 70, 64, "uf794", "CANCELLED")],
        {"never started": 1},
        ("type=Pretrain", 1),
    ),
    Sample(
        Format.ITP,
        ("job_id", "submission_time", "duration", "num_gpu"),
        ["965d744f-0445,1932025,2429,64", "fb10987f-20ac,2000581,1532,1", "x,2000600,0,1"],
        [(0, 2429, 64, "default", ""), (68556, 1532, 1, "default", "")],
        {"ran for 0 s": 1},
        ("num_gpu=1", 1),
    ),
    Sample(
        Format.SUPERCLOUD,
        (
            *("id_job", "id_array_job", "id_array_task", "id_user", "kill_requid", "nodes_alloc"),
            *("nodelist", "cpus_req", "derived_ec", "exit_code", "gres_used", "array_max_tasks"),
            *("array_task_pending", "constraints", "flags", "mem_req", "partition", "priority"),
            *("state", "timelimit", "time_submit", "time_eligible", "time_start", "time_end"),
            *("time_suspended", "track_steps", "tres_alloc", "tres_req", "job_type"),
        ),
        [
            "10028747453883,0,4294967294,54321,-1,1,\"['r9189566-n911952']\",40,0,0,gpu:volta:2,0,0,"
            "[],0,9000,normal,1000,3,4294967295,1612000000,1612000000,1612000100,1612003700,0,0,"
            '"1=40,2=340000,4=1,5=40,1002=2","1=40,2=340000,4=1,5=40,1002=2",OTHER',
            "10028747453884,0,4294967294,54322,-1,1,\"['r9189567-n911952']\",40,0,0,,0,0,"
            "[],0,9000,normal,1000,4,60,1612000050,1612000050,0,1612000060,0,0,"
            ',"1=40,2=340000,4=1,5=40,1001=1",OTHER',
            "10028747453885,0,4294967294,54322,-1,1,\"['r9189568-n911952']\",40,0,0,,0,0,"
            "[],0,9000,normal,1000,6,60,1612000050,1612000050,1612000060,1612003660,0,0,"
            '"1=40,2=340000,4=1,5=40,1001=1","1=40,2=340000,4=1,5=40,1001=1",OTHER',
            "10028747453886,0,4294967294,54322,-1,1,\"['r9189569-n911952']\",40,0,0,,0,0,"
            "[],0,9000,normal,1000,3,60,1612000050,1612000050,1612000060,1612003660,0,0,"
            '"1=40,2=340000,4=1,5=40","1=40,2=340000,4=1,5=40",OTHER',
        ],
        [(0, 3600, 2, "54321", "COMPLETED"), (50, 3600, 1, "54322", "TIMEOUT")],
        {"never started": 1, "without GPUs": 1},
        ("id_user=54321", 1),
    ),
    Sample(
        Format.PAI,
        (
            *("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu"),
            *("plan_mem", "plan_gpu", "gpu_type"),
        ),
        [
            "c26e7a4287f5,tensorflow,2.0,Terminated,1739192.0,1739792.0,600.0,29.296875,800.0,P100",
            "03a63966213b,ps,1.0,Failed,1740049.0,1740087.0,600.0,29.296875,,",
            "03a63966213b,worker,2.0,Failed,1740049.0,1740087.0,400.0,29.296875,50.0,MISC",
            "03a63966213b,evaluator,1.0,Failed,1740050.0,1740090.0,400.0,29.296875,25.0,T4",
            "72723b9cef44,tensorflow,2.0,Running,1739603.0,,600.0,29.296875,200.0,T4",
            "fe977c5604a6,tensorflow,1.0,Terminated,1739335.0,1742935.0,600.0,29.296875,,",
        ],
        [(0, 600, 16, "default", "Terminated"), (857, 41, 1.25, "default", "Failed")],
        {"still running when the log was written": 1, "without GPUs": 1},
        ("status=Terminated", 1),
    ),
    Sample(
        Format.PHILLY,
        ("timestamp", "duration", "num_gpus", "gpu_time", "cluster"),
        [
            "2017-10-07 01:11:39,193256.0,8,1546048.0,ee9e8c",
            "2017-10-07 01:11:49,60.5,1,60.5,0e4a51",
            "2017-10-07 01:12:49,60.0,0,0,0e4a51",
        ],
        [(0, 193256, 8, "ee9e8c", ""), (10, 60.5, 1, "0e4a51", "")],
        {"without GPUs": 1},
        ("cluster=ee*|0e*", 2),
    ),
)
"""A sample of each format that is a table."""
