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
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from predictor.arrays import Bools, Floats, Ints
from predictor.belief import Belief, find_changes, list_stages
from predictor.durations import add_share
from predictor.history import (
    RELATIVES,
    SAME_KIND,
    SAME_MODE,
    SAME_MODEL,
    History,
    ModeHistory,
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
        return len(self.sizes) > 1

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
    spec, batch_size = belief.spec, belief.batch_size
    reference = throughput.reference(spec)
    sizes = reachable_batch_sizes(throughput, spec, reference)
    regimes = (*belief.observed, Regime(batch_size, 0)) if len(sizes) > 1 else ()
    timed = belief.slowness(throughput, reference)
    total = sum([log * seconds for _, log, seconds in timed])
    seconds = sum([seconds for _, _, seconds in timed])
    prior = history.slowness(spec.model) * prior_seconds
    own = (total + prior) / (seconds + prior_seconds)
    return Evidence(
        spec=spec,
        sizes=sizes,
        changes=find_changes(spec, regimes, sizes),
        done=belief.epochs_done,
        left=belief.epochs_left,
        batch_size=batch_size,
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
        below = np.stack(
            [np.count_nonzero(mass < level[:, None], axis=1) for level in levels.T], axis=1
        )
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
    pasts = [history.of_mode(job.spec.mode) for job in jobs]
    found = _find_candidates(jobs, pasts, seed)
    at, weights = found.at, found.weigh([past.counts for past in pasts])
    changed = np.array([len(job.changes) for job in jobs])
    width = len(at) - int(changed.min())
    coming = np.full((width, *weights.shape), np.inf)
    for seen in np.unique(changed).tolist():
        rows = np.flatnonzero(changed == seen)
        coming[: len(at) - seen, rows] = at[seen:, rows]
    sizes, seconds = [], np.ones((len(jobs), width))
    for row, (job, seen) in enumerate(zip(jobs, changed.tolist(), strict=True)):
        ahead = list_stages(job.spec, job.sizes, seen + width - 1)[seen + 1 :]
        sizes.append((job.batch_size, *ahead))
        spec, allocation = job.spec, throughput.reference(job.spec)
        took = {
            size: training_seconds(throughput, spec, size, allocation)
            * math.exp(job.slowness_at(size))
            for size in {*sizes[row]}
        }
        seconds[row, : len(sizes[row])] = [took[size] for size in sizes[row]]
    epochs, begin = np.empty(coming.shape), done
    for stage in range(width):
        stop = np.maximum(np.minimum(np.maximum(coming[stage], done), end), begin)
        np.subtract(stop, begin, out=epochs[stage])
        begin = stop
    return Sequences(weights, np.moveaxis(epochs, 0, 2), seconds, tuple(sizes))


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Candidates of jobs.

    Attributes:
        at: Epochs of their changes, shape (changes + 1, jobs, candidates), padded with infinity
            (always in the last row).
        exists: Whether a job has the candidate, shape (jobs, candidates).
        sharing: Candidates of each mixture component, shape (jobs, components).
        likelihood: Shape (jobs, candidates).
    """

    at: Floats
    exists: Bools
    sharing: Ints
    likelihood: Floats

    def weigh(self, counts: Sequence[tuple[float, ...]], row: int | None = None) -> Floats:
        """Return the candidates' posterior probabilities, shape (jobs, candidates).

        `counts` are those of the jobs' modes (`ModeHistory.counts`); `row` asks for one job only.
        """
        rows = slice(None) if row is None else slice(row, row + 1)
        number = {known: n for n, known in enumerate(dict.fromkeys(counts))}
        table = np.array([np.array(PSEUDO_COUNTS) + (known or 0.0) for known in number])
        each = table[[number[known] for known in counts]] / np.maximum(self.sharing[rows], 1)
        weights: Floats = self.exists[rows] * each[:, COMPONENTS] * self.likelihood[rows]
        # Unlike `sum`, `cumsum` adds in a fixed order, so that other jobs in the batch change no
        # bit.
        weights /= np.cumsum(weights, axis=1)[:, -1:]
        return weights


def _find_candidates(
    jobs: Sequence[Evidence], pasts: Sequence[ModeHistory], seed: int
) -> _Candidates:
    """Find each job's candidates among the trajectories of its mode, and by the prior."""
    rows_of: dict[int, list[int]] = {}
    for row, past in enumerate(pasts):
        rows_of.setdefault(id(past), []).append(row)
    known = max(past.arrays[0].shape[1] for past in pasts)
    epochs = np.array([float(job.spec.epochs) for job in jobs])[:, None]
    rungs = np.array([job.rungs for job in jobs])[:, None]
    width = max(known, int(rungs.max()), *(len(job.changes) for job in jobs)) + 1
    at = np.full((width, len(jobs), len(COMPONENTS)), np.inf)
    ended = np.ones((len(jobs), RELATIVES))
    exists = np.ones((len(jobs), len(COMPONENTS)), bool)
    at_the_top = np.zeros((len(jobs), RELATIVES), bool)
    for of_past in rows_of.values():
        past = pasts[of_past[0]]
        trajectories, past_epochs, past_at_the_top = past.arrays
        relatives = np.stack([past.relatives(jobs[row].spec) for row in of_past])
        at[: trajectories.shape[1], of_past, :RELATIVES] = trajectories.T[:, relatives]
        ended[of_past], at_the_top[of_past] = past_epochs[relatives], past_at_the_top[relatives]
        exists[of_past, : 2 * RELATIVES] = np.tile(relatives >= 0, 2)
    at[:known, :, RELATIVES : 2 * RELATIVES] = at[:known, :, :RELATIVES] / ended * epochs
    most = np.array([job.rungs if job.spec.mode is Mode.GNS else width for job in jobs])
    for change in range(int(most.min()), width):
        at[change, most <= change] = np.inf
    # Candidates by epochs are censored where the finished job ended. Those that ended at the
    # largest batch size are censored after their last change, draws from the start.
    censored = np.zeros((len(jobs), len(COMPONENTS)))
    censored[:, :RELATIVES] = np.where(ended < epochs, ended, np.inf)
    censored[:, RELATIVES : 2 * RELATIVES] = np.inf
    censored[:, : 2 * RELATIVES][np.tile(at_the_top, 2)] = 0.0
    sharing = np.add.reduceat(exists, _FIRST_OF, axis=1, dtype=np.intp)
    return _Candidates(at, exists, sharing, _likelihood(jobs, at, censored, rungs, seed))


_FIRST_OF = np.flatnonzero(np.diff(COMPONENTS, prepend=-1))
"""First candidate of each mixture component."""


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
        at: Epochs of the candidates' changes, shape (changes + 1, jobs, candidates); drawn
            changes are filled in.
        censored: Epoch from which a candidate's further changes follow the prior; infinite
            without censoring. Shape (jobs, candidates).
        rungs: Number of possible changes of a job, shape (jobs, 1).
        seed: Seed of the draws.
    """
    done = np.array([job.done for job in jobs])[:, None]
    epochs = np.array([float(job.spec.epochs) for job in jobs])[:, None]
    changed = np.array([len(job.changes) for job in jobs])
    last = len(at) - 1
    known = np.zeros(censored.shape, np.intp)
    for changes in at:
        known += np.isfinite(changes)
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
            z = (epoch - at[change, seen]) / width
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
            to_come = stay + waits
            stop = stop.copy()
            stop[following] = stay / to_come
            fixed = ~free[following]
            to_come[fixed] = ndtr(((at[change, following] - now) / off[following])[fixed])
            late = OUTLIER * np.maximum(1.0 - now / of, OUTLIER)
            likelihood[following] *= (1.0 - OUTLIER) * to_come + late
        if coming_rows.size:
            comes = free[coming_rows] & (ends[:, change] >= stop[coming_rows])
            of_job, candidate = np.nonzero(comes)
            rows = coming_rows[of_job]
            after = np.maximum(begins[rows, candidate], done[rows, 0])
            if change:
                previous = np.maximum(at[change - 1, rows, candidate], after)
                after = np.where(changed[rows] < change, previous, after)
            there = np.isfinite(after)
            rows, candidate, after = rows[there], candidate[there], after[there]
            share = 1.0 - np.exp(np.log1p(-cuts[candidate, change]) / more[rows, 0])
            at[change, rows, candidate] = after * (1.0 - share) + epochs[rows, 0] * share
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


def learn(
    history: History, beliefs: Sequence[Belief], throughput: Throughput, seed: int
) -> History:
    """Add finished jobs to the history, in the order of their ends.

    For an adaptive job, adds its trajectory, and its final posterior over mixture components to
    their counts; for a timed job, the share of its limit that it took.
    """
    shares, modes = history.shares, dict(history.modes)
    jobs, pasts = list[Evidence](), list[ModeHistory]()
    for belief in beliefs:
        if belief.spec.timed:
            shares = add_share(shares, belief)
            continue
        job, past = gather_evidence(belief, throughput, history), modes.get(belief.spec.mode)
        past = past or ModeHistory()
        if job.can_adapt:
            jobs.append(job)
            pasts.append(past)
            _ = past.arrays  # which `after` then extends
        modes[belief.spec.mode] = past.after(build_trajectory(belief, throughput))
    if jobs:  # together: only the weights of a job depend on those of the jobs before it
        found = _find_candidates(jobs, pasts, seed)
        for row, job in enumerate(jobs):
            past = modes[job.spec.mode]
            weights = found.weigh([past.counts], row)[0]
            components = np.bincount(COMPONENTS, weights, len(PSEUDO_COUNTS))
            counts = tuple((components + (past.counts or 0.0)).tolist())
            modes[job.spec.mode] = past.with_counts(counts)
    return History(modes, shares)
