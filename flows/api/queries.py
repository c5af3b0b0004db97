"""Answers about a service, from its records and its inbox; nothing is written."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from containers.runtime import EventKind
from flows.api.history import (
    HistoryFollower,
    ServiceHistory,
    find_gpu_shortages,
    make_queue_rows,
    solve_last_round,
)
from flows.api.job_history import (
    MOST_PRICES,
    JobHistory,
    LossRow,
    PriceRow,
    RoundChanges,
    RoundOutcome,
    RoundPrices,
    RoundTimings,
    TenantRow,
    find_lifetime,
    make_job_history,
    make_price_rows,
    make_tenant_rows,
)
from flows.api.rows import (
    EventRow,
    JobRow,
    NodeRow,
    QueueRow,
    RoundEvents,
    Status,
    describe_status,
    describe_wait,
    make_event_rows,
    make_job_row,
)
from predictor.errors import InputError
from predictor.job import JobSpec
from tasks.commands import CommandKind
from tasks.record import RoundRecord, RunHeader
from warehouse.inbox.entries import Entry
from warehouse.inbox.inbox import FILE, Inbox
from warehouse.store.folder import SNAPSHOT
from warehouse.store.reader import Reader

if TYPE_CHECKING:
    from containers.docker.nodes import Nodes
    from flows.api.job_logs import JobLogs, LogPlace
    from flows.explain.answer import Answer


class ServiceQueries:
    """Answers questions about the service of a warehouse; writes nothing.

    Args:
        warehouse: The warehouse.
        url: See `warehouse.inbox.database.Database`.

    Attributes:
        known: The history that was read last.

    Raises:
        InputError: The warehouse has no service.
    """

    def __init__(self, warehouse: Path, url: str = "") -> None:
        none = InputError(str(warehouse), "has no service", "start one: shockwave up")
        if not url and not (warehouse / FILE).exists():
            raise none  # a reader creates no inbox
        self.inbox = Inbox(warehouse, url)
        self.run = self.inbox.run
        if not self.run:
            self.inbox.close()
            raise none
        self._reader = Reader(warehouse)
        self._followed = HistoryFollower(self._reader, self.run, warehouse / SNAPSHOT)
        self.known: ServiceHistory | None = None
        self._header: RunHeader | None = None
        self._ahead: tuple[ServiceHistory, list[QueueRow]] | None = None
        self._few: tuple[ServiceHistory, dict[int, str]] | None = None
        self._whys: tuple[ServiceHistory, dict[int, Answer]] | None = None

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close all connections."""
        self.inbox.close()

    @property
    def header(self) -> RunHeader:
        """The header of the service's run, which never changes."""
        if self._header is None:
            self._header = self._reader.header(self.run)
        return self._header

    def hosts(self) -> "Nodes | None":
        """The Docker hosts that jobs run on; None for a virtual cluster.

        Raises:
            InputError: The cluster file cannot be read.
        """
        if not (path := self.inbox.cluster):
            return None
        from flows.runs.cluster_file import read_cluster_file

        return read_cluster_file(Path(path))

    def names(self) -> list[str]:
        """Names of the nodes on Docker hosts, removed ones too; none where they cannot be read."""
        with suppress(InputError):
            if hosts := self.hosts():
                from flows.runs.hosts import names

                orders = self.history().state.orders
                return names(hosts, self.run, self.header.settings.inventory, orders)
        return []

    def history(self) -> ServiceHistory:
        """The service's run so far; the same object until a file is new.

        Raises:
            WarehouseError: The records are damaged.
        """
        self.known = self._followed.now()
        return self.known

    def status(self) -> Status:
        """Where the service stands."""
        history = self.history()
        state, settings = history.state, history.start.header.settings
        last = self.inbox.last()
        return Status(
            run=self.run,
            policy=settings.policy,
            rounds=state.round,
            clock_s=state.clock_seconds,
            gpus=there.gpus if (there := state.present_inventory(self.header)) else 0,
            busy_gpus=sum(map(len, state.leases.values())),
            drained=self._drained(history),
            running=len(state.leases),
            waiting=len(state.beliefs) - len(state.leases) - len(state.orders.held),
            held=len(state.orders.held),
            ended=state.arrived - len(state.beliefs),
            inbox=last,
            pending=last - state.source_position.entries,
            late=history.position.late,
        )

    def lag(self, now: float) -> float:
        """Age of the oldest entry that no round has taken in, in seconds; 0 if there is none.

        Args:
            now: Seconds since the epoch.
        """
        waiting = self.inbox.entries_after(self.history().state.source_position.entries, most=1)
        return max(now - waiting[0].accepted_at, 0.0) if waiting else 0.0

    def jobs(self) -> list[JobRow]:
        """All jobs, by id."""
        history = self.history()
        if self._few is None or self._few[0] is not history:
            self._few = history, find_gpu_shortages(self.run, history)
        state, few = history.state, self._few[1]
        news = [
            record for record in self._news() if record.round < state.round
        ]  # consistent with the state
        ends = {e.job_id: e for record in news for e in record.finished if e.ends_job}
        rows = []
        for spec in (spec for record in news for spec in record.arrivals):
            end, belief = ends.get(spec.job_id), state.beliefs.get(spec.job_id)
            whole = 1.0 if end and end.kind is EventKind.FINISHED else None
            rows.append(
                make_job_row(
                    spec,
                    end.kind.value if end else describe_status(state, spec.job_id),
                    held_gpus=state.leases.get(spec.job_id, ()),
                    done=belief.share_done if belief else whole,
                    arrival_s=spec.arrival_seconds,
                    ended_s=end.at_seconds if end else None,
                    reason=end.reason
                    if end
                    else few.get(spec.job_id) or describe_wait(state, spec.job_id),
                )
            )
        refusals = {
            command.number: command.reason
            for record in news
            for command in record.commands
            if command.kind is CommandKind.REFUSED
        }
        for entry in self._entries(0 if refusals else state.source_position.entries):
            if entry.job and (
                entry.number in refusals or entry.number > state.source_position.entries
            ):
                reason = refusals.get(entry.number, "")
                rows.append(
                    make_job_row(entry.job, "refused" if reason else "accepted", reason=reason)
                )
        return sorted(rows, key=lambda row: row.job_id)

    def _entries(self, after: int) -> Iterator[Entry]:
        while entries := self.inbox.entries_after(after):
            yield from entries
            after = entries[-1].number

    def pending(self, history: ServiceHistory) -> list[JobSpec]:
        """The accepted jobs that no round of a history has taken in."""
        return [e.job for e in self._entries(history.state.source_position.entries) if e.job]

    def queue(self) -> list[QueueRow]:
        """The active jobs: those that run, those in line, the others, those just accepted."""
        history = self.history()
        pending = [
            QueueRow(None, job.job_id, job.name, job.tenant, job.demand.least, "accepted")
            for job in self.pending(history)
        ]
        if not history.last:
            return pending
        if self._ahead is None or self._ahead[0] is not history:
            run, this = solve_last_round(self.run, history)
            rows = make_queue_rows(run, this)
            rows.sort(key=lambda row: (row.status != "runs", row.place or math.inf, row.job_id))
            self._ahead = history, rows
        return [*self._ahead[1], *pending]

    def events(self, after_round: int = -1) -> list[EventRow]:
        """What happened and was asked, in order.

        Args:
            after_round: The last round that is known already.
        """
        first = max(after_round + 1, 0)
        records = self._reader.parts(self.run, RoundEvents, first, filled=True)
        named = {event.job_id for r in records for event in (*r.finished, *r.events)}
        named |= {command.target for r in records for command in r.commands}
        names = {number: job.name for number, job in self.inbox.jobs(named).items()}
        return [row for record in records for row in make_event_rows(record, names)]

    def nodes(self) -> list[NodeRow]:
        """The nodes, and who holds their GPUs."""
        history = self.history()
        inventory, drained = history.state.inventory(self.header), self._drained(history)
        holders = {gpu: job for job, gpus in history.state.leases.items() for gpu in gpus}
        cordoned = history.state.orders.cordoned
        ailing = history.last.problems if history.last else ()
        problems = {problem.node: problem.problem for problem in ailing}
        names, rows = dict(enumerate(self.names())), []
        for node in sorted({*range(inventory.nodes)} - history.state.orders.removed):
            gpus = tuple(inventory.gpus_of(node))
            held = tuple(gpu for gpu in gpus if gpu in holders)
            kind = inventory.pools[inventory.pool(gpus[0])].gpu_type
            jobs = tuple(sorted({holders[gpu] for gpu in held}))
            out, kept = node in drained, node in cordoned
            about = node, names.get(node, ""), kind
            reason = problems.get(node, "")
            rows.append(NodeRow(*about, len(gpus), gpus, held, jobs, out, kept, reason))
        return rows

    @staticmethod
    def _drained(history: ServiceHistory) -> tuple[int, ...]:
        """Nodes of the cluster that are out of service."""
        out = history.last.solve.drained if history.last else ()
        return tuple(node for node in out if node not in history.state.orders.removed)

    def tenants(self) -> list[TenantRow]:
        """The tenants, their budgets, and what they hold."""
        return make_tenant_rows(self.history())

    def prices(self) -> list[PriceRow]:
        """Prices of the last rounds that had a market, in order."""
        first = max(self.history().state.round - MOST_PRICES, 0)
        return make_price_rows(self._reader.parts(self.run, RoundPrices, first))

    def timed(self, number: int) -> list[RoundTimings]:
        """How long the steps of a round and of those after it took."""
        return self._reader.parts(self.run, RoundTimings, number)

    def why(self, job_id: int) -> "Answer":
        """Why a job has or has no GPUs, in the last round in which it was active.

        Raises:
            InputError: No round has taken it in yet.
            WarehouseError: The records are damaged.
        """
        from flows.explain.why import why

        history = self.history()
        if self._whys is None or self._whys[0] is not history:
            self._whys = history, {}
        if job_id not in (known := self._whys[1]):
            if history.last and job_id in history.state.beliefs:
                known[job_id] = self._why_now(history, history.last, job_id)
            else:  # an earlier round: replay from the beginning
                known[job_id] = why(job_id, self._reader.warehouse, self.run)
        return known[job_id]

    def _why_now(self, history: ServiceHistory, last: RoundRecord, job_id: int) -> "Answer":
        """Why a job has or has no GPUs in the last round, from the records of its life alone."""
        from flows.explain.why import Lived, check_same, of_round

        run, this = solve_last_round(self.run, history)
        check_same(self.run, this, last)
        first = find_lifetime(self._news(), job_id).start
        rounds = self._reader.parts(self.run, Lived, first, last.round + 1)
        return of_round(run, this, job_id, last.round, rounds)

    def printed(self, job_id: int, shown: Mapping[str, "LogPlace"] | None = None) -> "JobLogs":
        """The output of a job's containers; the caller closes it.

        Args:
            job_id: The job.
            shown: What was shown already, by container.

        Raises:
            InputError: The job has never had GPUs, the cluster is virtual, or its file is missing.
            WarehouseError: The records are damaged.
        """
        from flows.api.job_logs import JobLogs, check_has_logs

        check_has_logs(self._reader, self.run, job_id, self.history().state.leases)
        hosts = self.hosts()
        if hosts is None:
            raise InputError("cluster", "is missing", "give the cluster file of the run")
        return JobLogs(hosts, self.run, job_id, shown)

    def course(self, job_id: int) -> JobHistory:
        """A job so far: its leases and what they cost, forecasts and losses."""
        lived = find_lifetime(self._news(), job_id)
        rounds = self._reader.parts(self.run, RoundOutcome, lived.start, lived.stop)
        return make_job_history(self.history(), rounds, job_id, self._losses(job_id))

    def _news(self) -> list[RoundChanges]:
        return self._reader.parts(self.run, RoundChanges, filled=True)

    def _losses(self, job_id: int) -> list[LossRow]:
        with suppress(InputError):  # a cluster file that is gone
            if hosts := self.hosts():
                from containers.docker.telemetry import losses

                by_epoch = losses(hosts.folder(self.run, job_id))
                return [LossRow(epoch, loss) for epoch, loss in by_epoch.items()]
        return []
