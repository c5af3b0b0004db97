"""Traces in formats that other distributions read."""

from collections.abc import Iterator, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from predictor.image import NAME
from predictor.job import Mode
from predictor.plugins import Plugin
from tasks.sources import Workload
from warehouse.workloads.fields import LARGEST
from warehouse.workloads.job_table import TableJob, drawn
from warehouse.workloads.mix import MOST_SECONDS


def read_plugged(
    plugin: Plugin, trace: Path, *, rng: np.random.Generator, modes: Mapping[Mode, float]
) -> Workload:
    """Read a trace with the reader of another distribution.

    The reader is a function of the trace's path. It returns a whole workload, or bare jobs, whose
    models and regimes are then drawn.

    Raises:
        PluginError: The reader failed, or returned something else.
        InputError: The reader refused the trace.
    """
    read = plugin.load()
    found = plugin.call(f"read {trace}", lambda: _whole(read(trace)))
    if isinstance(found, Workload):
        if not found.specs or len(found.specs) != len(found.truths):
            raise plugin.refused(
                f"read {trace} as a workload without jobs, or without their truths"
            )
        return found
    for number, job in enumerate(found):
        for problem in _unusable(job):
            raise plugin.refused(f"read {trace}, of which job {number} {problem}")
    if not found:
        raise plugin.refused(f"found no jobs in {trace}")
    return drawn(trace.name, found, rng, modes)


def _whole(found: Any) -> Workload | list[Any]:
    """Return a reader's result, with iterators read to the end."""
    return found if isinstance(found, Workload) else list(found)


def _unusable(job: Any) -> Iterator[str]:
    """Yield what keeps an object from being a job."""
    if not isinstance(job, TableJob):
        yield f"is a {type(job).__name__}, no TableJob"
    elif not isinstance(job.arrival_seconds, Real) or not abs(job.arrival_seconds) <= LARGEST:
        yield f"arrives at {job.arrival_seconds!r} s"
    elif not isinstance(job.seconds, Real) or not 0 < job.seconds <= MOST_SECONDS:
        yield f"runs for {job.seconds!r} s"
    elif type(job.gpus) is not int or not 0 < job.gpus <= LARGEST:
        yield f"has {job.gpus!r} GPUs, no positive integer"
    elif not all(_is_name(name) for name in (job.tenant, job.model or "-")):
        yield "has a tenant or a model that is no text or cannot be printed"
    elif not isinstance(job.name, str) or (job.name and not NAME.fullmatch(job.name)):
        yield f"has the name {job.name!r}, not of letters, digits, '.', '_' and '-', at most 100"


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isprintable()
