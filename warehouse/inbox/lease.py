"""The lease of a service: the database decides which process may schedule.

Each holder has a *fencing token*, one more than the previous holder's (Gray and Cheriton, SOSP '89;
Kleppmann, Designing Data-Intensive Applications, chapter 8). A process that was suspended for
longer than its lease finds a later token, and writes nothing more.

Renewals do not wait for submissions. SQLite allows one writer per file, so the lease has its own
file; in Postgres it has its own lock.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sqlalchemy import Connection, delete, func, insert, select

from predictor.errors import WarehouseBusy
from warehouse.inbox.database import Database
from warehouse.inbox.tables import SERVICE

LEASE_SECONDS = 10.0
"""Time after which a lease ends unless renewed. An engineering choice: far below a round, but
longer than a busy machine delays a process."""

FILE = Path("inbox") / "lease.sqlite"
"""The SQLite file in the warehouse."""

LOCK = 0x5AFF
"""Advisory lock of Postgres, held while the lease changes; it must differ from that in
`database.py`."""


class TakenOver(WarehouseBusy):
    """Another process holds the lease."""


@dataclass(frozen=True, slots=True)
class ServiceLease:
    """The lease in the database.

    Attributes:
        token: Fencing token, from 1.
        pid: Process of the holder on that machine.
        until: End of the lease on the database's clock, in seconds since the epoch; 0 once it was
            given back, which holds whatever becomes of that clock.
        given_back: When it was given back, on that clock; 0 before.
    """

    token: int
    host: str
    pid: int
    until: float
    given_back: float = 0.0

    @property
    def here(self) -> bool:
        """Whether the holder is, or was, a process of this machine."""
        return self.host == socket.gethostname()


class Leases:
    """The lease of a service, which ends after `seconds` unless renewed; for `url` see `Database`.

    Raises:
        TakenOver: Another process holds the lease.
        WarehouseBusy: The database does not answer.
    """

    def __init__(self, warehouse: Path, url: str = "", seconds: float = LEASE_SECONDS) -> None:
        self._database, self.seconds = Database(warehouse / FILE, url, LOCK), seconds

    def last(self) -> tuple[ServiceLease | None, bool]:
        """Return the last lease, and whether it has ended."""

        def work(connection: Connection) -> tuple[ServiceLease | None, bool]:
            lease = _lease(connection)
            return lease, lease is None or lease.until <= _now(connection)

        return self._database.read(work)

    def away_seconds(self) -> float | None:
        """Return for how long no process has held the lease; None if none ever did."""

        def work(connection: Connection) -> float | None:
            lease = _lease(connection)
            since = max(lease.until, lease.given_back) if lease else None
            return since and max(_now(connection) - since, 0.0)

        return self._database.read(work)

    def take(self, *, alone: bool) -> int | None:
        """Take the lease and return its token, or None if another process holds it.

        With `alone`, a holder on this machine is known to have ended.
        """

        def work(connection: Connection) -> int | None:
            before, now = _lease(connection), _now(connection)
            if before and before.until > now and not (alone and before.here):
                return None
            token = before.token + 1 if before else 1
            host, until = socket.gethostname(), now + self.seconds
            _write(connection, ServiceLease(token, host, os.getpid(), until))
            return token

        return self._database.write(work)

    def renew(self, token: int) -> None:
        """Extend the lease."""
        self._change(token, lambda lease, now: replace(lease, until=now + self.seconds))

    def end(self, token: int) -> None:
        """Give the lease back."""
        # The ended lease stays in the database, so that tokens keep increasing.
        self._change(token, lambda lease, now: replace(lease, until=0.0, given_back=now))

    def check(self, token: int) -> None:
        """Refuse a token that is not the last one."""
        _check_holder(self._database.read(_lease), token)

    def _change(self, token: int, change: Callable[[ServiceLease, float], ServiceLease]) -> None:
        def work(connection: Connection) -> ServiceLease | None:
            lease = _lease(connection)
            if lease is not None and lease.token == token:
                _write(connection, change(lease, _now(connection)))
            return lease

        _check_holder(self._database.write(work), token)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()


def _check_holder(lease: ServiceLease | None, token: int) -> None:
    if lease is None or lease.token != token:
        who = f"process {lease.pid} of {lease.host}" if lease else "another process"
        raise TakenOver("service", f"{who} has taken over", "see shockwave status")


def _lease(connection: Connection) -> ServiceLease | None:
    text = connection.scalar(select(SERVICE.c.value).where(SERVICE.c.name == "lease"))
    return ServiceLease(**json.loads(text)) if text else None


def _write(connection: Connection, lease: ServiceLease) -> None:
    connection.execute(delete(SERVICE).where(SERVICE.c.name == "lease"))
    connection.execute(insert(SERVICE), {"name": "lease", "value": json.dumps(asdict(lease))})


def _now(connection: Connection) -> float:
    """Return the time of the database's machine; the clocks of holders can disagree."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0.0)
