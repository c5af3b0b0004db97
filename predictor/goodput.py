"""Goodput: models of step times, fitted to what jobs measured, and the best batch sizes.

Qiao et al., Pollux (OSDI '21), section 3: goodput is progress per second, the gain of a step over
its duration. The duration of a step is modelled by the time of a pass and of synchronization, which
overlap in part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictor.application import (
    ROUNDING,
    Application,
    LocalBatch,
    Placement,
    StepTime,
    measure_gain,
)
from predictor.job import JobSpec, Mode

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST = 1e-8
"""Least value of a time in a model, in seconds, as published: logarithms need one."""

MOST_OVERLAP = 10.0
"""Largest γ, as published: at γ = 10 pass and synchronization overlap nearly fully."""

START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
"""Parameters from which a fit begins, as published."""

OVERLAP_PENALTY, SLOPE_PENALTY = 1e-3, 1e-2
"""Weights of (γ - 1)² and of squared ratios of slope and constant in a fit, as published."""

ROUNDED = 1e-3
"""Error by which the kink of a root mean square at 0 is rounded off. A numerical bound: at the kink
L-BFGS-B stops short of the optimum (`tests/predictor/test_goodput.py` recovers known models)."""

ACROSS_OVER_WITHIN = 1.1
"""Least ratio of synchronization across nodes and within one, until a job has run on several."""

CANDIDATES = 50
"""Batch sizes that are compared, as published."""

LISTS = 64
"""Lists of candidates that are kept. An engineering choice: a list takes 1.6 kB for each
configuration, 0.6 MB for 360 on 2,048 GPUs, and in `shockwave` jobs of an application share one."""


class StepModel(NamedTuple):
    """A model of step times, in seconds.

    A pass takes `fixed` + `per_sample` · samples per GPU. Synchronization of k > 1 GPUs takes a
    constant plus a slope for each GPU above two, both on one node (`within`) and on several
    (`across`). A step of one pass takes (pass^γ + synchronization^γ)^(1/γ), with γ = `overlap`:
    their sum at 1, and nearly their maximum at 10.
    """

    fixed: float
    per_sample: float
    across: float
    across_slope: float
    within: float
    within_slope: float
    overlap: float

    def pass_seconds(self, local_batch_size: Floats) -> Floats:
        """Return the seconds of a forward and backward pass."""
        return np.asarray(self.fixed + self.per_sample * local_batch_size)

    def sync_seconds(self, nodes: Floats, gpus: Floats) -> Floats:
        """Return the seconds of synchronization, overlapped or not."""
        more = np.maximum(gpus - 2.0, 0.0)
        across = self.across + self.across_slope * more
        within = self.within + self.within_slope * more
        return np.where(nodes > 1, across, np.where(gpus > 1, within, LEAST))

    def step_seconds(
        self, nodes: Floats, gpus: Floats, local_batch_size: Floats, accumulated: Floats
    ) -> Floats:
        """Return the seconds of an optimizer step; arguments have a common shape."""
        alone = self.pass_seconds(local_batch_size)
        logs = np.log(alone), np.log(self.sync_seconds(nodes, gpus))
        both = np.logaddexp(self.overlap * logs[0], self.overlap * logs[1]) / self.overlap
        return np.asarray(np.exp(both) + accumulated * alone)


class Points(NamedTuple):
    """Columns of measured step times, shape (points,).

    Attributes:
        size: Samples per GPU and pass.
        across: 1 on several nodes, else 0.
        across_more: GPUs above two there.
        within: 1 on several GPUs of a node, else 0.
        within_more: GPUs above two there.
        idle: `LEAST` on one GPU, else 0.
        log_pass: Logarithms of the seconds of a pass.
        log_step: Logarithms of the seconds of a step.
    """

    size: Floats
    across: Floats
    across_more: Floats
    within: Floats
    within_more: Floats
    idle: Floats
    log_pass: Floats
    log_step: Floats


def collect_points(points: Sequence[StepTime]) -> Points:
    """Collect measured step times, one or more, into columns."""
    rows = [
        (p.nodes, p.gpus, p.local_batch_size, p.step_seconds - p.sync_seconds, p.step_seconds)
        for p in points
    ]
    nodes, gpus, size, alone, step = np.array(rows, float).T
    more = np.maximum(gpus - 2.0, 0.0)
    across, within = (nodes > 1).astype(float), ((nodes == 1) & (gpus > 1)).astype(float)
    idle = LEAST * (1.0 - across - within)
    columns = across, across * more, within, within * more
    return Points(size, *columns, idle, np.log(alone), np.log(step))


def measure_misfit(model: Floats, points: Points) -> tuple[float, Floats]:
    """Return the loss of a model and its gradient, by Pollux, section 4.1.

    The loss is the root mean square error of the logarithms of pass and step seconds, plus
    penalties that keep γ near 1 and slopes below constants.

    Args:
        model: The fields of a `StepModel`, shape (7,).
        points: Measured step times, from `collect_points`.
    """
    # Floats of Python: operations on NumPy's own scalars take several times as long.
    fixed, per_sample, across, across_slope, within, within_slope, overlap = model.tolist()
    pass_seconds = fixed + per_sample * points.size
    sync_seconds = (
        (across * points.across + across_slope * points.across_more)
        + (within * points.within + within_slope * points.within_more)
        + points.idle
    )
    log_pass, log_sync = np.log(pass_seconds), np.log(sync_seconds)
    log_step = np.logaddexp(overlap * log_pass, overlap * log_sync) / overlap
    share = np.exp(overlap * (log_pass - log_step))  # of the pass in the step

    pass_error, step_error = log_pass - points.log_pass, log_step - points.log_step
    count = len(points.size)
    pass_loss, step_loss = (
        sqrt(float((error * error).sum()) / count + ROUNDED**2)
        for error in (pass_error, step_error)
    )
    by_pass = pass_error / (count * pass_loss)
    by_step = step_error / (count * step_loss)

    of_pass = (by_pass + by_step * share) / pass_seconds
    of_sync = by_step * (1.0 - share) / sync_seconds
    of_overlap = by_step * (share * log_pass + (1.0 - share) * log_sync - log_step) / overlap
    gradient = [
        of_pass.sum(),
        of_pass @ points.size,
        of_sync @ points.across,
        of_sync @ points.across_more,
        of_sync @ points.within,
        of_sync @ points.within_more,
        of_overlap.sum() + 2.0 * OVERLAP_PENALTY * (overlap - 1.0),
    ]
    ratios = across_slope / across, within_slope / within
    for place, ratio, constant in ((2, ratios[0], across), (4, ratios[1], within)):
        gradient[place] -= 2.0 * SLOPE_PENALTY * ratio * ratio / constant
        gradient[place + 1] += 2.0 * SLOPE_PENALTY * ratio / constant
    penalty = OVERLAP_PENALTY * (overlap - 1.0) ** 2 + SLOPE_PENALTY * sum(r * r for r in ratios)
    return pass_loss + step_loss + penalty, np.array(gradient)


@lru_cache(maxsize=1024)
def fit_step_model(points: tuple[StepTime, ...]) -> StepModel:
    """Fit a model to the step times that jobs measured; at least one.

    As published, a parameter that the measurements do not determine stays fixed: without several
    GPUs, synchronization takes no time, so that jobs try more GPUs.
    """
    from scipy.optimize import minimize  # imported late: takes half a second

    seen = collect_points(points)
    start = np.array(START)
    low = np.array([LEAST] * 6 + [1.0])
    high = np.array([np.inf] * 6 + [MOST_OVERLAP])
    several, beyond_two = bool(seen.across.any()), any(point.gpus > 2 for point in points)
    fixed = {2: not several, 4: not seen.within.any()}
    fixed |= {place + 1: known or not beyond_two for place, known in fixed.items()}
    for place, known in fixed.items():
        if known:
            start[place] = high[place] = LEAST
    if len(np.unique(seen.size)) == 1:
        start[0] = low[0] = high[0] = np.exp(seen.log_pass).mean() / 2.0
    bounds = list(zip(low, high, strict=True))
    found = minimize(measure_misfit, start, (seen,), "L-BFGS-B", jac=True, bounds=bounds)
    model = StepModel(*found.x.tolist())
    if several:
        return model
    return model._replace(
        across=max(model.across, ACROSS_OVER_WITHIN * model.within),
        across_slope=max(model.across_slope, ACROSS_OVER_WITHIN * model.within_slope),
    )


class BatchChoice(NamedTuple):
    """The best division of a step's samples, and its goodput: progress per second."""

    batch: LocalBatch
    goodput: float


class Candidates(NamedTuple):
    """Batch sizes that are compared on configurations, of shape (candidates, configurations).

    Attributes:
        size: Samples per GPU and pass.
        accumulated: Passes before the last one.
        scale: Total batch size over the initial one.
        seconds: Modelled duration of a step; infinite beyond the limits of batch sizes.
    """

    size: Floats
    accumulated: Floats
    scale: Floats
    seconds: Floats


@lru_cache(maxsize=LISTS)
def list_candidates(
    limits: tuple[int, int, int],
    model: StepModel,
    nodes: tuple[int, ...],
    gpus: tuple[int, ...],
    sizes: tuple[int, int],
) -> Candidates:
    """List batch sizes in equal ratios from the least to the most on each configuration.

    `limits` are an application's initial batch size and its least and most local batch size; other
    arguments are those of `find_goodputs`. Arrays are shared between calls, and read-only.
    """
    initial, least_local, most_local = limits
    spread, count = np.array(nodes, float), np.array(gpus, float)
    least = np.maximum(sizes[0], count * least_local)
    possible = least <= sizes[1]
    each = np.geomspace(np.minimum(least, sizes[1]), sizes[1], CANDIDATES) / count
    accumulated = np.ceil(each / most_local - ROUNDING) - 1.0
    alone = (count == 1) & (each > initial + ROUNDING)
    accumulated = np.where(alone, np.maximum(accumulated, 1.0), accumulated)
    size = np.ceil(each / (accumulated + 1.0) - ROUNDING)
    scale = count * size * (accumulated + 1.0) / initial
    allowed = possible & (least_local <= size) & (size <= most_local)
    seconds = np.where(allowed, model.step_seconds(spread, count, size, accumulated), inf)
    found = Candidates(size, accumulated, scale, seconds)
    for column in found:
        column.flags.writeable = False
    return found


def find_goodputs(
    app: Application,
    model: StepModel,
    noise: tuple[float, float],
    nodes: Ints,
    gpus: Ints,
    sizes: tuple[int, int],
) -> tuple[Floats, Floats, Floats]:
    """Find the batch size with the best modelled goodput for each configuration.

    Args:
        app: Its limits of local batch sizes.
        model: The model of step times.
        noise: Squared norm and variance of the gradient.
        nodes: Nodes of each configuration, shape (configurations,).
        gpus: GPUs of each configuration, of the same shape.
        sizes: Least and most total batch size.

    Returns:
        Goodput, samples per GPU and pass, and passes before the last one, by configuration; a
        goodput of 0 if no batch size is within the limits.
    """
    limits = app.batch_size, app.least_local, app.most_local
    found = list_candidates(limits, model, tuple(nodes.tolist()), tuple(gpus.tolist()), sizes)
    goodputs = measure_gain(*noise, found.scale) / found.seconds
    best = goodputs.argmax(axis=0), np.arange(len(gpus))
    return goodputs[best], found.size[best], found.accumulated[best]


def choose_batch(
    app: Application,
    model: StepModel,
    noise: tuple[float, float],
    nodes: int,
    gpus: int,
    sizes: tuple[int, int],
) -> BatchChoice:
    """Return the batch size with the best modelled goodput on a number of nodes and GPUs."""
    goodput, size, accumulated = (
        float(found[0])
        for found in find_goodputs(app, model, noise, np.array([nodes]), np.array([gpus]), sizes)
    )
    most = sizes[1] // (gpus * (int(accumulated) + 1))
    return BatchChoice(LocalBatch(min(int(size), most), int(accumulated)), goodput)


@dataclass(frozen=True)
class Agent:
    """What a job knows of its own speed and noise (Pollux, section 4.1).

    Attributes:
        app: Its application; only limits of batch sizes are known before it runs.
        sizes: Least and most total batch size; equal if it keeps its own.
        steps: The step time of each number of nodes and GPUs and each local batch size at which it
            ran, when it first did.
        noise: Squared norm and variance of the gradient, as last seen; None before it ran.
    """

    app: Application
    sizes: tuple[int, int]
    steps: tuple[StepTime, ...] = ()
    noise: tuple[float, float] | None = None

    @classmethod
    def of(cls, job: JobSpec, app: Application) -> "Agent":
        """Return the agent of a job that has not run."""
        fixed = job.mode is not Mode.GOODPUT
        least = job.batch_size if fixed else app.batch_size
        return cls(app, (least, job.batch_size if fixed else job.max_batch_size))

    def after(self, placement: Placement, batch_size: int, epoch: int) -> "Agent":
        """Return the agent after training in an epoch on a placement at a total batch size."""
        app, nodes, gpus = self.app, len(placement), sum(placement)
        size = app.split(batch_size, gpus).size
        steps = self.steps
        if all((s.nodes, s.gpus, s.local_batch_size) != (nodes, gpus, size) for s in steps):
            step, sync = app.measure_step(placement, size)
            if step < inf:
                steps = (*steps, StepTime("", nodes, gpus, size, step, sync))
        return replace(self, steps=steps, noise=app.noise(batch_size, epoch))

    def choose_batch_size(self, placement: Placement, tuned: int) -> int:
        """Return the total batch size with the best modelled goodput on a placement.

        The smallest at first; the tuned one of a job that does not adapt.
        """
        app, gpus, (least, most) = self.app, sum(placement), self.sizes
        if not app.adapts or least == most:
            return tuned
        if self.noise is None or not self.steps:
            batch = app.split(min(max(least, app.least_local * gpus), most), gpus)
        else:
            nodes = len(placement)
            batch = choose_batch(app, self.model, self.noise, nodes, gpus, self.sizes).batch
        return gpus * batch.size * (batch.accumulated + 1)

    @property
    def model(self) -> StepModel:
        """The model that fits its step times."""
        return fit_step_model(self.steps)

    def find_goodputs(self, nodes: Ints, gpus: Ints) -> Floats:
        """Return its best modelled goodput on configurations, shape (configurations,).

        It must have run; see `find_goodputs`.
        """
        assert self.noise is not None, "the job has run"
        return find_goodputs(self.app, self.model, self.noise, nodes, gpus, self.sizes)[0]
