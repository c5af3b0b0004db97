"""The posterior over a job's regime sequences, learned from what other jobs went through.

Which batch size follows which is fixed by the mode (`predictor.belief.stages`). Unknown
is at which epochs a job changes, and how often. Its sequence is believed to be like one
of a set of candidates:

- the course of each relative (finished jobs of its kind, its model, its mode), with its
  changes either at the same epochs or at the same shares of its epochs: schedules of
  learning rates are told in epochs, warm-ups in shares;
- draws from the Dirichlet prior over the shares of its epochs that each regime holds
  (Shockwave, NSDI '23, section 5), for jobs that have no relatives or are like none, and
  for what a course cannot tell because it had reached the largest batch size.

A way to make candidates (kind, model or mode; epochs or shares; the prior) has a weight,
which its candidates share: how many of the finished jobs it foretold, by the posterior of
each when it finished (empirical Bayes). What was seen of a job restates the candidates:
one is as likely as a change came near its own, up to a Gaussian error of half an epoch
and 2 % of the epochs, and as its next change is still to come.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from predictor.belief import Belief, changes, stages
from predictor.history import COURSES, SAME_KIND, SAME_MODE, SAME_MODEL, Floats, History, Ints
from predictor.job import JobSpec, Mode, Regime
from predictor.throughput import Throughput, epoch_seconds, reachable_batch_sizes

DRAWS = 32
"""Candidates from the Dirichlet prior."""

WAYS = np.repeat(np.arange(7), [*[SAME_KIND, SAME_MODEL, SAME_MODE] * 2, DRAWS])
"""How each candidate is made: by epochs from kind, model, mode; by shares; drawn."""

PRIOR = (2.0, 1.0, 0.5, 2.0, 1.0, 0.5, 0.3)
"""Jobs that each way is taken to have foretold before any finished: the nearer the more."""

EPOCHS_OFF, SHARE_OFF = 0.5, 0.02
"""Standard deviation of a change about a candidate's: epochs, and share of the epochs."""

UNLIKE = 0.02
"""Probability that a change is where the candidate does not have it."""

SPANS = 3
"""Changes of an Accordion job that the prior reckons with."""

RESTING_SECONDS = 60.0
"""Timed training that weighs as much as what was known before."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands in its sequence.

    Attributes:
        spec: What was declared.
        changes: Epochs at which it changed.
        done: Epochs done, the part of the one under way included.
        left: Epochs left; at least what the one under way needs.
        batch_size: Batch size under way.
        slowness: Log of true over profiled time per step, by batch size met.
        slowness_elsewhere: The same at any other.
    """

    spec: JobSpec
    changes: tuple[int, ...]
    done: float
    left: float
    batch_size: int
    slowness: Mapping[int, float]
    slowness_elsewhere: float

    def slowness_at(self, batch_size: int) -> float:
        """Log of true over profiled time per step at a batch size."""
        return self.slowness.get(batch_size, self.slowness_elsewhere)


def standing(belief: Belief, throughput: Throughput, history: History) -> Standing:
    """Where a job stands by what was observed of it.

    Its speed at a batch size is what was measured there, shrunk towards its mean over
    all of them, and that towards the mean of its model's finished jobs: posterior means
    of log-normal speeds, in which `RESTING_SECONDS` of training weigh as much as the prior.
    """
    spec, under_way = belief.spec, Regime(belief.batch_size, 0)
    timed = belief.slowness(throughput)
    total = sum([log * seconds for _, log, seconds in timed])
    seconds = sum([seconds for _, _, seconds in timed])
    known = history.slowness(spec.model) * RESTING_SECONDS
    own = (total + known) / (seconds + RESTING_SECONDS)
    return Standing(
        spec=spec,
        changes=changes(spec, (*belief.observed, under_way), throughput),
        done=belief.epochs_done,
        left=belief.epochs_left,
        batch_size=belief.batch_size,
        slowness={
            size: (log * seconds + own * RESTING_SECONDS) / (seconds + RESTING_SECONDS)
            for size, log, seconds in timed
        },
        slowness_elsewhere=own,
    )


def is_settled(job: Standing, throughput: Throughput) -> bool:
    """Whether a job cannot change any more."""
    rungs = len(reachable_batch_sizes(throughput, job.spec)) - 1
    climbed = job.spec.mode is Mode.GNS and len(job.changes) >= rungs
    return job.spec.mode is Mode.STATIC or rungs == 0 or climbed


@dataclass(frozen=True)
class Sequences:
    """What is left of some jobs: weighted candidates.

    Attributes:
        weights: Posterior probability, shape (jobs, candidates).
        epochs: Epochs left before each change to come, and after the last, shape (jobs,
            candidates, stages).
        epoch_seconds: What an epoch takes in each of those stages on the jobs' reference
            allocations, shape (jobs, stages).
        sizes: Batch sizes of the stages, a tuple a job.
        profiled: Whether the jobs are as fast as the profile says, whatever was measured.
    """

    weights: Floats
    epochs: Floats
    epoch_seconds: Floats
    sizes: tuple[tuple[int, ...], ...]
    profiled: bool = False

    def slowness(self, job: Standing, batch_size: int) -> float:
        """Log of expected over profiled time per step of a job at a batch size."""
        return 0.0 if self.profiled else job.slowness_at(batch_size)

    @cached_property
    def seconds(self) -> Floats:
        """Run time left, shape (jobs, candidates)."""
        total: Floats = np.zeros(self.weights.shape)
        for stage in range(self.epochs.shape[2]):  # one by one: padding changes no bit
            total += self.epochs[:, :, stage] * self.epoch_seconds[:, None, stage]
        return total

    def quantiles(self, weights: Floats, levels: Floats) -> Ints:
        """Candidates at quantiles of the run time left, shape (jobs, levels).

        Args:
            weights: Of the candidates, shape (jobs, candidates).
            levels: In [0, 1], shape (jobs or 1, levels).
        """
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


def settled(standings: Sequence[Standing], throughput: Throughput) -> Sequences:
    """What is left of jobs that go on as they are: one candidate each."""
    return Sequences(
        weights=np.ones((len(standings), 1)),
        epochs=np.array([job.left for job in standings])[:, None, None],
        epoch_seconds=np.array(
            [[_epoch_seconds(job, job.batch_size, throughput)] for job in standings]
        ),
        sizes=tuple((job.batch_size,) for job in standings),
    )


def sequences(
    standings: Sequence[Standing], throughput: Throughput, history: History, seed: int
) -> Sequences:
    """The posterior over what is left of some jobs of one mode.

    Args:
        standings: Where they stand; at least one.
        throughput: How fast jobs train.
        history: What finished jobs went through.
        seed: Of the draws from the prior.
    """
    done = np.array([job.done for job in standings])[:, None]
    end = done + np.array([job.left for job in standings])[:, None]
    at, weights = _candidates(standings, throughput, history, seed)
    weights /= np.cumsum(weights, axis=1)[:, -1:]  # in order: the batch changes no bit

    changed = [len(job.changes) for job in standings]
    width = at.shape[2] - min(changed)
    coming = np.full((*weights.shape, width), np.inf)
    sizes, seconds = [], np.ones((len(standings), width))
    for row, (job, seen) in enumerate(zip(standings, changed, strict=True)):
        coming[row, :, : at.shape[2] - seen] = at[row, :, seen:]
        ahead = stages(job.spec, throughput, seen + width - 1)[seen + 1 :]
        sizes.append((job.batch_size, *ahead))
        seconds[row, : len(sizes[row])] = [
            _epoch_seconds(job, size, throughput) for size in sizes[row]
        ]
    ends = np.maximum.accumulate(np.clip(coming, done[:, :, None], end[:, :, None]), axis=2)
    begun = np.broadcast_to(done[:, :, None], (*weights.shape, 1))
    return Sequences(weights, np.diff(ends, axis=2, prepend=begun), seconds, tuple(sizes))


def _epoch_seconds(job: Standing, batch_size: int, throughput: Throughput) -> float:
    return epoch_seconds(throughput, job.spec, batch_size) * math.exp(job.slowness_at(batch_size))


def _candidates(
    standings: Sequence[Standing], throughput: Throughput, history: History, seed: int
) -> tuple[Floats, Floats]:
    """Changes of each job's candidates, and their posterior probabilities up to a factor.

    Returns:
        Epochs of the changes, shape (jobs, candidates, changes + 1), infinite where there is
        none, as in the last column; probabilities, shape (jobs, candidates).
    """
    mode, jobs = standings[0].spec.mode, len(standings)
    courses, course_epochs, at_the_top = history.of_mode(mode)
    rows = np.stack([history.relatives(job.spec) for job in standings])
    epochs = np.array([float(job.spec.epochs) for job in standings])[:, None]
    rungs = np.array(
        [
            len(reachable_batch_sizes(throughput, job.spec)) - 1 if mode is Mode.GNS else SPANS
            for job in standings
        ]
    )[:, None]
    known = courses.shape[1]
    width = max(known, int(rungs.max()), *(len(job.changes) for job in standings)) + 1
    at = np.full((jobs, len(WAYS), width), np.inf)
    at[:, :COURSES, :known] = courses[rows]
    shares = courses[rows] / course_epochs[rows][:, :, None]
    at[:, COURSES : 2 * COURSES, :known] = shares * epochs[:, :, None]
    if mode is Mode.GNS:
        at[np.arange(width) >= rungs[:, :, None] + np.zeros((1, len(WAYS), 1))] = np.inf
    # A course told by epochs is silent after its last one; one that reached the largest batch
    # size, after that; a draw, from the start.
    ended = course_epochs[rows]
    silent = np.zeros((jobs, len(WAYS)))
    silent[:, :COURSES] = np.where(ended < epochs, ended, np.inf)
    silent[:, COURSES : 2 * COURSES] = np.inf
    silent[:, : 2 * COURSES][np.tile(at_the_top[rows], 2)] = 0.0
    there = np.ones((jobs, len(WAYS)), bool)
    there[:, : 2 * COURSES] = np.tile(rows >= 0, 2)
    foretold = np.array(PRIOR) + history.foretold.get(mode, np.zeros(len(PRIOR)))
    counts = np.stack([there[:, way == WAYS].sum(axis=1) for way in range(len(PRIOR))], axis=1)
    weights = there * (foretold / np.maximum(counts, 1))[:, WAYS]
    return at, weights * _restate(standings, at, silent, rungs, seed)


def _restate(
    standings: Sequence[Standing], at: Floats, silent: Floats, rungs: Ints, seed: int
) -> Floats:
    """Hold candidates against what was seen, and draw from the prior what they do not tell.

    In the prior, where r more changes can come, none does with probability 1 / (r + 1), and
    else the next after a share of the epochs left that is Beta(1, r): the first of r + 1
    shares that are Dirichlet(1, …, 1). Given that it has not come yet, it comes after such
    a share of the epochs that are left now.

    Args:
        standings: Where the jobs stand.
        at: Epochs of the candidates' changes, shape (jobs, candidates, changes + 1); those
            that are drawn are filled in.
        silent: Epoch from which a candidate tells of no changes but those it has, and the
            prior holds; infinite if it tells all. Shape (jobs, candidates).
        rungs: Changes that a job can make, shape (jobs, 1).
        seed: Of the draws.

    Returns:
        Likelihood of each candidate, shape (jobs, candidates).
    """
    from scipy.special import ndtr  # a quarter of a second that readers of records need not wait

    done = np.array([job.done for job in standings])[:, None]
    epochs = np.array([float(job.spec.epochs) for job in standings])[:, None]
    changed = np.array([len(job.changes) for job in standings])[:, None]
    told, last = np.isfinite(at).sum(axis=2), at.shape[2] - 1
    off = EPOCHS_OFF + SHARE_OFF * epochs
    ends, cuts = _uniform(seed, last)
    likelihood: Floats = np.ones(silent.shape)
    before = np.zeros((len(standings), 1))
    for change in range(last + 1):
        free = (told <= change) & np.isfinite(silent)
        more = np.maximum(rungs - change, 0)
        begins = np.maximum(before, np.where(free, silent, 0.0))
        left = np.maximum(epochs - begins, 0.5)
        stays = 1.0 / (more + 1.0)
        if change < last:  # a change that was seen
            seen = changed > change
            epoch = np.array(
                [[job.changes[change] if len(job.changes) > change else 0] for job in standings]
            )
            z = (epoch - at[:, :, change]) / off
            near = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
            rest = np.clip((epochs - epoch) / left, 0.5 / epochs, 1.0)
            by_prior = (1.0 - stays) * more * _power(rest, np.maximum(more - 1.0, 0.0)) * off / left
            by_prior = np.where(free & (epoch >= begins), by_prior, near)
            density = (1.0 - UNLIKE) * by_prior + UNLIKE * off / epochs
            likelihood *= np.where(seen, density, 1.0)
        # The change that has not come yet.
        waits = (1.0 - stays) * _power(np.clip((epochs - done) / left, 0.0, 1.0), more)
        coming = ndtr((at[:, :, change] - done) / off)
        to_come = np.where(free, stays + waits, coming)
        late = UNLIKE * np.maximum(1.0 - done / epochs, UNLIKE)
        likelihood *= np.where(changed == change, (1.0 - UNLIKE) * to_come + late, 1.0)
        if change < last:
            after = np.maximum(begins, done)
            after = np.where(changed < change, np.maximum(at[:, :, change - 1], after), after)
            stop = np.where(changed == change, stays / (stays + waits), stays)
            comes = free & ~seen & (more > 0) & np.isfinite(after) & (ends[:, change] >= stop)
            share = 1.0 - np.exp(np.log1p(-cuts[:, change]) / np.maximum(more, 1))
            drawn = np.where(comes, after, 0.0) * (1.0 - share) + epochs * share
            at[:, :, change] = np.where(comes, drawn, at[:, :, change])
            before = np.where(seen, epoch, before)
    return likelihood


def _power(base: Floats, exponent: Floats) -> Floats:
    """Base to the exponent; unlike `**`, it gives the same bits in any batch."""
    return np.where(exponent > 0.0, np.exp(exponent * np.log(np.maximum(base, 1e-300))), 1.0)


@cache
def _uniform(seed: int, changes: int) -> tuple[Floats, Floats]:
    """Two tables of uniform numbers, shape (candidates, changes); a column never changes."""
    columns = [np.random.default_rng([seed, n]).random((2, len(WAYS))) for n in range(changes)]
    if not columns:
        return np.zeros((len(WAYS), 0)), np.zeros((len(WAYS), 0))
    ends, cuts = np.stack(columns, axis=2)
    return ends, cuts
