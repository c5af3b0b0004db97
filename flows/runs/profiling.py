"""Throughputs measured by training: what `shockwave profile` does.

Each combination of model, batch size and scale factor is a static job of a few epochs, run in
a container on the GPUs that it would get. The first steps warm up; the rate is that of all
others together, with what epochs' ends and checkpoints take.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

from containers.docker.clock import WallClock
from containers.docker.docker_runtime import DockerPlace
from containers.docker.fleet import only_scheduler
from containers.docker.nodes import Node, Nodes
from containers.docker.telemetry import BACKLOG_BYTES, LINES, LONGEST_LINE, PROGRESS, read_part
from containers.runtime import ContainerEvent, EventKind, Lease, Standing, Terms
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobSpec, Mode
from warehouse.store.durable import write_text
from warehouse.workloads.trace import MEASURED, read_jobs, read_throughput_table, read_throughputs

LARGEST = 10**9
"""Of batch sizes and scale factors."""
LOOK_SECONDS = 2.0
"""Between two looks at the jobs that run."""


@dataclass(frozen=True, slots=True)
class Combination:
    """What a job runs with.

    Attributes:
        model: Its model.
        batch_size: Samples per step over all GPUs.
        scale_factor: GPUs.
        epoch_samples: Samples of the longest epoch; 0 if epochs are long.
    """

    model: str
    batch_size: int
    scale_factor: int
    epoch_samples: int = 0

    def __str__(self) -> str:
        return f"{self.model}, batch size {self.batch_size}, {self.scale_factor} GPUs"


@dataclass(frozen=True, slots=True)
class Measured:
    """How fast a combination is.

    Attributes:
        combination: Model, batch size, scale factor.
        steps_per_second: Over all epochs but those that warm up.
        spread: Fastest over slowest epoch, less one.
        restart_seconds: Time from launch to end that was not training.
        problem: Why it could not be measured; else empty.
    """

    combination: Combination
    steps_per_second: float = 0.0
    spread: float = 0.0
    restart_seconds: float = 0.0
    problem: str = ""

    @property
    def row(self) -> dict[str, str | int | float]:
        """As it is printed."""
        return {
            "model": self.combination.model,
            "batch_size": self.combination.batch_size,
            "scale_factor": self.combination.scale_factor,
            "steps_per_second": round(self.steps_per_second, 4),
            "spread": round(self.spread, 3),
            "restart_seconds": round(self.restart_seconds, 2),
            "problem": self.problem,
        }


def combinations_of(specs: Iterable[JobSpec]) -> tuple[Combination, ...]:
    """All that the jobs of a workload can run with."""
    found: dict[tuple[str, int, int], int] = {}
    for spec in specs:
        for size in spec.batch_sizes:
            key = (spec.model, spec.demand.least, size)
            found[key] = max(found.get(key, 0), spec.samples_per_epoch)
    return tuple(
        Combination(model, size, gpus, samples)
        for (model, gpus, size), samples in sorted(found.items())
    )


def asked(
    trace: Path | None, models: str, batch_sizes: str, scale_factors: str
) -> tuple[Combination, ...]:
    """What is to be measured.

    Args:
        trace: A job trace; all that its jobs can run with.
        models: Else, models with commas between.
        batch_sizes: Batch sizes of each.
        scale_factors: Scale factors of each.

    Raises:
        InputError: Neither or both are given, or one is wrong.
    """
    if (trace is None) == (not models):
        raise InputError("trace", "or models, one of them, is needed", "give one")
    if trace is not None:
        return combinations_of(read_jobs(trace))
    sizes, gpus = _counts("batch_sizes", batch_sizes), _counts("scale_factors", scale_factors)
    names = [name.strip() for name in models.split(",")]
    return tuple(Combination(*one) for one in product(names, sizes, gpus))


def _counts(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= LARGEST for part in parts):
        raise InputError(option, f"{text!r} is not like 16,32", "give whole numbers from 1 on")
    return [int(part) for part in parts]


def measure(
    nodes: Nodes,
    combinations: Sequence[Combination],
    *,
    epochs: int,
    steps: int,
    together: bool,
) -> list[Measured]:
    """Run each combination on idle GPUs.

    Args:
        nodes: The machines, which run nothing else.
        combinations: What to measure.
        epochs: Epochs of each, the one that warms up included.
        steps: Training steps of an epoch. Where the jobs' own epochs have fewer, as many as
            they have, in more epochs.
        together: Whether to fill the cluster, or run one at a time.

    Returns:
        The measurements, in the order of the combinations.

    Raises:
        InputError: A combination needs more GPUs than there are.
    """
    for one in combinations:
        if one.scale_factor > nodes.gpus:
            raise InputError(str(one), f"there are {nodes.gpus} GPUs", "measure on more")
    run = f"profile-{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:8]}"
    with only_scheduler(nodes, run):
        found = _run(nodes, run, combinations, epochs, steps, together=together)
    return [found[job_id] for job_id in range(len(combinations))]


def method(epochs: int, steps: int, *, together: bool) -> str:
    """How `measure` does it, in words."""
    how = "as many at once as fit" if together else "one at a time"
    return f"{epochs} epochs of {steps} steps, {how}"


def _run(
    nodes: Nodes,
    run: str,
    combinations: Sequence[Combination],
    epochs: int,
    steps: int,
    *,
    together: bool,
) -> dict[int, Measured]:
    """Run each combination's job to its end; what was measured, by job id."""
    clock = WallClock(time())
    specs = [_spec(job_id, one, epochs, steps) for job_id, one in enumerate(combinations)]
    runtime = DockerPlace(nodes, clock).open(Terms(run, LOOK_SECONDS), Standing(jobs=tuple(specs)))
    waiting, found, number = list(specs), dict[int, Measured](), 0
    began: dict[int, float] = {}
    free = list(range(nodes.gpus))
    try:
        while len(found) < len(specs):
            leases = []
            while waiting and len(free) >= waiting[0].demand.least and (together or not began):
                spec = waiting.pop(0)
                leases.append(Lease(spec.job_id, tuple(free[: spec.demand.least])))
                began[spec.job_id] = clock.now()
                del free[: spec.demand.least]
            runtime.launch(number, leases)
            runtime.advance(None)
            for event in runtime.observe().finished:
                free = sorted([*free, *event.gpus])
                took = event.at_seconds - began.pop(event.job_id)
                folder = nodes.folder(run, event.job_id)
                one = combinations[event.job_id]
                found[event.job_id] = measured_of(one, event, folder, took, steps)
            number += 1
    finally:
        runtime.preempt(dict.fromkeys(began, "measured no longer"))
        runtime.launch(number, [])  # removes those that ended last
        runtime.close()
    return found


def _spec(job_id: int, one: Combination, epochs: int, steps: int) -> JobSpec:
    own = _steps_per_epoch(one, steps)
    return JobSpec(
        job_id=job_id,
        model=one.model,
        batch_size=one.batch_size,
        max_batch_size=one.batch_size,
        demand=Demand.gang(one.scale_factor),
        mode=Mode.STATIC,
        epochs=math.ceil(epochs * steps / own),
        samples_per_epoch=own * one.batch_size,
        arrival_seconds=0.0,
    )


def _steps_per_epoch(one: Combination, steps: int) -> int:
    """As many as are asked for, or as the jobs' own epochs have."""
    return min(math.ceil(one.epoch_samples / one.batch_size) or steps, steps)


def measured_of(
    one: Combination, event: ContainerEvent, folder: Path, took: float, steps: int
) -> Measured:
    """What an ended job tells of its combination.

    Args:
        one: The combination.
        event: How the job ended.
        folder: What it wrote.
        took: Seconds from launch to end.
        steps: Training steps that warm up, and are left out.
    """
    if event.kind is not EventKind.FINISHED:
        return Measured(one, problem=event.reason)
    try:
        lines = read_part(folder / LINES, 0, BACKLOG_BYTES).splitlines()
        warm = math.ceil(steps / _steps_per_epoch(one, steps))
        told = [json.loads(line) for line in lines][warm:]
        rates = sorted(line["steps"] / line["seconds"] for line in told)
        rate = sum(line["steps"] for line in told) / sum(line["seconds"] for line in told)
        trained = json.loads(read_part(folder / PROGRESS, 0, LONGEST_LINE))["run_seconds"]
        restart = max(took - float(trained), 0.0)
        if not (rates and all(0 < rate < math.inf for rate in rates) and math.isfinite(restart)):
            raise ValueError
    except (OSError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        return Measured(one, problem="what it told of its epochs is missing or garbled")
    return Measured(one, rate, rates[-1] / rates[0] - 1, restart)


def table_so_far(out: Path, gpu_type: str) -> dict[str, Any]:
    """The table that is to be added to; empty if there is none yet.

    Args:
        out: Its file.
        gpu_type: What is to be measured.

    Raises:
        InputError: It is no table, or cannot be written.
    """
    probe = out.with_name(f".{out.name}-{uuid4().hex}")
    try:
        before = read_throughput_table(out) if out.exists() else {}
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise _unwritable(out, error) from None
    about = _object(out, before, MEASURED)
    _object(out, _object(out, about, gpu_type), "entries")
    if _object(out, before, gpu_type):
        read_throughputs(out, gpu_type)
    return before


def _object(out: Path, holder: dict[str, Any], key: str) -> dict[str, Any]:
    found = holder.get(key, {})
    if not isinstance(found, dict):
        raise InputError(f"{out}, {key}", "is not a JSON object", "mend it, or give another file")
    return found


def _unwritable(out: Path, error: OSError) -> InputError:
    return InputError(
        str(out), f"cannot be written ({error.strerror})", "give a file in a folder that can be"
    )


def write_table(out: Path, measured: dict[str, Any]) -> None:
    """Write a throughput table, whole or not at all.

    Raises:
        InputError: It cannot be written.
    """
    try:
        write_text(out, json.dumps(measured, indent=1) + "\n")
    except OSError as error:
        raise _unwritable(out, error) from None


def table(
    measured: Iterable[Measured], node: Node, about: dict[str, Any], before: dict[str, Any]
) -> dict[str, Any]:
    """A throughput table, with how and where it was measured beside it.

    Args:
        measured: What was measured.
        node: On which GPUs.
        about: The machine and its versions.
        before: A table to be added to; what is measured anew replaces what it holds.
    """
    gpu_type = node.gpu_type
    found = [one for one in measured if not one.problem]
    rates = {_key(one): {"null": round(one.steps_per_second, 4)} for one in found}
    how = {
        _key(one): {
            "spread": round(one.spread, 3),
            "restart_seconds": round(one.restart_seconds, 2),
        }
        for one in found
    }
    about = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        **about,
        "gpus": [f"{gpu.device or f'{gpu.cpus:g} cpus'}" for gpu in node.gpus],
    }
    kept = before.get(MEASURED, {}).get(gpu_type, {})
    return {
        **before,
        gpu_type: {**before.get(gpu_type, {}), **rates},
        MEASURED: {
            **before.get(MEASURED, {}),
            gpu_type: {**about, "entries": {**kept.get("entries", {}), **how}},
        },
    }


def _key(one: Measured) -> str:
    combination = one.combination
    job_type = f"{combination.model} (batch size {combination.batch_size})"
    return str((job_type, combination.scale_factor))
