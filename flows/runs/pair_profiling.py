"""Throughputs of two jobs measured on the same GPUs, for `shockwave cluster profile --pairs`.

Both jobs train until each has enough epochs while both train. Warm-up epochs, and epochs that
extend beyond that time, do not count.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

from containers.clock import RunClock
from containers.docker.docker_runtime import DockerFactory
from containers.docker.fleet import lock_cluster
from containers.docker.nodes import Nodes
from containers.leasing.telemetry import BACKLOG_BYTES, LINES, read_end
from containers.runtime import EventKind, Lease, ResumePoint, Runtime, Terms
from flows.runs.profiling import (
    LOOK_SECONDS,
    Combination,
    count_steps,
    make_key,
    make_spec,
    new_run,
)

ENDLESS = 10**6
"""Epochs of a measured job, which is stopped before it reaches them. Any unreachable number would
do."""
QUIET_SECONDS = 120.0
"""Time without a step after which a job counts as hung. An engineering bound: on a share of a
processor, jobs start slowly."""

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """Measured throughputs of two jobs on the same GPUs.

    Attributes:
        pair: Both combinations, with the same number of GPUs.
        rates: Steps per second of each while both train.
        problem: Reason if the measurement failed, else empty.
    """

    pair: tuple[Combination, Combination]
    rates: tuple[float, float] = (0.0, 0.0)
    problem: str = ""

    @property
    def rows(self) -> Iterator[dict[str, str | int | float]]:
        """The rows to print, one for each job."""
        for job, other, rate in zip(self.pair, reversed(self.pair), self.rates, strict=True):
            yield {
                "model": job.model,
                "batch_size": job.batch_size,
                "scale_factor": job.scale_factor,
                "beside": f"{other.model} (batch size {other.batch_size})",
                "steps_per_second": round(rate, 4),
                "problem": self.problem,
            }


def list_pairs(combinations: Iterable[Combination]) -> list[tuple[Combination, Combination]]:
    """Return all pairs with the same scale factor, pairs of equal jobs included."""
    every = combinations_with_replacement(combinations, 2)
    return [(a, b) for a, b in every if a.scale_factor == b.scale_factor]


def measure_pairs(
    nodes: Nodes,
    pairs: Sequence[tuple[Combination, Combination]],
    *,
    epochs: int,
    steps: int,
    gpu_type: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Generator[MeasuredPair, None, None]:
    """Measure one pair after the other on idle GPUs; a caller that stops early must close it.

    Args:
        nodes: The machines, otherwise idle.
        pairs: The pairs.
        epochs: Epochs of each job, including the warm-up.
        steps: Training steps of an epoch; the jobs' own, if fewer.
        gpu_type: The GPU type.
        progress: Takes the number of measured pairs, and of all pairs.

    Yields:
        Each measurement at its end, in the order of the pairs.
    """
    inventory, run = nodes.inventory, new_run()
    idle = [gpu for n in inventory.pools_of[gpu_type] for gpu in inventory.gpus_in(n)]
    nodes = replace(nodes, hung_rounds=round(QUIET_SECONDS / LOOK_SECONDS))
    specs = [
        make_spec(2 * number + place, job, ENDLESS, count_steps(job, steps))
        for number, pair in enumerate(pairs)
        for place, job in enumerate(pair)
    ]
    resume_point = ResumePoint(jobs=tuple(specs))
    with lock_cluster(nodes, run):
        runtime = DockerFactory(nodes, RunClock()).open(Terms(run, LOOK_SECONDS), resume_point)
        try:
            for number, pair in enumerate(pairs):
                progress(number, len(pairs))
                jobs = 2 * number, 2 * number + 1
                gpus = tuple(idle[: pair[0].scale_factor])
                folders = [nodes.folder(run, job) for job in jobs]
                runtime.launch(2 * number, [Lease(job, gpus) for job in jobs])
                measured = measure_pair(runtime, pair, folders, epochs, steps)
                runtime.withdraw(jobs[0])
                runtime.withdraw(jobs[1])
                runtime.observe()
                runtime.launch(2 * number + 1, [])  # ends both
                yield measured
        finally:
            for spec in specs:
                runtime.withdraw(spec.job_id)
            runtime.observe()
            runtime.launch(2 * len(pairs), [])
            runtime.close()


def measure_pair(
    runtime: Runtime,
    pair: tuple[Combination, Combination],
    folders: Sequence[Path],
    epochs: int,
    steps: int,
) -> MeasuredPair:
    """Train two jobs until both have enough epochs, a job ends, or the time is up.

    The time suffices for the warm-up and an extra epoch of both jobs at `QUIET_SECONDS` per step.
    Beyond it, reports must be missing or garbled. See `measure_pairs` for `epochs` and `steps`.
    """
    warm = [-(-steps // count_steps(job, steps)) for job in pair]
    least = [max(epochs - 1, 1) * number for number in warm]
    most = max(number * count_steps(job, steps) for number, job in zip(warm, pair, strict=True))
    longest = QUIET_SECONDS * most * (epochs + 1)
    for _ in range(round(longest / LOOK_SECONDS)):
        runtime.advance(None)
        ends = [e for e in runtime.observe().finished if e.kind is not EventKind.WITHDRAWN]
        if ends:
            return MeasuredPair(pair, problem=ends[0].reason or f"{ends[0].kind} before its end")
        lines = [_lines(folder) for folder in folders]
        if rates := measure_rates(lines[0], lines[1], warm, least):
            return MeasuredPair(pair, rates)
    return MeasuredPair(pair, problem=f"too few epochs were reported in {longest:.0f} s")


def measure_rates(
    first: Sequence[Line], second: Sequence[Line], warm: Sequence[int], least: Sequence[int]
) -> tuple[float, float] | None:
    """Return two jobs' steps per second while both train; None if that time is too short.

    For each job, `warm` is the number of warm-up epochs, and `least` that of required epochs.
    """
    both = first, second
    if any(len(lines) < number for lines, number in zip(both, warm, strict=True)):
        return None
    begin = max(lines[number - 1]["at"] for lines, number in zip(both, warm, strict=True))
    end = min(lines[-1]["at"] for lines in both)
    timed = [
        [line for line in lines if line["at"] - line["seconds"] >= begin and line["at"] <= end]
        for lines in both
    ]
    if any(len(lines) < number for lines, number in zip(timed, least, strict=True)):
        return None
    one, other = (
        sum(line["steps"] for line in lines) / sum(line["seconds"] for line in lines)
        for lines in timed
    )
    return one, other


def _lines(folder: Path) -> list[Line]:
    """Read the complete lines of a job's telemetry that have the needed fields."""
    lines: list[Line] = []
    with suppress(OSError):
        for text in read_end(folder / LINES, BACKLOG_BYTES).split(b"\n")[:-1]:
            with suppress(ValueError, TypeError, LookupError, RecursionError):
                line = json.loads(text)
                lines.append({key: float(line[key]) for key in ("at", "steps", "seconds")})
    return [line for line in lines if line["seconds"] > 0.0]


def add_pairs(
    table: dict[str, Any], measured: Iterable[MeasuredPair], gpu_type: str
) -> dict[str, Any]:
    """Add pairs to a throughput table in Gavel's form, in the entries of both jobs.

    The table has each job alone; entries of failed pairs are removed.
    """
    entries = {key: dict(entry) for key, entry in table[gpu_type].items()}
    for pair in measured:
        first, second = map(make_key, pair.pair)
        if pair.problem:
            entries[second].pop(first, None)
            entries[first].pop(second, None)
        else:
            rates = [round(rate, 4) for rate in pair.rates]
            entries[second][first] = rates[::-1]
            entries[first][second] = rates
    return {**table, gpu_type: entries}
