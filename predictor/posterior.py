"""What is believed about a job's regimes: a Dirichlet posterior with restatement.

A job of N epochs visits a known set of K batch sizes for unknown shares of its epochs
(Shockwave, NSDI '23, section 5). The shares have a Dirichlet prior of total mass N,
N / K for each batch size. Only completed epochs, and which regime is under way, update
it, and what they show of a regime *restates* how much of it is left, because regimes
come in an order:

- a regime not met yet keeps its prior mass;
- the regime under way has its prior less what was seen of it left, but never less than
  was seen: the longer it has held, the longer it is expected to go on;
- a regime that the job has left is over, and its mass is what was seen of it; the rest
  of the prior is even over the regimes that GNS can still reach (it never shrinks);
- once a job has come back to a regime (Accordion alternates), all it has visited are
  expected to go on in the proportion seen.

The epochs still to come are shared in proportion to the mass left.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from predictor.job import EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.profile import Profile


@dataclass(frozen=True, slots=True)
class Belief:
    """All that was observed of a job, as a fold over its reports.

    Attributes:
        spec: What was declared.
        observed: Completed regimes and the one under way, in order.
        progress: Where the job stood when it last ran; nowhere by default.
    """

    spec: JobSpec
    observed: tuple[Regime, ...] = ()
    progress: JobProgress | None = None

    @property
    def fraction(self) -> float:
        """Part of the epoch under way that is done, in [0, 1]."""
        return self.progress.fraction if self.progress else 0.0

    @property
    def batch_size(self) -> int:
        """Batch size of the epoch under way; at first the declared one."""
        return self.progress.batch_size if self.progress else self.spec.batch_size

    @property
    def run_seconds(self) -> float:
        """Time spent training so far, restarts excluded."""
        return self.progress.run_seconds if self.progress else 0.0

    @property
    def steps_left(self) -> int:
        """Training steps left at the batch size under way; at first all declared ones."""
        return self.progress.steps_left if self.progress else self.spec.total_steps

    @property
    def epochs_done(self) -> float:
        """Completed epochs, the done part of the one under way included."""
        return sum(regime.epochs for regime in self.observed) + self.fraction

    def after(self, reports: Sequence[EpochReport], progress: JobProgress | None) -> "Belief":
        """The belief after more epochs were reported.

        Args:
            reports: Reports on this job, in order.
            progress: Where the job stands now, if it ran.
        """
        observed = list(self.observed)
        for report in reports:
            if observed and observed[-1].batch_size == report.batch_size:
                observed[-1] = Regime(report.batch_size, observed[-1].epochs + report.epochs)
            else:
                observed.append(Regime(report.batch_size, report.epochs))
        return Belief(self.spec, tuple(observed), progress or self.progress)


def remaining_regimes(belief: Belief, profile: Profile) -> tuple[Regime, ...]:
    """Epochs that each regime is still expected to hold: the posterior mean.

    Args:
        belief: What was observed.
        profile: Says which batch sizes can run at all.

    Returns:
        The regime under way first, then the others in ascending order of batch size;
        fractional epochs that sum to those not completed (the one under way counts in
        full; a job that still runs has at least that one left).
    """
    spec, current = belief.spec, belief.batch_size
    seen: Counter[int] = Counter()
    visits: Counter[int] = Counter()
    for regime in belief.observed:
        seen[regime.batch_size] += int(regime.epochs)
        visits[regime.batch_size] += 1
    if not belief.observed or belief.observed[-1].batch_size != current:
        visits[current] += 1
    sizes = profile.reachable_batch_sizes(spec)
    if spec.mode is Mode.GNS:
        sizes = tuple(size for size in sizes if size > current)
    ahead = tuple(dict.fromkeys((current, *sizes)))
    over = sum(epochs for size, epochs in seen.items() if size not in ahead)
    prior = max(spec.epochs - over, 0) / len(ahead)
    alternates = max(visits.values()) > 1

    def mass_left(size: int) -> float:
        if size not in visits:
            return prior
        if alternates:
            return max(seen[size], 1.0)
        return max(prior - seen[size], seen[size], 1.0) if size == current else 0.0

    mass = {size: mass_left(size) for size in ahead}
    left = max(spec.epochs - seen.total(), 1)
    scale = left / sum(mass.values())
    return tuple(Regime(size, share * scale) for size, share in mass.items() if share > 0.0)
