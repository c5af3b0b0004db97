"""The job list and cluster spec that Tiresias (NSDI '19) publishes.

Its jobs have durations and GPUs, but no batch sizes. They are read as static jobs whose training
steps take a second. `docs/traces.md` describes both files.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from containers.virtual.truth import GroundTruth
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobSpec, Mode, Regime
from predictor.throughput import Profile
from tasks.sources import Workload, sort_by_arrival
from warehouse.workloads.fields import LARGEST, Row, read_rows
from warehouse.workloads.mix import MOST_SECONDS

JOB_COLUMNS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")
"""Columns read from a job list."""

CLUSTER_COLUMNS = ("num_switch", "num_node_p_switch", "num_gpu_p_node")
"""Columns read from a cluster spec."""

SKEWED = ("vgg", "alexnet")
"""Name prefixes of models with skewed gradients, dominated by a large tensor (section 3.3)."""


class ClusterShape(NamedTuple):
    """Number of nodes of a cluster, and of GPUs per node."""

    nodes: int
    gpus_per_node: int


def read_tiresias(jobs: Path) -> Workload:
    """Read a job list.

    A job's isolated run time is its duration, rounded up to whole seconds.

    Raises:
        InputError: The file cannot be read or a field is wrong; the error names file and line.
    """
    rows = list(read_rows(jobs, JOB_COLUMNS))
    if not rows:
        raise InputError(str(jobs), "holds no jobs", "give a list with at least one line")
    numbered = list(zip(_job_ids(rows), rows, strict=True))
    specs = [_parse_job(row, job_id) for job_id, row in numbered]
    ordered, truths = sort_by_arrival((spec, _truth(spec)) for spec in specs)
    return Workload(
        source=jobs.name,
        specs=ordered,
        truths=truths,
        profile=Profile.of_type({spec.cohort: 1.0 for spec in specs}, source=str(jobs)),
        places={job_id: row.place for job_id, row in numbered},
    )


def read_cluster(path: Path) -> ClusterShape:
    """Read a cluster spec.

    Raises:
        InputError: The file cannot be read, a field is wrong, or the number of lines is not one.
    """
    rows = list(read_rows(path, CLUSTER_COLUMNS))
    if len(rows) != 1:
        raise InputError(str(path), f"holds {len(rows)} clusters", "give one line")
    switches, nodes, gpus = (rows[0].positive(column, int) for column in CLUSTER_COLUMNS)
    return ClusterShape(switches * nodes, gpus)


def _job_ids(rows: Sequence[Row]) -> list[int]:
    """Return the file's ids if they are valid, else the positions of the jobs."""
    texts = [row.values["job_id"].strip() for row in rows]
    if all(text.isdecimal() and text.isascii() and len(text) < len(str(LARGEST)) for text in texts):
        ids = [int(text) for text in texts]
        if len(set(ids)) == len(ids):
            return ids
    return list(range(len(rows)))


def _parse_job(row: Row, job_id: int) -> JobSpec:
    model = row.name("model_name")
    seconds = row.positive("duration", float)
    if seconds > MOST_SECONDS:
        raise row.refusal("duration", f"{seconds:g} s are too large", "correct the field")
    try:
        return JobSpec(
            job_id=job_id,
            model=model,
            batch_size=1,
            max_batch_size=1,
            demand=Demand.gang(row.positive("num_gpu", int)),
            mode=Mode.STATIC,
            epochs=math.ceil(seconds),
            samples_per_epoch=1,
            arrival_seconds=row.number("submit_time", float),
            consolidate=model.lower().startswith(SKEWED),
        )
    except InputError as error:
        column = error.place.split(", ")[-1].replace("arrival", "submit_time")
        raise row.refusal(column, error.problem, error.remedy) from None


def _truth(spec: JobSpec) -> GroundTruth:
    regimes = (Regime(spec.batch_size, spec.epochs),)
    return GroundTruth(
        job_id=spec.job_id, isolated_seconds=float(spec.epochs), profiled=regimes, targets=regimes
    )
