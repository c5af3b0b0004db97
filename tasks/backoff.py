"""Exponential back-off of jobs whose containers crash or are lost, and its limit."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from containers.runtime import ContainerEvent, EventKind, Observation

CRASHES = 5
"""Consecutive crashes, without a completed epoch between them, after which a job fails. An
engineering choice; no sweep is recorded."""

LONGEST_WAIT = 3
"""Maximum back-off in rounds of a job whose containers are lost repeatedly: losses are the host's
fault. An engineering choice; no sweep is recorded."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """Jobs whose containers failed since their last completed epoch.

    Attributes:
        crashes: Crashes since then, by job id.
        losses: Losses since then, by job id.
        waits: End of the back-off on the run's clock in seconds, by job id. It lasts 0, 1, 3,
            7, … rounds; after losses at most `LONGEST_WAIT`.
    """

    crashes: Mapping[int, int] = field(default_factory=dict)
    losses: Mapping[int, int] = field(default_factory=dict)
    waits: Mapping[int, float] = field(default_factory=dict)

    def after(self, seen: Observation, round_seconds: float) -> "BackOff":
        """The back-off updated with a round's observation; ended jobs are removed.

        Args:
            seen: What the runtime reported.
            round_seconds: Length of a round.
        """
        reported = {report.job_id for report in seen.reports}
        crashes = {job: count for job, count in self.crashes.items() if job not in reported}
        losses = {job: count for job, count in self.losses.items() if job not in reported}
        waits = dict(self.waits)
        for event in seen.finished:
            if event.kind not in (EventKind.CRASHED, EventKind.LOST):
                continue
            lost = event.kind is EventKind.LOST
            counts = losses if lost else crashes
            count = counts[event.job_id] = counts.get(event.job_id, 0) + 1
            rounds = 2 ** (count - 1) - 1
            if lost:
                rounds = min(rounds, LONGEST_WAIT)
            waits[event.job_id] = seen.clock_seconds + rounds * round_seconds
        for event in seen.finished:
            if event.ends_job:
                for known in (crashes, losses, waits):
                    known.pop(event.job_id, None)
        return BackOff(crashes, losses, waits)

    def ready(self, job_id: int, clock_seconds: float) -> bool:
        """Whether a job's back-off is over."""
        return self.waits.get(job_id, clock_seconds) <= clock_seconds

    def given_up(self, seen: Observation) -> Observation:
        """The observation, with the failure of jobs that reached the limit of crashes."""
        spared = {report.job_id for report in seen.reports} | {*seen.ended}
        ends = tuple(
            ContainerEvent(
                event.job_id,
                EventKind.FAILED,
                event.at_seconds,
                (),
                f"crashed {CRASHES} times in a row, the last time: {event.reason}",
            )
            for event in seen.finished
            if event.kind is EventKind.CRASHED
            and event.job_id not in spared
            and self.crashes.get(event.job_id, 0) + 1 >= CRASHES
        )
        return replace(seen, finished=(*seen.finished, *ends)) if ends else seen
