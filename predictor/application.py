"""Measured applications: step times by placement, progress and gradient noise by epoch.

Progress counts steps of the initial batch size that would have done the same good (scale-invariant
iterations). With the gradient noise (sqr, var) of an epoch, a step at s times the initial batch
size is worth gain(s) = (var + sqr) / (var / s + sqr) of them (Qiao et al., Pollux, OSDI '21,
section 3.1).
"""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from predictor.allocation import Allocation

ROUNDING = 1e-8
"""Subtracted before rounding up, so that a quotient's error adds no sample. A numerical bound."""

MOST_NODES = 16
"""Most nodes on which step times are told apart, as in the published simulator."""

Placement = tuple[int, ...]
"""GPUs on each node."""

Scale = TypeVar("Scale", float, NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class StepTime:
    """The measured duration of an optimizer step.

    Attributes:
        placement: Digits, the GPUs on each node; empty if only the counts are known.
        local_batch_size: Samples per GPU and pass.
        step_seconds: Duration of a step of one pass.
        sync_seconds: Its part in which gradients are synchronized, and nothing is computed.
    """

    placement: str
    nodes: int
    gpus: int
    local_batch_size: int
    step_seconds: float
    sync_seconds: float


@dataclass(frozen=True, slots=True)
class EpochNoise:
    """An epoch of a measured training run.

    Attributes:
        epoch: From 0.
        progress: Progress at its end, since the beginning of the run.
        iterations: Steps by then, at its batch size.
        metric: Validation metric at its end.
        sqr: Squared norm of the gradient.
        var: Variance of the gradient.
    """

    batch_size: int
    epoch: int
    progress: float
    iterations: int
    metric: float
    sqr: float
    var: float


class LocalBatch(NamedTuple):
    """The division of a step's samples: per GPU and pass, and passes before the last one."""

    size: int
    accumulated: int


@dataclass(frozen=True)
class Application:
    """A measured application; its jobs train at any batch size on any number of GPUs in a range.

    Attributes:
        gpu_type: GPU type of the measurements.
        batch_size: Initial batch size, the unit of progress.
        least_local: Minimum number of samples per GPU and pass.
        most_local: Maximum number of samples per GPU and pass.
        epochs: Epochs of a job.
        most_gpus: Maximum number of GPUs; 0 if only batch sizes limit them.
        steps: Measured step times.
        training: Measured epochs, ascending by batch size and epoch.
    """

    name: str
    gpu_type: str
    batch_size: int
    max_batch_size: int
    least_local: int
    most_local: int
    epochs: int
    most_gpus: int
    steps: tuple[StepTime, ...]
    training: tuple[EpochNoise, ...]

    @cached_property
    def gpus_per_node(self) -> int:
        """Number of GPUs of a node, as far as measured."""
        return max((int(digit) for step in self.steps for digit in step.placement), default=1)

    @property
    def adapts(self) -> bool:
        """Whether its jobs can choose their batch sizes; those on one GPU keep theirs."""
        return not self.most_gpus

    def at_speed(self, speed: float) -> "Application":
        """Return the application as measured on GPUs that are faster by a factor."""
        steps = (
            replace(
                step, step_seconds=step.step_seconds / speed, sync_seconds=step.sync_seconds / speed
            )
            for step in self.steps
        )
        return replace(self, steps=tuple(steps))

    def limit_gpus(self, batch_size: int) -> int:
        """Return the maximum number of GPUs at a batch size."""
        most = max(batch_size // self.least_local, 1)
        return min(most, self.most_gpus) if self.most_gpus else most

    def split(self, batch_size: int, gpus: int) -> LocalBatch:
        """Divide a batch between GPUs and passes.

        A single GPU makes two passes if the batch is larger than the initial one, since the noise
        is measured between passes.
        """
        each = math.ceil(batch_size / gpus - ROUNDING)
        accumulated = math.ceil(each / self.most_local - ROUNDING) - 1
        if gpus == 1 and batch_size > self.batch_size:
            accumulated = max(accumulated, 1)
        size = math.ceil(each / (accumulated + 1) - ROUNDING)
        most = self.max_batch_size // (gpus * (accumulated + 1))
        return LocalBatch(min(size, most), accumulated)

    def pack(self, allocation: Allocation) -> Placement:
        """Return the placement on an allocation's nodes that fills nodes first."""
        left, placement = allocation.gpus, list[int]()
        for after in reversed(range(self.count_nodes(allocation))):
            placement.append(min(self.gpus_per_node, left - after))
            left -= placement[-1]
        return tuple(placement)

    def count_nodes(self, allocation: Allocation) -> int:
        """Return an allocation's nodes; one with more GPUs than measured counts as several."""
        return max(allocation.nodes, -(-allocation.gpus // self.gpus_per_node))

    def place(self, nodes: Sequence[int]) -> Placement:
        """Return the placement of GPUs, given the node of each; largest shares first.

        Measurements depend on the order of nodes; the published simulator fills nodes in this one.
        A node with more GPUs than measured counts as several.
        """
        most = self.gpus_per_node
        shares = (
            share
            for held in Counter(nodes).values()
            for share in (*[most] * (held // most), held % most)
            if share
        )
        return tuple(sorted(shares, reverse=True))

    def step_seconds(self, placement: Placement, batch_size: int) -> float:
        """Return the seconds of a step at a total batch size; infinite where it was not measured.

        Each accumulated pass adds the part of a step in which gradients are not synchronized.
        """
        key = placement, batch_size
        found = self._step_seconds.get(key)
        if found is None:
            local = self.split(batch_size, sum(placement))
            step, sync = self.measure_step(placement, local.size)
            if local.accumulated:
                step += local.accumulated * (step - sync)
            found = self._step_seconds[key] = step
        return found

    def gain(self, batch_size: int, gpus: int, epoch: int) -> float:
        """Return the progress of a step in an epoch, at the batch size that the GPUs divide."""
        local = self.split(batch_size, gpus)
        whole = local.size * gpus * (local.accumulated + 1)
        return measure_gain(*self.noise(whole, epoch), whole / self.batch_size)

    def noise(self, batch_size: int, epoch: int) -> tuple[float, float]:
        """Return squared norm and variance of the gradient, linear between measured batch sizes.

        Outside of the measured batch sizes the nearest one counts.
        """
        low, high, share = self._around(batch_size)
        below, above = self._epochs[low][epoch], self._epochs[high][epoch]
        return (
            below.sqr + share * (above.sqr - below.sqr),
            below.var + share * (above.var - below.var),
        )

    def iterations(self, batch_size: int, epoch: int) -> float:
        """Return the steps of an epoch in measured runs, linear between their batch sizes."""
        low, high, share = self._around(batch_size)
        below, above = (
            run[epoch].iterations - (run[epoch - 1].iterations if epoch else 0)
            for run in (self._epochs[low], self._epochs[high])
        )
        return below + share * (above - below)

    def _around(self, batch_size: int) -> tuple[int, int, float]:
        """Return the measured batch sizes around one, and its share of the way between them."""
        sizes = self._batch_sizes
        place = bisect_left(sizes, batch_size)
        high = sizes[min(place, len(sizes) - 1)]
        if place in (0, len(sizes)) or high == batch_size:
            return high, high, 0.0
        low = sizes[place - 1]
        return low, high, (batch_size - low) / (high - low)

    def progress_after(self, epochs: int) -> float:
        """Return the progress at which a number of epochs is complete."""
        return self._progress[epochs]

    def steps_in(self, epoch: int, batch_size: int, gpus: int) -> float:
        """Return the steps of an epoch at a batch size, a fractional number."""
        progress = self._progress[epoch + 1] - self._progress[epoch]
        return progress / self.gain(batch_size, gpus, epoch)

    @cached_property
    def _step_seconds(self) -> dict[tuple[Placement, int], float]:
        return {}

    @cached_property
    def _epochs(self) -> dict[int, list[EpochNoise]]:
        found: defaultdict[int, list[EpochNoise]] = defaultdict(list)
        for row in self.training:
            found[row.batch_size].append(row)
        return dict(found)

    @cached_property
    def _batch_sizes(self) -> list[int]:
        return sorted(self._epochs)

    @cached_property
    def _progress(self) -> list[float]:
        runs = self._epochs.values()
        ends = [min(run[epoch].progress for run in runs) for epoch in range(self.epochs)]
        return [0.0, *ends]

    def measure_step(self, placement: Placement, size: int) -> tuple[float, float]:
        """Return seconds of a step of one pass and of its synchronization, by local batch size.

        They are interpolated between measurements of the placement, else of its counts; infinite
        where nothing was measured.
        """
        turns = (placement[turn:] + placement[:turn] for turn in range(len(placement)))
        own = self._by_placement.get("".join(map(str, min(turns))))
        if own is None:
            point = min(len(placement), MOST_NODES), sum(placement), size
            step, sync = self._by_counts(point).reshape(2)
        else:
            sizes, steps, syncs = own
            if not sizes[0] <= size <= sizes[-1]:
                return math.inf, 0.0
            step, sync = np.interp(size, sizes, steps), np.interp(size, sizes, syncs)
        return (float(step), float(sync)) if step == step else (math.inf, 0.0)

    @cached_property
    def _by_placement(self) -> dict[str, tuple[list[int], list[float], list[float]]]:
        rows: defaultdict[str, list[StepTime]] = defaultdict(list)
        for row in self.steps:
            if row.placement:
                rows[row.placement].append(row)
        return {placement: _columns(found) for placement, found in rows.items()}

    @cached_property
    def _by_counts(self) -> Any:
        """Linear interpolation between (nodes, GPUs, local batch size), over mean step times."""
        from scipy.interpolate import LinearNDInterpolator  # imported late: takes half a second

        sums: defaultdict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for row in self.steps:
            if row.placement:
                total = sums[row.nodes, row.gpus, row.local_batch_size]
                for place, value in enumerate((row.step_seconds, row.sync_seconds, 1.0)):
                    total[place] += value
        means = [(key, (a / n, b / n)) for key, (a, b, n) in sorted(sums.items())]
        means += [
            ((row.nodes, row.gpus, row.local_batch_size), (row.step_seconds, row.sync_seconds))
            for row in self.steps
            if not row.placement
        ]
        points, values = zip(*means, strict=True)
        return LinearNDInterpolator(np.array(points, float), np.array(values))


def _columns(rows: Sequence[StepTime]) -> tuple[list[int], list[float], list[float]]:
    ordered = sorted(rows, key=lambda row: row.local_batch_size)
    return (
        [row.local_batch_size for row in ordered],
        [row.step_seconds for row in ordered],
        [row.sync_seconds for row in ordered],
    )


def measure_gain(sqr: float, var: float, scale: Scale) -> Scale:
    """Return the progress of a step at `scale` times the initial batch size, given the noise."""
    return (var + sqr) / (var / scale + sqr)
