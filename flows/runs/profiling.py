"""Profiling: throughputs measured by training, for `shockwave cluster profile`.

Each combination of model, batch size and scale factor is a static job of a few epochs, in a
container with as many GPUs as its scale factor. The first steps are a warm-up. The rate is the mean
over all other steps, including the overhead of epoch ends and checkpoints.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

from containers.clock import RunClock
from containers.docker.nodes import Node
from containers.leasing.telemetry import BACKLOG_BYTES, LINES, LONGEST_LINE, PROGRESS, read_part
from containers.runtime import ContainerEvent, EventKind, Lease, ResumePoint, Terms
from containers.slurm.inventory import SlurmNode
from flows.runs.cluster_file import AnyCluster
from flows.runs.machines import lock_machines, open_machines
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobSpec, Mode
from warehouse.store.durable import write_text
from warehouse.workloads.tables import MEASURED, read_throughput_table, read_throughputs
from warehouse.workloads.trace import read_jobs

LARGEST = 10**9
"""Upper bound on batch sizes and scale factors; larger numbers count as mistakes. An engineering
bound."""
LOOK_SECONDS = 2.0
"""Poll interval of the running jobs. An engineering choice."""


@dataclass(frozen=True, slots=True)
class Combination:
    """A configuration to measure.

    Attributes:
        batch_size: Samples per step over all GPUs.
        scale_factor: Number of GPUs.
        epoch_samples: Samples of the longest epoch; 0 without a limit.
    """

    model: str
    batch_size: int
    scale_factor: int
    epoch_samples: int = 0

    def __str__(self) -> str:
        return f"{self.model}, batch size {self.batch_size}, {self.scale_factor} GPUs"


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured throughput of a combination.

    Attributes:
        steps_per_second: Mean rate over all epochs except the warm-up.
        spread: Rate of the fastest epoch over that of the slowest, minus 1.
        restart_seconds: Time from launch to end that was not training.
        problem: Reason if the measurement failed, else empty.
    """

    combination: Combination
    steps_per_second: float = 0.0
    spread: float = 0.0
    restart_seconds: float = 0.0
    problem: str = ""

    @property
    def row(self) -> dict[str, str | int | float]:
        """The row to print."""
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
    """Return all combinations that jobs of a workload can run with."""
    samples_by_key: dict[tuple[str, int, int], int] = {}
    for spec in specs:
        for size in spec.batch_sizes:
            key = (spec.model, spec.demand.least, size)
            samples_by_key[key] = max(samples_by_key.get(key, 0), spec.samples_per_epoch)
    return tuple(
        Combination(model, size, gpus, samples)
        for (model, gpus, size), samples in sorted(samples_by_key.items())
    )


def parse_combinations(
    trace: Path | None, models: str, batch_sizes: str, scale_factors: str
) -> tuple[Combination, ...]:
    """Parse the combinations to measure.

    Args:
        trace: A job trace, to measure all combinations that its jobs can run with.
        models: Without a trace: comma-separated models.
        batch_sizes: Comma-separated batch sizes of each model.
        scale_factors: Comma-separated scale factors of each batch size.

    Raises:
        InputError: Neither or both of trace and models are given, or a number is invalid.
    """
    if (trace is None) == (not models):
        raise InputError("trace", "is needed, or models, but not both", "give one of the two")
    if trace is not None:
        return combinations_of(read_jobs(trace))
    sizes, gpus = _counts("batch_sizes", batch_sizes), _counts("scale_factors", scale_factors)
    names = [name.strip() for name in models.split(",")]
    return tuple(Combination(*values) for values in product(names, sizes, gpus))


def _counts(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and part.isascii() and 0 < int(part) <= LARGEST for part in parts):
        raise InputError(option, f"{text!r} is not a list such as 16,32", "give positive integers")
    return [int(part) for part in parts]


def measure(
    nodes: AnyCluster,
    combinations: Sequence[Combination],
    *,
    epochs: int,
    steps: int,
    together: bool,
    gpu_type: str = "",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Measured]:
    """Measure each combination on idle GPUs of a type, in the order of the combinations.

    Args:
        nodes: The machines, otherwise idle.
        combinations: The combinations to measure.
        epochs: Epochs of each combination, including the warm-up.
        steps: Training steps of an epoch. Jobs with shorter epochs train more of them.
        together: Whether to measure as many combinations in parallel as fit the cluster.
        gpu_type: The GPU type; by default that of the first node.
        progress: Takes the number of measured combinations, and of all combinations.

    Raises:
        InputError: A combination needs more GPUs than the cluster has.
    """
    kind, inventory = gpu_type or nodes.inventory.types[0], nodes.inventory
    for combination in combinations:
        if combination.scale_factor > inventory.capacities[kind]:
            problem = f"needs more than the cluster's {inventory.capacities[kind]} GPUs"
            raise InputError(str(combination), problem, "measure on a larger cluster")
    idle = [gpu for n in inventory.pools_of[kind] for gpu in inventory.gpus_in(n)]
    run = new_run()
    with lock_machines(nodes, run):
        measured = _run(nodes, run, combinations, epochs, steps, idle, progress, together=together)
    return [measured[job_id] for job_id in range(len(combinations))]


def new_run() -> str:
    """Return a unique id of a run."""
    return f"profile-{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:8]}"


def describe_method(epochs: int, steps: int, *, together: bool) -> str:
    """Describe the method of `measure`."""
    how = "as many at once as fit" if together else "one at a time"
    return f"{epochs} epochs of {steps} steps, {how}"


def _run(
    nodes: AnyCluster,
    run: str,
    combinations: Sequence[Combination],
    epochs: int,
    steps: int,
    idle: Sequence[int],
    progress: Callable[[int, int], None],
    *,
    together: bool,
) -> dict[int, Measured]:
    """Run each combination's job to its end on idle GPUs; return the measurements by job id."""
    clock = RunClock()
    specs = [make_spec(job_id, asked, epochs, steps) for job_id, asked in enumerate(combinations)]
    begin = ResumePoint(jobs=tuple(specs))
    runtime = open_machines(nodes, clock, Terms(run, LOOK_SECONDS), begin)
    waiting, measured, number = list(specs), dict[int, Measured](), 0
    began: dict[int, float] = {}
    free = list(idle)
    try:
        while len(measured) < len(specs):
            progress(len(measured), len(specs))
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
                combination = combinations[event.job_id]
                measured[event.job_id] = make_measured(combination, event, folder, took, steps)
            number += 1
    finally:
        runtime.preempt(dict.fromkeys(began, "profiling was stopped"))
        runtime.launch(number, [])  # removes the last ended containers
        runtime.close()
    return measured


def make_spec(job_id: int, combination: Combination, epochs: int, steps: int) -> JobSpec:
    """Return the job that trains a combination for some epochs of that many steps."""
    own = count_steps(combination, steps)
    return JobSpec(
        job_id=job_id,
        model=combination.model,
        batch_size=combination.batch_size,
        max_batch_size=combination.batch_size,
        demand=Demand.gang(combination.scale_factor),
        mode=Mode.STATIC,
        epochs=math.ceil(epochs * steps / own),
        samples_per_epoch=own * combination.batch_size,
        arrival_seconds=0.0,
    )


def count_steps(combination: Combination, steps: int) -> int:
    """Return the requested steps of an epoch, or those of the jobs' own epochs if fewer."""
    own = math.ceil(combination.epoch_samples / combination.batch_size)
    return min(own or steps, steps)


def make_measured(
    combination: Combination, event: ContainerEvent, folder: Path, took: float, steps: int
) -> Measured:
    """Return the measurement of an ended job, which took so many seconds from launch to end.

    `steps` are the training steps of the warm-up, which do not count.
    """
    if event.kind is not EventKind.FINISHED:
        return Measured(combination, problem=event.reason)
    try:
        lines = read_part(folder / LINES, 0, BACKLOG_BYTES).splitlines()
        warm = math.ceil(steps / count_steps(combination, steps))
        timed = [json.loads(line) for line in lines][warm:]
        rates = sorted(epoch["steps"] / epoch["seconds"] for epoch in timed)
        rate = sum(epoch["steps"] for epoch in timed) / sum(epoch["seconds"] for epoch in timed)
        trained = json.loads(read_part(folder / PROGRESS, 0, LONGEST_LINE))["run_seconds"]
        restart = max(took - float(trained), 0.0)
        if not (rates and all(0 < rate < math.inf for rate in rates) and math.isfinite(restart)):
            raise ValueError
    except (OSError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        return Measured(combination, problem="its report of epochs is missing or garbled")
    return Measured(combination, rate, rates[-1] / rates[0] - 1, restart)


def read_table(out: Path, gpu_types: Iterable[str]) -> dict[str, Any]:
    """Read the existing table in a file; empty if the file does not exist.

    Raises:
        InputError: The file is not a throughput table, or cannot be written.
    """
    probe = out.with_name(f".{out.name}-{uuid4().hex}")
    try:
        before = read_throughput_table(out) if out.exists() else {}
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise _unwritable(out, error) from None
    about = _object(out, before, MEASURED)
    for gpu_type in gpu_types:
        _object(out, _object(out, about, gpu_type), "entries")
        if entries := _object(out, before, gpu_type):
            read_throughputs(out, (gpu_type,))
            for key in entries:
                _object(out, entries, key)
    return before


def _object(out: Path, holder: dict[str, Any], key: str) -> dict[str, Any]:
    value = holder.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{out}, {key}", "is not a JSON object", "correct it or give another file")
    return value


def _unwritable(out: Path, error: OSError) -> InputError:
    return InputError(
        str(out), f"cannot be written ({error.strerror})", "give a file in a writable folder"
    )


def write_table(out: Path, measured: dict[str, Any]) -> None:
    """Write a throughput table atomically.

    Raises:
        InputError: The file cannot be written.
    """
    try:
        write_text(out, json.dumps(measured, indent=1) + "\n")
    except OSError as error:
        raise _unwritable(out, error) from None


def make_table(
    measured: Iterable[Measured],
    node: Node | SlurmNode,
    about: dict[str, Any],
    before: dict[str, Any],
) -> dict[str, Any]:
    """Make a throughput table with metadata on how and where it was measured.

    Args:
        measured: The measurements; failed ones are left out.
        node: The node, which names the GPUs.
        about: Metadata of the machine and its software versions.
        before: The existing table, whose entries new measurements replace. Pairs of remeasured
            combinations, and all pairs of a type not measured before, are dropped, since their
            conditions differ.
    """
    gpu_type = node.gpu_type
    complete = [entry for entry in measured if not entry.problem]
    keys = [make_key(entry.combination) for entry in complete]
    own = gpu_type in before.get(MEASURED, {})
    there = {
        key: {
            other: rate
            for other, rate in entry.items()
            if other == "null" or (own and key not in keys and other not in keys)
        }
        for key, entry in before.get(gpu_type, {}).items()
    }
    rates = {
        key: {"null": round(entry.steps_per_second, 4)}
        for key, entry in zip(keys, complete, strict=True)
    }
    how = {
        key: {
            "spread": round(entry.spread, 3),
            "restart_seconds": round(entry.restart_seconds, 2),
        }
        for key, entry in zip(keys, complete, strict=True)
    }
    if isinstance(node, SlurmNode):
        gpus = [gpu_type] * node.gpus
    else:
        gpus = [gpu.device or f"{gpu.cpus:g} cpus" for gpu in node.gpus]
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d}", **about, "gpus": gpus}
    kept = before.get(MEASURED, {}).get(gpu_type, {})
    return {
        **before,
        gpu_type: {**there, **rates},
        MEASURED: {
            **before.get(MEASURED, {}),
            gpu_type: {**about, "entries": {**kept.get("entries", {}), **how}},
        },
    }


def make_key(combination: Combination) -> str:
    """Return the key of a combination in throughput tables."""
    job_type = f"{combination.model} (batch size {combination.batch_size})"
    return str((job_type, combination.scale_factor))
