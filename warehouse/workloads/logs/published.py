"""Public sets of traces that are a table of jobs: Helios, Acme, ITP and MIT Supercloud."""

import re
from collections.abc import Mapping

from warehouse.workloads.logs.lines import Columns, TabularFormat
from warehouse.workloads.logs.log import TYPES, UNKNOWN, WAITS, JobLine

SLURM_TIMES = {
    "arrival": ("submit_time",),
    "start": ("start_time",),
    "end": ("end_time",),
}


HELIOS = TabularFormat(
    Columns(
        {
            "key": ("job_id",),
            **SLURM_TIMES,
            "duration": ("duration",),
            "gpus": ("gpu_num",),
            "nodes": ("node_num",),
            "user": ("user",),
            "tenant": ("vc",),
            "name": ("jobname", "job_name"),
            "state": ("state",),
        },
        needed=(("arrival",), ("gpus",), ("duration", "end"), ("duration", "start")),
        units={},
        members=("cluster_log",),
    ),
    unknown=(*UNKNOWN, TYPES),
    count_seconds=lambda line: line.seconds("duration"),
)
"""SenseTime's clusters, `cluster_log.csv` (Hu et al., SC '21)."""

ACME = TabularFormat(
    Columns(
        {
            "key": ("job_id",),
            **SLURM_TIMES,
            "gpus": ("gpu_num",),
            "nodes": ("node_num",),
            "user": ("user",),
            "model": ("type",),
            "state": ("state",),
        },
        needed=(("arrival",), ("start",), ("end",), ("gpus",)),
        units={},
        members=("trace_kalos", "trace_seren"),
    ),
    unknown=(*UNKNOWN, TYPES),
)
"""Shanghai AI Laboratory's clusters (Hu et al., NSDI '24). Kalos' `duration` counts from submission
and Seren's from the start, so it is not read."""

ITP = TabularFormat(
    Columns(
        {
            "key": ("job_id",),
            "arrival": ("submission_time",),
            "duration": ("duration",),
            "gpus": ("num_gpu", "num_gpus"),
        },
        needed=(("arrival",), ("duration",), ("gpus",)),
        units={},
    ),
    unknown=(*UNKNOWN, TYPES, WAITS, "users"),
    count_seconds=lambda line: line.seconds("duration"),
)
"""Microsoft's clusters as ElasticFlow publishes them (Gu et al., ASPLOS '23), `clusterNN.csv`."""

SLURM_STATES = {
    0: "PENDING",
    1: "RUNNING",
    2: "SUSPENDED",
    3: "COMPLETED",
    4: "CANCELLED",
    5: "FAILED",
    6: "TIMEOUT",
    7: "NODE_FAIL",
    8: "PREEMPTED",
    9: "BOOT_FAIL",
    10: "DEADLINE",
    11: "OUT_OF_MEMORY",
}
"""States of jobs in Slurm's database."""

GPU_RESOURCES = {"1001": "tesla", "1002": "volta"}
"""Ids of the trackable resources that are GPUs, from the set's `tres-mapping.txt`."""

NO_LIMIT = 2**32 - 1, 525_600
"""Minutes that stand for no limit in Slurm's database, and in this set."""

_RESOURCE = re.compile(r"(?:^|,)\s*(\d+)\s*=\s*(\d+)(?=\s*(?:,|$))")
_GRES = re.compile(r"gpu:(?:(?P<kind>[^:,=]+)[:=])?(?P<number>\d+)")


def _read_resources(line: JobLine) -> dict[str, float]:
    """Return GPUs by type, from what was allocated, requested or used."""
    for role in ("gpus", "requested"):
        found = {
            GPU_RESOURCES[key]: float(number)
            for key, number in _RESOURCE.findall(line.text(role))
            if key in GPU_RESOURCES
        }
        if sum(found.values()) > 0:
            return found
    used = _GRES.search(line.text("used"))
    return {used["kind"] or "": float(used["number"])} if used else {}


def _count_resources(line: JobLine) -> float:
    return sum(_read_resources(line).values())


def _describe_supercloud(line: JobLine) -> Mapping[str, object]:
    state, minutes = line.text("state"), line.number("limit")
    return {
        "gpu_type": next(iter(_read_resources(line)), ""),
        "state": SLURM_STATES.get(int(state), state) if state.isdigit() else state,
        "limit_seconds": 0.0 if minutes in NO_LIMIT else minutes * 60,
    }


SUPERCLOUD = TabularFormat(
    Columns(
        {
            "key": ("id_job",),
            "arrival": ("time_submit",),
            "eligible": ("time_eligible",),
            "start": ("time_start",),
            "end": ("time_end",),
            "gpus": ("tres_alloc",),
            "requested": ("tres_req",),
            "used": ("gres_used",),
            "nodes": ("nodes_alloc",),
            "user": ("id_user",),
            "name": ("job_name",),
            "state": ("state",),
            "limit": ("timelimit",),
        },
        needed=(("arrival",), ("start",), ("end",), ("gpus", "requested", "used")),
        units={},
        unset="0",
        members=("slurm-log", "scheduler", "labelled-slurm-log"),
    ),
    unknown=UNKNOWN,
    count_gpus=_count_resources,
    describe=_describe_supercloud,
)
"""The MIT Supercloud Dataset, `slurm-log.csv` (Samsi et al., HPEC '21)."""
