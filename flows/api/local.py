"""The front desk of a service on its own machine: its user is an operator."""

import time
from collections.abc import Callable, Iterator, Mapping
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.api.authorization import AuthorizedApi, make_receipt
from flows.api.commands import ServiceCommands
from flows.api.front import FrontDesk
from flows.api.rows import Accepted, EventRow, JobRow, NodeRow, QueueRow, Status
from flows.api.submission import NodeRequest, TenantUpdate, parse_job
from flows.runs.toml_file import checked
from tasks.commands import CommandKind
from warehouse.inbox.tokens import Role, Token

if TYPE_CHECKING:
    from flows.api.job_history import JobHistory, PriceRow, TenantRow
    from flows.api.whatif import ForecastRow
    from flows.explain.answer import Answer

LOOK_SECONDS = 1.0
"""Interval in which following looks for more. An engineering choice."""


class LocalDesk(FrontDesk):
    """The desk of a warehouse's service, whether it runs or not.

    Args:
        warehouse: The warehouse.
        url: See `warehouse.inbox.database.Database`.
        sleep: Waits for some seconds.

    Raises:
        InputError: The warehouse has no service.
    """

    def __init__(
        self, warehouse: Path, url: str = "", sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._desk = ServiceCommands(warehouse, url)
        self._guarded = AuthorizedApi(warehouse, url, self._desk)
        self._me = Token(_user(), Role.OPERATOR)
        self._sleep = sleep

    def submit(self, job: Mapping[str, Any], *, key: str = "") -> Accepted:
        """See `FrontDesk`."""
        return make_receipt(self._guarded.submit(self._me, parse_job(Path("job"), job), key))

    def expect(self, job: Mapping[str, Any]) -> QueueRow:
        """See `FrontDesk`."""
        return self._guarded.expect(self._me, parse_job(Path("job"), job))

    def forecast(self, change: Mapping[str, Any]) -> "list[ForecastRow]":
        """See `FrontDesk`."""
        from flows.api.whatif import WhatIf

        return self._guarded.forecast(self._me, checked("change", WhatIf, change, "a change"))

    def command(
        self, kind: CommandKind, target: str, *, value: float = 0.0, key: str = ""
    ) -> Accepted:
        """See `FrontDesk`."""
        return make_receipt(self._guarded.command(self._me, kind, target, key, value))

    def add(self, node: Mapping[str, Any], *, key: str = "") -> Accepted:
        """See `FrontDesk`."""
        fields = checked("node", NodeRequest, node, "a node")
        return make_receipt(self._guarded.add(self._me, fields, key))

    def tenant(self, name: str, terms: Mapping[str, Any], *, key: str = "") -> Accepted:
        """See `FrontDesk`."""
        fields = checked("terms", TenantUpdate, terms, "a tenant's terms")
        return make_receipt(self._guarded.tenant(self._me, name, fields, key))

    def status(self) -> Status:
        """See `FrontDesk`."""
        return self._guarded.status()

    def jobs(self) -> list[JobRow]:
        """See `FrontDesk`."""
        return self._guarded.jobs(self._me)

    def job(self, job: str) -> JobRow:
        """See `FrontDesk`."""
        return self._guarded.job(self._me, job)

    def queue(self) -> list[QueueRow]:
        """See `FrontDesk`."""
        return self._guarded.queue(self._me)

    def nodes(self) -> list[NodeRow]:
        """See `FrontDesk`."""
        return self._guarded.nodes(self._me)

    def tenants(self) -> "list[TenantRow]":
        """See `FrontDesk`."""
        return self._guarded.tenants(self._me)

    def prices(self) -> "list[PriceRow]":
        """See `FrontDesk`."""
        return self._guarded.prices()

    def why(self, job: str) -> "Answer":
        """See `FrontDesk`."""
        return self._guarded.why(self._me, job)

    def course(self, job: str) -> "JobHistory":
        """See `FrontDesk`."""
        return self._guarded.course(self._me, job)

    def events(self, after_round: int = -1, *, follow: bool = False) -> Iterator[EventRow]:
        """See `FrontDesk`."""
        while True:
            for row in self._guarded.events(self._me, after_round):
                after_round = row.round
                yield row
            if not follow:
                return
            self._sleep(LOOK_SECONDS)

    def logs(self, job: str, *, follow: bool = False) -> Iterator[bytes]:
        """See `FrontDesk`."""
        yield from self._guarded.printed(self._me, job).text(follow=follow, sleep=self._sleep)

    def close(self) -> None:
        """See `FrontDesk`."""
        self._desk.inbox.close()


def _user() -> str:
    try:
        return getuser()
    except (KeyError, OSError):  # a user without a name
        return ""
