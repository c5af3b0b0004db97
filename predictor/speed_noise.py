"""Variability of speeds: uncertainty of a job's mean time per step, learnt from its run's rounds.

A forecast extrapolates a job's measured mean time per step. Learnt over all jobs of a run are the
deviation of each round from the mean of the job's rounds before it, and that of a job's first round
from the profile. A slow round is likely to be followed by another: rounds are modelled as a
stationary autoregression of order 1 (Box and Jenkins, Time Series Analysis, 1970), about a mean of
each job's own.

Steps are whole, so a round's speed is known to a step at best. Only deviations beyond that count:
jobs that train as evenly as on a virtual clock do not waver at all.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from predictor.belief import Belief
from predictor.posterior import PRIOR_SECONDS
from predictor.throughput import Throughput

STRONGEST = 0.95
"""Largest correlation of neighbouring rounds. A convention: the rounds of a job are too few
to distinguish it from 1."""

EXPECTED = 0.1
"""Expected size of the log of a time per step over the profile's, and over that of the rounds
before, where nothing was measured. Chosen by hand on two runs in containers."""

LEAST_VARIANCE = 1e-4
"""Least variance of the logs of rounds' times per step that the prior is weighed by. A
convention: one per cent, squared."""


@dataclass(frozen=True, slots=True)
class SpeedNoise:
    """Sums over the rounds in which jobs trained, of logs of time per step.

    Attributes:
        rounds: Rounds of jobs that had been measured before.
        seconds: Training time in these rounds.
        squares: Squares of the log of their time per step over the mean of the rounds before; 0 of
            those that whole steps explain.
        products: Products of that log and of the round before's, over the same mean.
        before: Squares of the latter.
        jobs: First rounds of jobs at a batch size.
        offsets: Squares of the log of their time per step over the profile's; 0 of those that
            whole steps explain.
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
        """The noise with further rounds of jobs.

        Args:
            rounds: The belief about each job before a round, and that after it.
            throughput: Throughput model.
        """
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
    def prior_seconds(self) -> float:
        """Weight of the prior slowness of a job, in seconds of measured training.

        It makes a job's slowness the posterior mean: the farther jobs were from the profile, and
        the more evenly they train, the less it is.
        """
        if not self.offsets or not self.rounds:
            return PRIOR_SECONDS
        within = max(self.squares / self.rounds, LEAST_VARIANCE)
        between = self.offsets / self.jobs - within
        weight = within * self.seconds / self.rounds
        return weight / between if between * PRIOR_SECONDS > weight else PRIOR_SECONDS

    def spread(self, belief: Belief, remaining: float, *, settled: bool) -> float:
        """Standard deviation of the log of a job's mean time per step in what is left of it.

        The variance has two parts: that of the mean of the rounds left about the job's own mean,
        and the uncertainty of the latter, given the profile and the measured rounds. It is
        0 where no round was off by more than whole steps explain.

        Args:
            belief: What is believed of the job.
            remaining: Its residual run time, in seconds.
            settled: Whether it keeps its batch size; what was measured says little of others.
        """
        if self.offsets == self.squares == 0.0:
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
        """Variance of the mean of the rounds in which a job trains for so long."""
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
    """A log of times per step; 0 if a step more or less explains it."""
    return log if abs(log) > unknown else 0.0


STEADY = SpeedNoise()
"""Speeds that do not vary."""


def expect_noise(round_seconds: float) -> SpeedNoise:
    """The prior before any round in containers: as after one job and one round."""
    square = EXPECTED**2
    return SpeedNoise(1, round_seconds, squares=square, jobs=1, offsets=square)
