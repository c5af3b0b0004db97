"""Noise of speeds: the uncertainty of a job's mean time per step, learned from the run's rounds.

A forecast extrapolates a job's measured mean time per step. Two deviations are learned over all
jobs of a run: of a round from the mean of the job's earlier rounds, and of a job's first round from
the profile. Slow rounds tend to follow slow rounds. Rounds are therefore modelled as a stationary
autoregression of order 1 (Box and Jenkins, Time Series Analysis, 1970) about a mean of their job.

Steps are whole, so a round's speed is known only to within a step. Smaller deviations count as
zero: jobs that train evenly, as on a virtual clock, have no noise.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from predictor.belief import Belief
from predictor.posterior import PRIOR_SECONDS
from predictor.throughput import Throughput

STRONGEST = 0.95
"""Largest correlation of neighbouring rounds. A convention: a job has too few rounds to distinguish
it from 1."""

EXPECTED = 0.1
"""Prior size of the log of a round's time per step, relative to the profile or to earlier rounds.
Chosen by hand on two runs in containers."""

LEAST_VARIANCE = 1e-4
"""Lower bound on the variance of rounds' log times per step when it weighs the prior. A convention:
one per cent, squared."""


@dataclass(frozen=True, slots=True)
class SpeedNoise:
    """Sums over the rounds in which jobs trained, of logs of time per step.

    Attributes:
        rounds: Rounds of jobs measured before.
        seconds: Training time in these rounds.
        squares: Squares of the log of their time per step over the mean of the earlier rounds.
            Rounds within one step's rounding count 0.
        products: Products of this log and the previous round's, over the same mean.
        before: Squares of the previous round's log.
        jobs: First rounds of jobs at a batch size.
        offsets: Squares of the log of their time per step over the profile's. Rounds within one
            step's rounding count 0.
    """

    rounds: int = 0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    before: float = 0.0
    jobs: int = 0
    offsets: float = 0.0

    def after(
        self, rounds: Iterable[tuple[Belief, Belief]], throughput: Throughput
    ) -> "SpeedNoise":
        """Return the noise after further rounds: a job's belief before and after each."""
        count, seconds, squares, products = self.rounds, self.seconds, self.squares, self.products
        squares_before, jobs, offsets = self.before, self.jobs, self.offsets
        for before, now in rounds:
            found, spec = now.rounds, now.spec
            if not found or found is before.rounds or spec.timed:
                continue
            _, _, steps, took = found
            if steps < 2:
                continue
            time, unknown = took / steps, 1.0 / (steps - 1)
            if not before.rounds:
                size = now.batch_size
                rate = throughput.rate(spec, size, throughput.reference(spec))
                jobs += 1
                offsets += _beyond(math.log(time * rate), unknown) ** 2
                continue
            all_steps, all_seconds, last_steps, last_seconds = before.rounds
            if all_steps < 2:
                continue
            mean = all_seconds / all_steps
            off, was = math.log(time / mean), math.log(last_seconds / last_steps / mean)
            count += 1
            seconds += took
            squares += _beyond(off, unknown + 1.0 / (all_steps - 1)) ** 2
            products += off * was
            squares_before += was * was
        return SpeedNoise(count, seconds, squares, products, squares_before, jobs, offsets)

    @property
    def is_steady(self) -> bool:
        """Whether no round deviated by more than one step's rounding."""
        return self.offsets == self.squares == 0.0

    @property
    def prior_seconds(self) -> float:
        """Weight of the prior slowness of a job, in seconds of measured training.

        With this weight, a job's slowness is the posterior mean. The weight falls as jobs deviate
        more from the profile, and as they train more evenly.
        """
        if not self.offsets or not self.rounds:
            return PRIOR_SECONDS
        within = max(self.squares / self.rounds, LEAST_VARIANCE)
        between = self.offsets / self.jobs - within
        weight = within * self.seconds / self.rounds
        return weight / between if between * PRIOR_SECONDS > weight else PRIOR_SECONDS

    def spread(self, belief: Belief, remaining: float, *, settled: bool) -> float:
        """Return the standard deviation of the log of a job's mean time per step from now on.

        The variance has two parts: that of the mean of the remaining rounds about the job's own
        mean, and the uncertainty of the job's mean, given the profile and the measured rounds. It
        is 0 if no round deviated by more than one step's rounding.

        `remaining` is the residual run time in seconds. Unless the job is `settled`, measurements
        are ignored: they say little about other batch sizes.
        """
        if self.is_steady:
            return 0.0
        size = belief.batch_size
        measured = sum([pace.seconds for pace in belief.paces if pace.batch_size == size])
        own = self.offsets / max(self.jobs, 1)
        ahead = self._of_mean(remaining)
        if measured and settled:
            learnt = self._of_mean(measured)
            own = own * learnt / (own + learnt) if learnt else 0.0
        return math.sqrt(own + ahead)

    def _of_mean(self, seconds: float) -> float:
        """Return the variance of the mean of a job's rounds over this training time."""
        if not self.rounds:
            return 0.0
        of_round, rounds = self.squares / self.rounds, seconds * self.rounds / self.seconds
        if rounds <= 1.0:
            return of_round
        alike = min(max(self.products / self.before, 0.0), STRONGEST) if self.before else 0.0
        unlike = 1.0 - alike
        decay = 1.0 - math.exp(rounds * math.log(alike)) if alike else 1.0
        return of_round * (1.0 + alike - 2.0 * alike * decay / unlike / rounds) / (unlike * rounds)


def _beyond(log: float, unknown: float) -> float:
    """Return a log of times per step; 0 if one step more or less explains it."""
    return log if abs(log) > unknown else 0.0


STEADY = SpeedNoise()
"""Speeds that do not vary."""


def expect_noise(round_seconds: float) -> SpeedNoise:
    """Return the prior before any round in containers, equivalent to one job and one round."""
    square = EXPECTED**2
    return SpeedNoise(1, round_seconds, squares=square, jobs=1, offsets=square)
