"""The posterior over a job's regime sequences, learned from finished jobs.

The adaptation mode fixes the order of batch sizes (`predictor.belief.list_stages`). The number
of changes and their epochs are unknown. The posterior is a mixture over candidates:

- The trajectories of relatives, which are finished jobs of the same kind, model or mode. Their
  changes keep either their epochs, as in learning-rate schedules, or their shares of the job's
  epochs, as in warm-ups.
- Draws from the Dirichlet prior over the shares of the job's epochs that each regime holds
  (Shockwave, NSDI '23, section 5). They serve jobs without fitting relatives. They also extend
  censored trajectories: those shorter than the job, or at the largest batch size.

The candidates of a mixture component (kind, model or mode by epochs or by shares; the prior)
share its weight: pseudo-counts plus the expected number of finished jobs that it generated
(empirical Bayes). The job's observed trajectory reweights the candidates by their likelihood.
Observed changes have a Gaussian error about the candidate's changes, and the next change is
censored at the epochs done.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from predictor.arrays import Floats, Ints
from predictor.belief import Belief, find_changes, list_stages
from predictor.durations import add_share
from predictor.history import (
    RELATIVES,
    SAME_KIND,
    SAME_MODE,
    SAME_MODEL,
    History,
    build_trajectory,
)
from predictor.job import JobSpec, Mode, Regime
from predictor.normal import ndtr
from predictor.throughput import Throughput, reachable_batch_sizes, training_seconds

DRAWS = 32
"""Number of candidates from the Dirichlet prior, equal to that of relatives. An engineering bound;
no sweep is recorded."""

COMPONENTS = np.repeat(np.arange(7), [*[SAME_KIND, SAME_MODEL, SAME_MODE] * 2, DRAWS])
"""Mixture component of each candidate: kind, model, mode by epochs; by shares; the prior."""

PSEUDO_COUNTS = (2.0, 1.0, 0.5, 2.0, 1.0, 0.5, 0.3)
"""Prior pseudo-counts of the mixture components; closer relatives count more. Chosen by hand; no
sweep is recorded (accuracy with these values: docs/predictor.md)."""

EPOCHS_OFF, SHARE_OFF = 0.5, 0.02
"""Standard deviation of an observed change about a candidate's change: a number of epochs, plus a
share of the job's epochs. Chosen by hand; no sweep is recorded."""

OUTLIER = 0.02
"""Probability of an outlier: a change where the candidate has none. Chosen by hand; no sweep is
recorded."""

ACCORDION_CHANGES = 3
"""Number of changes of an Accordion job under the prior. Chosen by hand; no sweep is recorded."""

PRIOR_SECONDS = 60.0
"""Weight of the prior slowness, in seconds of measured training, if speeds do not vary
(`predictor.speed_noise`). Chosen by hand; no sweep is recorded."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a job's posterior conditions on: its observed trajectory and speeds.

    Attributes:
        sizes: Batch sizes that it can reach.
        changes: Epochs at which it changed its batch size.
        done: Completed epochs, the completed fraction of the current epoch included.
        left: Epochs left at the current batch size, more than 0.
        slowness: Posterior mean log of true over profiled time per step, by measured batch size.
        slowness_elsewhere: The same at batch sizes without measurements.
    """

    spec: JobSpec
    sizes: tuple[int, ...]
    changes: tuple[int, ...]
    done: float
    left: float
    batch_size: int
    slowness: Mapping[int, float]
    slowness_elsewhere: float

    def slowness_at(self, batch_size: int) -> float:
        """Return the log of true over profiled time per step at a batch size."""
        return self.slowness.get(batch_size, self.slowness_elsewhere)

    @property
    def rungs(self) -> int:
        """Number of changes, from the start of the job, that the prior expects at most."""
        return len(self.sizes) - 1 if self.spec.mode is Mode.GNS else ACCORDION_CHANGES

    @property
    def can_adapt(self) -> bool:
        """Whether the job could change its batch size at its start."""
        return self.spec.mode is not Mode.STATIC and len(self.sizes) > 1

    @property
    def is_settled(self) -> bool:
        """Whether the job can no longer change its batch size."""
        climbed = self.spec.mode is Mode.GNS and len(self.changes) >= self.rungs
        return climbed or not self.can_adapt


def gather_evidence(
    belief: Belief, throughput: Throughput, history: History, prior_seconds: float = PRIOR_SECONDS
) -> Evidence:
    """Derive the evidence about a job from its belief.

    Slowness is shrunk hierarchically: a batch size's towards the job's mean, and the job's towards
    the mean of its model's finished jobs, which weighs as much as `prior_seconds` of measured
    training. Each is a posterior mean of log-normal speeds.
    """
    spec, current = belief.spec, Regime(belief.batch_size, 0)
    sizes = reachable_batch_sizes(throughput, spec)
    timed = belief.slowness(throughput)
    total = sum([log * seconds for _, log, seconds in timed])
    seconds = sum([seconds for _, _, seconds in timed])
    prior = history.slowness(spec.model) * prior_seconds
    own = (total + prior) / (seconds + prior_seconds)
    return Evidence(
        spec=spec,
        sizes=sizes,
        changes=find_changes(spec, (*belief.observed, current), sizes),
        done=belief.epochs_done,
        left=belief.epochs_left,
        batch_size=belief.batch_size,
        slowness={
            size: (log * seconds + own * prior_seconds) / (seconds + prior_seconds)
            for size, log, seconds in timed
        },
        slowness_elsewhere=own,
    )


@dataclass(frozen=True)
class Sequences:
    """The posterior over residual regime sequences: weighted candidates.

    Attributes:
        weights: Posterior probabilities, shape (jobs, candidates).
        epochs: Epochs left in each stage (up to the next change, …, after the last), shape
            (jobs, candidates, stages).
        epoch_seconds: Duration of an epoch in each stage on the jobs' reference allocations,
            shape (jobs, stages).
        sizes: Batch sizes of the stages, a tuple per job.
        profiled: Whether speeds are profiled instead of measured.
    """

    weights: Floats
    epochs: Floats
    epoch_seconds: Floats
    sizes: tuple[tuple[int, ...], ...]
    profiled: bool = False

    def slowness(self, job: Evidence, batch_size: int) -> float:
        """Return the log of the ratio of expected to profiled time per step, at a batch size."""
        return 0.0 if self.profiled else job.slowness_at(batch_size)

    @cached_property
    def seconds(self) -> Floats:
        """Residual run time, shape (jobs, candidates)."""
        total: Floats = np.zeros(self.weights.shape)
        for stage in range(self.epochs.shape[2]):  # a fixed order: padding changes no bit
            total += self.epochs[:, :, stage] * self.epoch_seconds[:, None, stage]
        return total

    def quantiles(self, weights: Floats, levels: Floats) -> Ints:
        """Return the candidates at quantiles of the residual run time, shape (jobs, levels).

        The shape of `weights` is (jobs, candidates), that of `levels` (jobs or 1, levels).
        """
        if weights.shape[1] == 1:
            return np.zeros((len(weights), levels.shape[1]), np.intp)
        order = self._order
        mass = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
        mass /= mass[:, -1:]
        below = (mass[:, :, None] < levels[:, None, :]).sum(axis=1)
        below = np.minimum(below, mass.shape[1] - 1)
        columns: Ints = np.take_along_axis(order, below, axis=1)
        return columns

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self.seconds, axis=1, kind="stable")


def draw_sequences(
    jobs: Sequence[Evidence], throughput: Throughput, history: History, seed: int
) -> Sequences:
    """Compute the posterior over residual regime sequences of adaptive jobs.

    `jobs` is not empty; `seed` is that of the draws from the prior.
    """
    done = np.array([job.done for job in jobs])[:, None]
    end = done + np.array([job.left for job in jobs])[:, None]
    at, weights = _candidates(jobs, history, seed)
    changed = [len(job.changes) for job in jobs]
    width = at.shape[2] - min(changed)
    coming = np.full((*weights.shape, width), np.inf)
    sizes, seconds = [], np.ones((len(jobs), width))
    for row, (job, seen) in enumerate(zip(jobs, changed, strict=True)):
        coming[row, :, : at.shape[2] - seen] = at[row, :, seen:]
        ahead = list_stages(job.spec, job.sizes, seen + width - 1)[seen + 1 :]
        sizes.append((job.batch_size, *ahead))
        took = {size: _epoch_seconds(job, size, throughput) for size in {*sizes[row]}}
        seconds[row, : len(sizes[row])] = [took[size] for size in sizes[row]]
    within = np.minimum(np.maximum(coming, done[:, :, None]), end[:, :, None])
    ends = np.maximum.accumulate(within, axis=2)
    epochs = ends.copy()
    epochs[:, :, 1:] -= ends[:, :, :-1]
    epochs[:, :, 0] -= done
    return Sequences(weights, epochs, seconds, tuple(sizes))


def _epoch_seconds(job: Evidence, batch_size: int, throughput: Throughput) -> float:
    return training_seconds(throughput, job.spec, batch_size) * math.exp(
        job.slowness_at(batch_size)
    )


def _candidates(jobs: Sequence[Evidence], history: History, seed: int) -> tuple[Floats, Floats]:
    """Return each job's candidate changes and their posterior probabilities.

    Returns:
        Epochs of the changes, shape (jobs, candidates, changes + 1), padded with infinity
        (always in the last column); probabilities, shape (jobs, candidates).
    """
    components = len(PSEUDO_COUNTS)
    modes = {mode: history.of_mode(mode) for mode in {job.spec.mode: None for job in jobs}}
    known = max(past.arrays[0].shape[1] for past in modes.values())
    epochs = np.array([float(job.spec.epochs) for job in jobs])[:, None]
    rungs = np.array([job.rungs for job in jobs])[:, None]
    width = max(known, int(rungs.max()), *(len(job.changes) for job in jobs)) + 1
    at = np.full((len(jobs), len(COMPONENTS), width), np.inf)
    ended = np.ones((len(jobs), RELATIVES))
    exists = np.ones((len(jobs), len(COMPONENTS)), bool)
    at_the_top = np.zeros((len(jobs), RELATIVES), bool)
    counts = np.empty((len(jobs), components))
    for mode, past in modes.items():
        trajectories, past_epochs, past_at_the_top = past.arrays
        of_mode = np.array([row for row, job in enumerate(jobs) if job.spec.mode is mode])
        rows = np.stack([past.relatives(jobs[row].spec) for row in of_mode.tolist()])
        at[of_mode, :RELATIVES, : trajectories.shape[1]] = trajectories[rows]
        ended[of_mode], at_the_top[of_mode] = past_epochs[rows], past_at_the_top[rows]
        exists[of_mode, : 2 * RELATIVES] = np.tile(rows >= 0, 2)
        counts[of_mode] = np.array(PSEUDO_COUNTS) + (past.counts or np.zeros(components))
    shares = at[:, :RELATIVES, :known] / ended[:, :, None]
    at[:, RELATIVES : 2 * RELATIVES, :known] = shares * epochs[:, :, None]
    climbs = np.array([job.spec.mode is Mode.GNS for job in jobs])[:, None]
    at[np.arange(width) >= np.where(climbs, rungs, width)[:, :, None] + _NO_CANDIDATES] = np.inf
    # Candidates by epochs are censored where the finished job ended. Those that ended at the
    # largest batch size are censored after their last change, draws from the start.
    censored = np.zeros((len(jobs), len(COMPONENTS)))
    censored[:, :RELATIVES] = np.where(ended < epochs, ended, np.inf)
    censored[:, RELATIVES : 2 * RELATIVES] = np.inf
    censored[:, : 2 * RELATIVES][np.tile(at_the_top, 2)] = 0.0
    sharing = np.stack([exists[:, part].sum(axis=1) for part in _CANDIDATES_OF], axis=1)
    weights = exists * (counts / np.maximum(sharing, 1))[:, COMPONENTS]
    weights = weights * _likelihood(jobs, at, censored, rungs, seed)
    # Unlike `sum`, `cumsum` adds in a fixed order, so that other jobs in the batch change no bit.
    weights /= np.cumsum(weights, axis=1)[:, -1:]
    return at, weights


_NO_CANDIDATES = np.zeros((1, len(COMPONENTS), 1))
_CANDIDATES_OF = [np.flatnonzero(part == COMPONENTS) for part in range(len(PSEUDO_COUNTS))]


def _likelihood(
    jobs: Sequence[Evidence], at: Floats, censored: Floats, rungs: Ints, seed: int
) -> Floats:
    """Return the candidates' likelihood, shape (jobs, candidates), and draw censored changes.

    With r possible changes left, the prior probability of no further change is 1 / (r + 1).
    Otherwise the next change comes after a share Beta(1, r) of the epochs left: the first of r + 1
    shares that are Dirichlet(1, …, 1). If it has not come yet, it is drawn likewise from the
    epochs left now.

    Args:
        jobs: Evidence about each job.
        at: Epochs of the candidates' changes, shape (jobs, candidates, changes + 1); drawn
            changes are filled in.
        censored: Epoch from which a candidate's further changes follow the prior; infinite
            without censoring. Shape (jobs, candidates).
        rungs: Number of possible changes of a job, shape (jobs, 1).
        seed: Seed of the draws.
    """
    done = np.array([job.done for job in jobs])[:, None]
    epochs = np.array([float(job.spec.epochs) for job in jobs])[:, None]
    changed = np.array([len(job.changes) for job in jobs])
    known, last = np.isfinite(at).sum(axis=2), at.shape[2] - 1
    known[~np.isfinite(censored)] = last + 1  # a candidate without censoring draws no change
    off = EPOCHS_OFF + SHARE_OFF * epochs
    ends, cuts = _uniform(seed, last)
    likelihood: Floats = np.ones(censored.shape)
    before = np.zeros((len(jobs), 1))
    for change in range(last + 1):
        more = np.maximum(rungs - change, 0)
        seen, following = np.flatnonzero(changed > change), np.flatnonzero(changed == change)
        coming_rows = np.flatnonzero((changed <= change) & (more[:, 0] > 0))
        if change == last:
            coming_rows = coming_rows[:0]
        if not (seen.size or following.size or coming_rows.size):
            continue
        free = known <= change
        begins = np.maximum(before, np.where(free, censored, 0.0))
        left = np.maximum(epochs - begins, 0.5)
        stays = 1.0 / (more + 1.0)
        if seen.size:  # the density of observed changes
            epoch = np.array([[jobs[row].changes[change]] for row in seen.tolist()])
            of, width = epochs[seen], off[seen]
            z = (epoch - at[seen, :, change]) / width
            near = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
            rest = np.minimum(np.maximum((of - epoch) / left[seen], 0.5 / of), 1.0)
            others = np.maximum(more[seen] - 1.0, 0.0)
            by_prior = (1.0 - stays[seen]) * more[seen] * _power(rest, others)
            drawn = free[seen] & (epoch >= begins[seen])
            by_prior = np.where(drawn, by_prior * width / left[seen], near)
            likelihood[seen] *= (1.0 - OUTLIER) * by_prior + OUTLIER * width / of
        stop = np.broadcast_to(stays, censored.shape)
        if following.size:  # the survival of the next change up to the epochs done
            now, of, stay = done[following], epochs[following], stays[following]
            remaining = np.minimum(np.maximum((of - now) / left[following], 0.0), 1.0)
            waits = (1.0 - stay) * _power(remaining, more[following])
            coming = ndtr((at[following, :, change] - now) / off[following])
            to_come = np.where(free[following], stay + waits, coming)
            late = OUTLIER * np.maximum(1.0 - now / of, OUTLIER)
            likelihood[following] *= (1.0 - OUTLIER) * to_come + late
            stop = stop.copy()
            stop[following] = stay / (stay + waits)
        if coming_rows.size:
            rows, now = coming_rows, done[coming_rows]
            after = np.maximum(begins[rows], now)
            later = (changed[rows] < change)[:, None]
            after = np.where(later, np.maximum(at[rows, :, change - 1], after), after)
            comes = free[rows] & np.isfinite(after) & (ends[:, change] >= stop[rows])
            share = 1.0 - np.exp(np.log1p(-cuts[:, change]) / more[rows])
            drawn = np.where(comes, after, 0.0) * (1.0 - share) + epochs[rows] * share
            at[rows, :, change] = np.where(comes, drawn, at[rows, :, change])
        if seen.size:
            before[seen] = epoch
    return likelihood


def _power(base: Floats, exponent: Floats) -> Floats:
    """Return a power of a base in [0, 1]; unlike `**`, with the same bits in any batch."""
    return np.where(exponent > 0.0, np.exp(exponent * np.log(np.maximum(base, 1e-300))), 1.0)


@cache
def _uniform(seed: int, changes: int) -> tuple[Floats, Floats]:
    """Return two tables of uniform draws, shape (candidates, changes).

    Each column has its own generator, so that further columns change none of the others.
    """
    columns = [
        np.random.default_rng([seed, n]).random((2, len(COMPONENTS))) for n in range(changes)
    ]
    if not columns:
        return np.zeros((len(COMPONENTS), 0)), np.zeros((len(COMPONENTS), 0))
    ends, cuts = np.stack(columns, axis=2)
    return ends, cuts


def learn(history: History, belief: Belief, throughput: Throughput, seed: int) -> History:
    """Add a finished job to the history.

    For an adaptive job, adds its trajectory, and its final posterior over mixture components to
    their counts; for a timed job, the share of its limit that it took.
    """
    if belief.spec.timed:
        return replace(history, shares=add_share(history.shares, belief))
    mode, past = belief.spec.mode, history.of_mode(belief.spec.mode)
    job, counts = gather_evidence(belief, throughput, history), past.counts
    if job.can_adapt:
        _, weights = _candidates([job], history, seed)
        components = np.bincount(COMPONENTS, weights[0], len(PSEUDO_COUNTS))
        counts = tuple((components + (counts or 0.0)).tolist())
    past = past.after(build_trajectory(belief, throughput), counts)
    return History({**history.modes, mode: past}, history.shares)
