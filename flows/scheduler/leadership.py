"""Leader election: a warehouse's leader holds its file lock and its lease.

The file lock excludes other processes on the same machine and ends with its process. The lease in
the database excludes other machines and detects a leader that hangs.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from flows.scheduler.process import announce, find_service, is_locked
from predictor.errors import WarehouseBusy
from warehouse.inbox.lease import LEASE_SECONDS, Leases, TakenOver

WAIT_SECONDS = 0.25
"""Poll interval of a standby. An engineering choice."""

TOKEN = "SHOCKWAVE_FENCING_TOKEN"
"""Environment variable that passes the leader's fencing token to the scheduler."""


@dataclass(frozen=True)
class LeaseSite:
    """Where a service leads: its warehouse, its database, and its announced address.

    Attributes:
        database_url: See `warehouse.inbox.database.Database`.
        url: Address of the UI.
        speed: Seconds of the run per second.
        lease_seconds: Time after which an unrenewed lease ends.
    """

    warehouse: Path
    database_url: str
    url: str
    speed: float
    lease_seconds: float = LEASE_SECONDS


class Leader:
    """The process that holds lock and lease; a thread renews the lease.

    While the database does not answer, no other process can take over, so renewals are retried.

    Attributes:
        token: Its fencing token.
        announce: Announces that the service is ready, and which of its processes are down.
    """

    def __init__(
        self, leases: Leases, token: int, announce: Callable[[Sequence[str]], None]
    ) -> None:
        self.token, self.announce = token, announce
        self._leases, self._ended = leases, Event()
        self._lost: TakenOver | None = None
        self._thread = Thread(target=self._renew, daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        while not self._ended.wait(self._leases.seconds / 3.0):  # a renewal may fail twice
            try:
                self._leases.renew(self.token)
            except TakenOver as error:
                self._lost = error
                return
            except WarehouseBusy:
                continue

    def check(self) -> None:
        """Raise `TakenOver` if another process has taken the lease."""
        if self._lost:
            raise self._lost

    def end(self) -> None:
        """Return the lease."""
        self._ended.set()
        self._thread.join()
        with suppress(WarehouseBusy):  # another process may have taken over
            self._leases.end(self.token)


@contextmanager
def lead(
    place: LeaseSite, stop: Event, report: Callable[[str], None], *, standby: bool = False
) -> Iterator[Leader | None]:
    """Lead a warehouse within the context; yield None if `stop` is set first.

    Args:
        place: The service.
        stop: Set to stop waiting.
        report: Called with each line of status.
        standby: Whether to wait until no other process leads.

    Raises:
        WarehouseBusy: Another process leads.
    """
    leases = Leases(place.warehouse, place.database_url, place.lease_seconds)
    try:
        if standby and not _wait_to_lead(place, leases, stop, report):
            yield None
            return
        with announce(place.warehouse, place.url, place.speed) as announced:
            deadline = monotonic() + 2.0 * leases.seconds  # a dead leader's lease must expire first
            while (token := leases.take(alone=True)) is None:
                if monotonic() > deadline or stop.wait(WAIT_SECONDS):
                    other, _ = leases.last()
                    problem = f"is served by process {other.pid} of {other.host}" if other else ""
                    raise WarehouseBusy(str(place.warehouse), problem, "stop it, or use --standby")
            leader = Leader(leases, token, announced)
            try:
                yield leader
            finally:
                leader.end()
    finally:
        leases.close()


def _wait_to_lead(
    place: LeaseSite, leases: Leases, stop: Event, report: Callable[[str], None]
) -> bool:
    """Wait until lock and lease are free; kill a local holder that no longer renews its lease."""
    report(f"Standing by for the service of {place.warehouse}.")
    while not stop.wait(WAIT_SECONDS):
        lease, ended = leases.last()
        taken = is_locked(place.warehouse)
        holder = find_service(place.warehouse) if taken and lease and ended and lease.here else None
        if holder and lease and holder.pid == lease.pid:
            report(f"Process {lease.pid} does not renew its lease; killing it.")
            with suppress(ProcessLookupError):
                os.kill(lease.pid, signal.SIGKILL)
        # A local lease whose holder lost the lock belongs to a dead process.
        elif not taken and (lease is None or ended or lease.here):
            report("Taking over.")
            return True
    return False
