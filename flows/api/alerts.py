"""Alerts of a service: late rounds, failed nodes, unfair treatment, a stuck inbox.

An alert is reported once, when its condition begins. Reported alerts that still stand survive a
restart of the watching process. The scheduler does not watch itself, so that its hanging is
reported, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from flows.api.history import ServiceHistory, predict_last_round
from warehouse.analytics.definitions import UNFAIR_RHO

PATIENT_SECONDS = 30.0
"""Delay of a round or an entry, beyond the usual, that causes no alert: a scheduler restarts within
it. An engineering choice."""


class AlertKind(StrEnum):
    """What went wrong."""

    LATE = "round.late"
    DOWN = "node.down"
    UNFAIR = "job.unfair"
    STUCK = "inbox.stuck"


Known = frozenset[tuple[AlertKind, int | None]]
"""Reported alerts that still stand: their kinds, each with its round, node or job, if any."""


@dataclass(frozen=True)
class Alert:
    """An alert.

    Attributes:
        round: The late round, for `LATE`; else the last round, -1 before the first.
        job: The job, for `UNFAIR`.
        node: The node, for `DOWN`.
    """

    kind: AlertKind
    run: str
    round: int
    text: str
    job: int | None = None
    node: int | None = None


class Watch:
    """Detects new alerts; to be called at intervals.

    `speed` is seconds of the run per second, `now` a monotonic clock in seconds. `known` has the
    reported alerts that still stand.
    """

    def __init__(self, run: str, speed: float, now: float, known: Known = frozenset()) -> None:
        self._run, self._speed = run, speed
        self._since = self._new_at = now
        self._before: ServiceHistory | None = None
        self._unfair: list[Alert] = []
        self.known = known

    def look(
        self, history: ServiceHistory, lag_seconds: float, now: float, paused: bool = False
    ) -> list[Alert]:
        """Return the alerts that are new since the last call.

        Args:
            history: The service's history.
            lag_seconds: Age of the oldest entry that no round has taken in; 0 if none waits.
            now: Seconds of the watch's clock.
            paused: Whether users have paused the service, which then misses no round.
        """
        before = self._before or history
        if paused:
            lag_seconds, self._new_at = 0.0, now
        if history is not self._before:
            self._before, self._new_at = history, now
            self._unfair = [*self._treated_unfairly(history)]
        usual = 2.0 * history.start.header.settings.round_seconds / self._speed
        patience = usual + PATIENT_SECONDS
        found = [
            *self._late(before, history, now - self._new_at, patience),
            *self._down(history),
            *self._unfair,
            *self._stuck(history, min(lag_seconds, now - self._since), patience),
        ]
        current = {_key(alert): alert for alert in found}
        new = [alert for key, alert in current.items() if key not in self.known]
        missing = AlertKind.LATE, history.state.round
        unseen = {
            missing: bool(history.state.leases),
            (AlertKind.STUCK, None): lag_seconds > patience,
        }
        # A new watch cannot tell yet whether these still stand, so it must not report them again.
        self.known = frozenset(current) | {key for key in self.known if unseen.get(key)}
        return new

    def _late(
        self, before: ServiceHistory, history: ServiceHistory, silent: float, patience: float
    ) -> Iterator[Alert]:
        """Yield an alert about late rounds, or about a missing round while jobs run."""
        more, state = history.position.late - before.position.late, history.state
        if more > 0:
            which = f"round {state.round - 1}" if more == 1 else f"{more} rounds"
            text = f"{which} began a tenth of a round or more after its time"
            yield Alert(AlertKind.LATE, self._run, state.round - 1, text)
        elif state.leases and silent > patience:
            text = f"round {state.round} is missing: nothing was recorded for {silent:.0f} s"
            yield Alert(AlertKind.LATE, self._run, state.round, text)

    def _down(self, history: ServiceHistory) -> Iterator[Alert]:
        """Yield alerts about nodes that are out of service without a command."""
        if not (last := history.last):
            return
        problems = {problem.node: problem.problem for problem in last.problems}
        for node in sorted({*last.solve.drained} - history.state.orders.out_of_service):
            text = f"node {node} is out of service: {problems.get(node, 'no reason is known')}"
            yield Alert(AlertKind.DOWN, self._run, last.round, text, node=node)

    def _treated_unfairly(self, history: ServiceHistory) -> Iterator[Alert]:
        """Yield alerts about jobs that end unfairly late even if they run from now on."""
        if not history.last:
            return
        run, this = predict_last_round(self._run, history)
        clock = history.last.clock_seconds
        ends = {job: clock + a.run_time(a.own).remaining for job, a in this.active.items()}
        rho = this.state.measure_rho(run.header, ends)  # jobs that are held back have none
        for job_id, at_best in rho.items():
            if at_best > UNFAIR_RHO:
                name = this.active[job_id].spec.name
                about = f"job {job_id}" + (f" ({name})" if name else "")
                text = f"{about} will have ρ of {at_best:.2f} at best"
                yield Alert(AlertKind.UNFAIR, self._run, history.last.round, text, job=job_id)

    def _stuck(self, history: ServiceHistory, waited: float, patience: float) -> Iterator[Alert]:
        """Yield an alert if no round takes in the inbox's entries."""
        if waited > patience:
            text = f"the oldest entry of the inbox has waited for {waited:.0f} s"
            yield Alert(AlertKind.STUCK, self._run, history.state.round - 1, text)


def _key(alert: Alert) -> tuple[AlertKind, int | None]:
    """Return what identifies an alert: its kind, and its round, node or job."""
    about = {AlertKind.LATE: alert.round, AlertKind.DOWN: alert.node, AlertKind.UNFAIR: alert.job}
    return alert.kind, about.get(alert.kind)
