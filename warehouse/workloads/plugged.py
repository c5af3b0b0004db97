"""What other distributions provide: readers of traces, and models of throughput."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

from predictor.allocation import Allocation
from predictor.errors import InputError
from predictor.image import LONGEST_LABEL
from predictor.job import JobSpec
from predictor.plugins import Plugin
from predictor.throughput import Profile
from tasks.sources import Workload
from warehouse.workloads.fields import LARGEST
from warehouse.workloads.logs.log import TableJob
from warehouse.workloads.mix import MOST_SECONDS


def read_plugged(
    plugin: Plugin, trace: Path, make: Callable[[str, Sequence[TableJob]], Workload]
) -> Workload:
    """Read a trace with the reader of another distribution.

    The reader is a function of the trace's path. It returns a whole workload, or bare jobs, of
    which `make` makes one.

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
    return make(trace.name, found)


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
    elif not isinstance(job.gpus, Real) or not 0 < job.gpus <= LARGEST:
        yield f"has {job.gpus!r} GPUs, no positive number"
    elif not all(_is_name(name) for name in (job.tenant, job.model or "-")):
        yield "has a tenant or a model that is not text or cannot be printed"
    elif not _is_name(job.name) or len(job.name) > LONGEST_LABEL:
        yield f"has the name {job.name!r}, no printable text of at most {LONGEST_LABEL} characters"


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isprintable()


Key = tuple[str, int, str, int]
"""Model, batch size, GPU type and GPUs."""


def tabulate(plugin: Plugin, jobs: Iterable[JobSpec], gpu_types: Collection[str] = ()) -> Profile:
    """Tabulate a model's rates of jobs, at each of their batch sizes and on each allocation.

    Args:
        plugin: The model: a class without arguments, with `gpu_types` and the method `rate` of
            `predictor.throughput.Throughput`, which returns 0 if a job cannot run.
        jobs: The jobs.
        gpu_types: GPU types of the table; by default the model's first.

    Raises:
        PluginError: The plugin failed or is no such model, or jobs of the same model have different
            rates.
        InputError: The model lacks a GPU type.
    """
    model = plugin.call("be made", plugin.load())
    known = getattr(model, "gpu_types", None)
    if (
        not isinstance(known, tuple)
        or not known
        or not all(isinstance(name, str) for name in known)
    ):
        raise plugin.refused("has no gpu_types, a tuple of names")
    if not callable(getattr(model, "rate", None)):
        raise plugin.refused("has no method rate")
    for kind in gpu_types:
        if kind not in known:
            remedy = f"it has {', '.join(known)}"
            raise InputError(plugin.place, f"has no GPU type {kind!r}", remedy)
    rates: dict[Key, float] = {}
    for job in jobs:
        for kind in filter(job.demand.allows, gpu_types or known[:1]):
            for gpus in range(job.demand.least, job.demand.most + 1):
                for size in job.batch_sizes:
                    _enter(rates, plugin, model, job, size, Allocation(kind, gpus))
    return Profile(rates, source=plugin.place)


def _enter(
    rates: dict[Key, float],
    plugin: Plugin,
    model: Any,
    job: JobSpec,
    batch_size: int,
    allocation: Allocation,
) -> None:
    where = f"{job.model} with batch size {batch_size} on {allocation.gpus} {allocation.gpu_type}"
    rate = plugin.call(
        f"tell the rate of {where}", partial(model.rate, job, batch_size, allocation)
    )
    if not isinstance(rate, Real) or not 0 <= float(rate) <= LARGEST or math.isnan(float(rate)):
        raise plugin.refused(f"gives {where} a rate of {rate!r} steps per second")
    key = job.model, batch_size, allocation.gpu_type, allocation.gpus
    if rates.setdefault(key, float(rate)) != float(rate):
        raise plugin.refused(f"gives {where} two rates; a rate may depend on these only")
