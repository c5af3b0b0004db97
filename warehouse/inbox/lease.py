"""The lease of a service: which process may schedule it, in a database.

Each holder has a *fencing token*, one more than that of the holder before (Gray and Cheriton, SOSP
'89; Kleppmann, Designing Data-Intensive Applications, chapter 8). A process that was stopped for
longer than its lease finds a later token there, and writes nothing more.

A renewal never waits for submissions: in SQLite, which has a single writer per file, the lease has
a file of its own, in Postgres a lock.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy import Connection, delete, func, insert, select

from predictor.errors import WarehouseBusy
from warehouse.inbox.database import Database
from warehouse.inbox.inbox import FILE as INBOX
from warehouse.inbox.tables import SERVICE

LEASE_SECONDS = 10.0
"""Time for which a lease holds without being renewed. An engineering choice: far below a round, and
above what a busy machine makes a process wait."""


FILE = Path("inbox") / "lease.sqlite"
"""The SQLite file in the warehouse."""

LOCK = 0x5AFF
"""Advisory lock of Postgres, held while the lease is changed: any other than the one in
`database.py`."""


class TakenOver(WarehouseBusy):
    """Another process has the lease."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it is in the database.

    Attributes:
        token: The fencing token, from 1.
        host: Machine of the holder.
        pid: The holder's process there.
        until: When it ends, on the database's clock in seconds since the epoch.
    """

    token: int
    host: str
    pid: int
    until: float

    @property
    def here(self) -> bool:
        """Whether its holder is, or was, a process of this machine."""
        return self.host == socket.gethostname()


class Leases:
    """The lease of a service.

    Args:
        warehouse: The service's warehouse.
        url: See `Database`.
        seconds: Time for which it holds without being renewed.
    """

    def __init__(self, warehouse: Path, url: str = "", seconds: float = LEASE_SECONDS) -> None:
        self._database, self.seconds = Database(warehouse / FILE, url, LOCK), seconds
        self._inbox = warehouse / INBOX

    def found(self) -> tuple[Lease | None, bool]:
        """The last lease, and whether it has ended."""

        def work(connection: Connection) -> tuple[Lease | None, bool]:
            lease = _lease(connection)
            return lease, lease is None or lease.until <= _now(connection)

        return self._database.read(work)

    def take(self, *, alone: bool) -> int | None:
        """Take the lease; returns its token, or None if another process has it.

        Args:
            alone: Whether it is known that a holder on this machine has ended.

        Raises:
            WarehouseBusy: The database does not answer.
        """

        def work(connection: Connection) -> int | None:
            before, now = _lease(connection) or self._moved(connection), _now(connection)
            if before and before.until > now and not (alone and before.here):
                return None
            token = before.token + 1 if before else 1
            _write(connection, Lease(token, socket.gethostname(), os.getpid(), now + self.seconds))
            return token

        return self._database.write(work)

    def _moved(self, connection: Connection) -> Lease | None:
        """The lease that an earlier version had in the inbox's file, now in its own.

        A process of that version looks for it there, finds none, and writes nothing more.
        """
        if connection.dialect.name != "sqlite" or not self._inbox.exists():
            return None
        with closing(Database(self._inbox)) as inbox:
            lease = inbox.write(_taken_out)
        if lease:
            _write(connection, lease)
        return lease

    def renew(self, token: int) -> None:
        """Extend the lease.

        Raises:
            TakenOver: Another process has it.
            WarehouseBusy: The database does not answer.
        """
        self._as_holder(
            token,
            lambda connection, lease: _write(
                connection,
                Lease(token, lease.host, lease.pid, _now(connection) + self.seconds),
            ),
        )

    def end(self, token: int) -> None:
        """Give the lease back.

        Raises:
            TakenOver: Another process has it.
            WarehouseBusy: The database does not answer.
        """
        self._as_holder(
            token,
            lambda connection, lease: _write(connection, Lease(token, lease.host, lease.pid, 0.0)),
        )

    def check(self, token: int) -> None:
        """Refuse to go on with a token that is not the last one.

        Raises:
            TakenOver: Another process has the lease.
            WarehouseBusy: The database does not answer.
        """
        lease = self._database.read(_lease)
        if lease is None or lease.token != token:
            raise _taken_over(lease)

    def _as_holder(self, token: int, work: Callable[[Connection, Lease], None]) -> None:
        def writing(connection: Connection) -> Lease | None:
            lease = _lease(connection)
            if lease and lease.token == token:
                work(connection, lease)
            return lease

        lease = self._database.write(writing)
        if lease is None or lease.token != token:
            raise _taken_over(lease)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()


def _taken_over(lease: Lease | None) -> TakenOver:
    who = f"process {lease.pid} of {lease.host}" if lease else "another process"
    return TakenOver("service", f"{who} has taken over", "see shockwave status")


def _lease(connection: Connection) -> Lease | None:
    text = connection.scalar(select(SERVICE.c.value).where(SERVICE.c.name == "lease"))
    return Lease(**json.loads(text)) if text else None


def _taken_out(connection: Connection) -> Lease | None:
    lease = _lease(connection)
    connection.execute(delete(SERVICE).where(SERVICE.c.name == "lease"))
    return lease


def _write(connection: Connection, lease: Lease) -> None:
    connection.execute(delete(SERVICE).where(SERVICE.c.name == "lease"))
    connection.execute(insert(SERVICE), {"name": "lease", "value": json.dumps(asdict(lease))})


def _now(connection: Connection) -> float:
    """The database's time: that of its machine, as holders may be on several."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0.0)
