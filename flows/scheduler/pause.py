"""The pause of a service: users pause, resume and step its rounds in Prefect's UI."""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from tasks.commands import CommandKind
from warehouse.inbox.inbox import Inbox

if TYPE_CHECKING:
    from flows.prefect_server.round_deployment import RoundRequest

READ_SECONDS = 2.0
"""Interval at which requests are read. An engineering choice."""


class Pause:
    """Submits a pause and its end as commands to the inbox, so that rounds record them.

    While Prefect's server does not answer, a service remains as it was: paused or not.
    """

    def __init__(self, inbox: Inbox, read_request: "Callable[[], RoundRequest | None]") -> None:
        self._inbox, self._read_request = inbox, read_request
        self._paused = inbox.is_paused()
        self._again_at = 0.0

    def may_begin(self) -> bool:
        """Return whether the next round may begin: always, except in a pause."""
        if monotonic() < self._again_at:
            return not self._paused
        request = self._read_request()
        self._again_at = monotonic() + READ_SECONDS
        if request is None:
            return not self._paused
        if request.paused != self._paused:
            kind = CommandKind.PAUSE if request.paused else CommandKind.RESUME
            self._inbox.command(kind, -1, by="Prefect")
            self._paused = request.paused
        return not self._paused or request.run_once
