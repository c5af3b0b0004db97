"""Exponential back-off of jobs whose containers fail, and the end of retries."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from containers.runtime import ContainerEvent, EventKind, Observation


@dataclass(frozen=True, slots=True)
class Patience:
    """Retries of a job after failures of one kind.

    Attributes:
        tries: Failures, without a completed epoch between them, after which the job is given up.
        longest_wait: Maximum back-off in rounds.
    """

    tries: float
    longest_wait: float


PATIENCE: Mapping[EventKind, Patience] = {
    EventKind.CRASHED: Patience(tries=5, longest_wait=15),
    EventKind.STOPPED: Patience(tries=10, longest_wait=3),
    EventKind.UNSTARTED: Patience(tries=10, longest_wait=15),
    EventKind.LOST: Patience(tries=math.inf, longest_wait=3),
}
"""Patience by kind of failure. A job that its nodes cannot start gets some 90 rounds, in which its
image or secret can be supplied. Losses are the host's fault, so jobs wait for its repair. If a
container was stopped, its exit code does not tell whether the job or an operator did it. The job
then gets twice the tries of a crash, over some 30 rounds, in which the host can be repaired.
Engineering choices; no sweep is recorded."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """Jobs whose containers failed since their last completed epoch.

    Attributes:
        failures: Failures since then, by job id and kind.
        waits: End of the back-off on the run's clock in seconds, by job id. It lasts 0, 1, 3,
            7, … rounds, at most `Patience.longest_wait`.
    """

    failures: Mapping[tuple[int, EventKind], int] = field(default_factory=dict)
    waits: Mapping[int, float] = field(default_factory=dict)

    def after(self, seen: Observation, round_seconds: float) -> "BackOff":
        """Return the back-off after a round's observation, without ended jobs."""
        reported = {report.job_id for report in seen.reports}
        failures = {key: count for key, count in self.failures.items() if key[0] not in reported}
        waits = dict(self.waits)
        for event in seen.finished:
            if event.kind not in PATIENCE:
                continue
            key = event.job_id, event.kind
            failures[key] = failures.get(key, 0) + 1
            rounds = min(2 ** (failures[key] - 1) - 1, PATIENCE[event.kind].longest_wait)
            waits[event.job_id] = seen.clock_seconds + rounds * round_seconds
        ended = {*seen.ended}
        return BackOff(
            {key: count for key, count in failures.items() if key[0] not in ended},
            {job_id: until for job_id, until in waits.items() if job_id not in ended},
        )

    def without(self, job_ids: Collection[int]) -> "BackOff":
        """Return the back-off without the failures of some jobs."""
        if not job_ids:
            return self
        return BackOff(
            {key: count for key, count in self.failures.items() if key[0] not in job_ids},
            {job_id: until for job_id, until in self.waits.items() if job_id not in job_ids},
        )

    def is_ready(self, job_id: int, clock_seconds: float) -> bool:
        """Return whether a job's back-off is over."""
        return self.waits.get(job_id, clock_seconds) <= clock_seconds

    def give_up(
        self, seen: Observation, retries: Mapping[int, int] = MappingProxyType({})
    ) -> Observation:
        """Add the end of jobs that failed too often to an observation.

        `retries` has the number of retries after crashes by job id, for jobs that declare it.
        """

        def tries(event: ContainerEvent) -> float:
            asked = retries.get(event.job_id) if event.kind is EventKind.CRASHED else None
            return PATIENCE[event.kind].tries if asked is None else asked + 1

        spared = {report.job_id for report in seen.reports} | {*seen.ended}
        ends = tuple(
            ContainerEvent(
                event.job_id,
                EventKind.FAILED,
                event.at_seconds,
                (),
                f"{event.kind} {_times(count)}: {event.reason}",
            )
            for event in seen.finished
            if event.kind in PATIENCE and event.job_id not in spared
            for count in [self.failures.get((event.job_id, event.kind), 0) + 1]
            if count >= tries(event)
        )
        return replace(seen, finished=(*seen.finished, *ends)) if ends else seen


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times in a row, the last time"
