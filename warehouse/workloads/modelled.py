"""Throughput models of other distributions, tabulated for the record of a run."""

import math
from collections.abc import Collection, Iterable
from functools import partial
from numbers import Real
from typing import Any

from predictor.allocation import Allocation
from predictor.errors import InputError
from predictor.job import JobSpec
from predictor.plugins import Plugin
from predictor.throughput import Profile
from warehouse.workloads.fields import LARGEST

Key = tuple[str, int, str, int]
"""Model, batch size, GPU type and GPUs."""


def tabulated(plugin: Plugin, jobs: Iterable[JobSpec], gpu_types: Collection[str] = ()) -> Profile:
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
            raise InputError(
                plugin.place, f"has no GPU type {kind!r}", f"it has {', '.join(known)}"
            )
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
