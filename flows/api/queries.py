"""A service's queries, answered from its records and its inbox."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from containers.runtime import EventKind
from flows.api.history import HistoryFollower, RecentRounds, ServiceHistory, solve_last_round
from flows.api.job_history import (
    MOST_PRICES,
    JobHistory,
    LossRow,
    PriceRow,
    RoundEstimates,
    RoundOutcome,
    RoundTimings,
    TenantRow,
    UsageRow,
    find_lifetime,
    make_job_history,
    make_price_rows,
    make_tenant_rows,
    make_usage_rows,
)
from flows.api.queue import find_gpu_shortages, make_queue_rows
from flows.api.round_forecasts import ForecastFile, RoundForecasts, make_round_forecasts
from flows.api.rows import (
    EventRow,
    JobRow,
    NodeRow,
    QueueRow,
    RoundChanges,
    RoundEvents,
    Status,
    WindowRow,
    describe_status,
    describe_wait,
    make_event_rows,
    make_job_row,
)
from flows.scheduler.process import is_locked, read_late_rounds
from predictor.errors import InputError, WarehouseError
from predictor.job import JobSpec
from tasks.commands import CommandKind
from tasks.record import RoundRecord, RunHeader, RuntimeKind
from tasks.rollouts import ExpectedTimes
from tasks.round import Round
from tasks.run import Run
from warehouse.inbox.entries import Entry
from warehouse.inbox.inbox import FILE, Inbox
from warehouse.store.folder import SNAPSHOT
from warehouse.store.reader import Reader

if TYPE_CHECKING:
    from containers.docker.nodes import Nodes
    from containers.slurm.cluster import SlurmSite
    from flows.api.job_logs import JobLogs, LogPlace
    from flows.explain.answer import Answer, JobForecast

Made = TypeVar("Made")

NO_SERVICE = "start one: shockwave up, or name its folder: --warehouse or SHOCKWAVE_WAREHOUSE"
"""What to do without a service."""

MOST_ANSWERS = 256
"""Most answers about ended jobs that are kept. An engineering bound."""


class ServiceQueries:
    """Read-only queries about the service of a warehouse; `known` is the history read last.

    Raises:
        InputError: The warehouse has no service.
    """

    def __init__(self, warehouse: Path, url: str = "") -> None:
        none = InputError(str(warehouse), "has no service", NO_SERVICE)
        if not url and not (warehouse / FILE).exists():
            raise none  # opening the inbox would create it
        self.inbox = Inbox(warehouse, url)
        self.run = self.inbox.run
        if not self.run:
            self.inbox.close()
            raise none
        self._reader = Reader(warehouse)
        self._follower = HistoryFollower(self._reader, self.run, warehouse / SNAPSHOT)
        self._changes = RecentRounds(self._reader, self.run, RoundChanges, filled=True)
        self._outcomes = RecentRounds(self._reader, self.run, RoundOutcome, MOST_PRICES)
        self._forecasts = ForecastFile(warehouse)
        self.known: ServiceHistory | None = None
        self._header: RunHeader | None = None
        self._ended: dict[int, Answer] = {}
        self._cached: tuple[ServiceHistory | None, dict[object, Any]] = None, {}

    def __enter__(self) -> Self:
        """Return the service itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close all connections."""
        self.inbox.close()

    @property
    def header(self) -> RunHeader:
        """Header of the service's run, which never changes."""
        if self._header is None:
            self._header = self._reader.header(self.run)
        return self._header

    def read_hosts(self) -> "Nodes | SlurmSite | None":
        """Read the cluster file; None for a virtual cluster.

        Raises:
            InputError: The cluster file cannot be read.
        """
        if not (path := self.inbox.cluster):
            return None
        from flows.runs.cluster_file import read_site

        return read_site(Path(path))

    def read_node_names(self) -> list[str]:
        """Read the names of the nodes, removed ones included; empty if that fails."""
        with suppress(InputError):
            if hosts := self.read_hosts():
                from flows.runs.hosts import read_node_names

                orders = self.read_history().state.orders
                return read_node_names(hosts, self.run, self.header.settings.inventory, orders)
        if self.header.settings.runtime == RuntimeKind.SLURM:
            from flows.runs.queue_run import list_numbered

            return list_numbered(self._reader.packages(self.run))
        return []

    def read_history(self) -> ServiceHistory:
        """Read the service's run so far; the same object as long as no file changes.

        Raises:
            WarehouseError: The records are damaged.
        """
        self.known = self._follower.read()
        return self.known

    def get_status(self) -> Status:
        """Summarize the state of the service."""
        history = self.read_history()
        state, settings = history.state, history.start.header.settings
        last, made = self.inbox.last(), self._forecasts.read(self.run)
        return Status(
            run=self.run,
            policy=settings.policy,
            rounds=state.round,
            clock_s=state.clock_seconds,
            gpus=there.gpus if (there := state.present_inventory(self.header)) else 0,
            busy_gpus=sum(map(len, state.leases.values())),
            drained=self._list_drained(history),
            running=len(state.leases),
            waiting=len(state.beliefs) - len(state.leases) - len(state.orders.held),
            held=len(state.orders.held),
            ended=state.arrived - len(state.beliefs),
            inbox=last,
            pending=last - state.source_position.entries,
            late=history.position.late + read_late_rounds(self._reader.warehouse),
            paused=self.inbox.is_paused(),
            forecast_age_s=max(state.clock_seconds - made.clock_seconds, 0.0) if made else None,
        )

    def measure_lag(self, now: float) -> float:
        """Return the age in seconds of the oldest entry not yet taken in; 0 if none waits.

        `now` is in seconds since the epoch.
        """
        waiting = self.inbox.entries_after(
            self.read_history().state.source_position.entries, most=1
        )
        return max(now - waiting[0].accepted_at, 0.0) if waiting else 0.0

    def list_jobs(self) -> list[JobRow]:
        """List all jobs by id."""
        history = self.read_history()
        taken_in = self._cache(history, "jobs", lambda: self._list_taken_in(history))
        waiting = [
            make_job_row(entry.job, "accepted")
            for entry in self._read_entries(history.state.source_position.entries)
            if entry.job
        ]
        return [*taken_in, *self._with_submitters(waiting)]

    def _list_taken_in(self, history: ServiceHistory) -> list[JobRow]:
        """List the jobs that rounds took in or refused, by id."""
        state = history.state
        few = self._cache(history, "shortages", lambda: find_gpu_shortages(self.run, history))
        news = self._changes.read(history)
        ends = {e.job_id: e for record in news for e in record.finished if e.ends_job}
        rows = []
        for spec in (spec for record in news for spec in record.arrivals):
            job_id, arrival = spec.job_id, spec.arrival_seconds
            about: tuple[Any, ...]
            if end := ends.get(job_id):
                done = 1.0 if end.kind is EventKind.FINISHED else None
                about = end.kind.value, (), done, arrival, end.at_seconds, end.reason
            else:
                gpus, done = state.leases.get(job_id, ()), state.beliefs[job_id].share_done
                why = few.get(job_id) or describe_wait(state, job_id)
                about = describe_status(state, job_id), gpus, done, arrival, None, why
            rows.append(make_job_row(spec, *about))
        refusals = {
            command.number: command.reason
            for record in news
            for command in record.commands
            if command.kind is CommandKind.REFUSED
        }
        rows += [
            make_job_row(entry.job, "refused", reason=reason)
            for entry in (self._read_entries(0) if refusals else ())
            if entry.job and (reason := refusals.get(entry.number))
        ]
        return sorted(self._with_submitters(rows), key=lambda row: row.job_id)

    def _with_submitters(self, rows: list[JobRow]) -> list[JobRow]:
        by = self.inbox.submitters(row.job_id for row in rows) if rows else {}
        return [replace(row, by=by.get(row.job_id, "")) for row in rows]

    def _read_entries(self, after: int) -> Iterator[Entry]:
        while entries := self.inbox.entries_after(after):
            yield from entries
            after = entries[-1].number

    def list_pending(self, history: ServiceHistory) -> list[JobSpec]:
        """List the accepted jobs that no round of a history has taken in."""
        return [e.job for e in self._read_entries(history.state.source_position.entries) if e.job]

    def list_queue(self) -> list[QueueRow]:
        """List active jobs: running, then in queue order, then others, then those just accepted."""
        history = self.read_history()
        made = self.read_forecasts(history) if history.last else None
        return self.make_queue(history, made)

    def make_queue(self, history: ServiceHistory, made: RoundForecasts | None) -> list[QueueRow]:
        """Return the queue of a history, given the latest forecasts."""
        pending = [
            QueueRow(None, job.job_id, job.name, job.tenant, job.demand.size, "accepted")
            for job in self.list_pending(history)
        ]
        if not history.last:
            return pending
        key = "queue", made and made.digest
        return [*self._cache(history, key, lambda: self._order_active(history, made)), *pending]

    def _order_active(self, history: ServiceHistory, made: RoundForecasts | None) -> list[QueueRow]:
        run, this = self._solve(history)
        clock = this.observation.clock_seconds
        ahead = self._look_ahead(history, this, made)
        age = clock - made.clock_seconds if made else 0.0
        rows = make_queue_rows(run, this, this.active, ahead, max(age, 0.0))
        return sorted(
            rows, key=lambda row: (row.status != "runs", row.place or math.inf, row.job_id)
        )

    def _look_ahead(
        self, history: ServiceHistory, this: Round, made: RoundForecasts | None
    ) -> dict[int, ExpectedTimes]:
        if made is None:
            return {}
        length = self.header.settings.round_seconds
        key = "ahead", made.digest
        return self._cache(history, key, lambda: made.in_round(this, length))

    def _solve(self, history: ServiceHistory) -> tuple[Run, Round]:
        return self._cache(history, "solved", lambda: solve_last_round(self.run, history))

    def read_forecasts(self, history: ServiceHistory) -> RoundForecasts | None:
        """Return the latest forecasts of the active jobs; None if there are none yet.

        While no process of the service makes them, they are made here.
        """
        made = self._forecasts.read(self.run)
        if (made and made.are_of(history.state.last_hash)) or is_locked(self._reader.warehouse):
            return made
        with suppress(WarehouseError):  # others may ask who may not write
            self.make_forecasts(history)
        return self._forecast(history)

    def make_forecasts(self, history: ServiceHistory) -> None:
        """Forecast the last round of a history, and keep the forecasts.

        Raises:
            WarehouseError: The warehouse cannot be written.
        """
        self._forecasts.write(self._forecast(history))

    def _forecast(self, history: ServiceHistory) -> RoundForecasts:
        run, this = self._solve(history)
        digest = history.state.last_hash
        return self._cache(history, "forecasts", lambda: make_round_forecasts(run, this, digest))

    def _expect(self, history: ServiceHistory, this: Round, job_id: int) -> "JobForecast":
        from flows.explain.answer import JobForecast
        from flows.explain.facts import Unforecast

        made = self.read_forecasts(history)
        times = self._look_ahead(history, this, made).get(job_id)
        if made and (times or made.are_of(history.state.last_hash)):
            return JobForecast(times, made.clock_seconds)
        return JobForecast(None, this.observation.clock_seconds, Unforecast.PENDING)

    def keep(self, key: object, make: Callable[[], Made]) -> Made:
        """Return a value made from the history read last, once for each history.

        It must be the same for all callers.
        """
        return self._cache(self.known, key, make)

    def _cache(self, history: ServiceHistory | None, key: object, make: Callable[[], Made]) -> Made:
        """Return the cached value for this history, or make it; a new history clears the cache.

        Threads may do so at the same time, each with its history.
        """
        of, made = self._cached
        if of is not history:
            made = {}
            self._cached = history, made
        if key not in made:
            made[key] = make()
        return cast("Made", made[key])

    def list_events(self, after_round: int = -1) -> list[EventRow]:
        """List events and commands of the rounds after a round, in order."""
        first = max(after_round + 1, 0)
        records = self._reader.parts(self.run, RoundEvents, first, filled=True)
        named = {event.job_id for r in records for event in (*r.finished, *r.events)}
        named |= {command.target for r in records for command in r.commands}
        names = {number: job.name for number, job in self.inbox.jobs(named).items()}
        by = self.inbox.submitters(spec.job_id for r in records for spec in r.arrivals)
        return [row for record in records for row in make_event_rows(record, names, by)]

    def list_nodes(self) -> list[NodeRow]:
        """List the nodes and the jobs that hold their GPUs."""
        history = self.read_history()
        inventory, drained = history.state.inventory(self.header), self._list_drained(history)
        holders = {gpu: job for job, gpus in history.state.leases.items() for gpu in gpus}
        cordoned = history.state.orders.cordoned
        ailing = history.last.problems if history.last else ()
        problems = {problem.node: problem.problem for problem in ailing}
        names, rows = dict(enumerate(self.read_node_names())), []
        clock = history.state.clock_seconds
        windows = {w.node: w.words for w in history.state.orders.windows if w.is_open(clock)}
        for node in sorted({*range(inventory.nodes)} - history.state.orders.removed):
            gpus = tuple(inventory.gpus_of(node))
            held = tuple(gpu for gpu in gpus if gpu in holders)
            kind = inventory.pools[inventory.pool(gpus[0])].gpu_type
            jobs = tuple(sorted({holders[gpu] for gpu in held}))
            out, kept = node in drained, node in cordoned
            about = node, names.get(node, ""), kind
            reason = problems.get(node, "")
            window = windows.get(node, "")
            rows.append(NodeRow(*about, len(gpus), gpus, held, jobs, out, kept, reason, window))
        return rows

    def list_windows(self) -> list[WindowRow]:
        """List the windows of nodes that are not over, by start."""
        state = self.read_history().state
        clock = state.clock_seconds
        numbers = [w.number for w in state.orders.windows if w.end_seconds > clock]
        starts = {
            number: datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
            for number, at in self.inbox.window_starts(numbers).items()
        }
        rows = [
            WindowRow(
                window.number,
                window.node,
                (CommandKind.RESERVE if window.tenant else CommandKind.MAINTAIN).value,
                window.tenant,
                max(window.begin_seconds - clock, 0.0),
                window.end_seconds - clock,
                starts.get(window.number, ""),
            )
            for window in state.orders.windows
            if window.end_seconds > clock
        ]
        return sorted(rows, key=lambda row: (row.begins_in_s, row.node, row.window))

    @staticmethod
    def _list_drained(history: ServiceHistory) -> tuple[int, ...]:
        out = history.last.solve.drained if history.last else ()
        return tuple(node for node in out if node not in history.state.orders.removed)

    def list_tenants(self) -> list[TenantRow]:
        """List the tenants, their budgets and the GPUs they hold."""
        return make_tenant_rows(self.read_history())

    def list_prices(self) -> list[PriceRow]:
        """List the market prices of the last rounds, in order."""
        history = self.read_history()
        first = max(history.state.round - MOST_PRICES, 0)
        return make_price_rows(self._outcomes.read(history, first))

    def list_usage(self) -> list[UsageRow]:
        """List how the last rounds used the cluster, in order."""
        history = self.read_history()

        def make() -> list[UsageRow]:
            first = max(history.state.round - MOST_PRICES, 0)
            rounds, changes = self._outcomes.read(history, first), self._changes.read(history)
            return make_usage_rows(rounds, changes, self.header.settings)

        return self._cache(history, "usage", make)

    def list_timings(self, number: int) -> list[RoundTimings]:
        """List how long the steps of a round and its successors took."""
        return self._reader.parts(self.run, RoundTimings, number)

    def explain(self, job_id: int) -> "Answer":
        """Explain why a job holds GPUs or not, in the last round in which it was active.

        Raises:
            InputError: No round has taken in the job yet.
            WarehouseError: The records are damaged.
        """
        from flows.explain.why import why

        history = self.read_history()

        if history.last and job_id in history.state.beliefs:
            return self._explain_now(history, history.last, job_id)
        if (known := self._ended.get(job_id)) is not None:
            return known
        answer = why(job_id, self._reader.warehouse, self.run, most_simulated=0)
        if answer.end is not None:  # a round may have been recorded since the history was read
            if len(self._ended) >= MOST_ANSWERS:
                self._ended.clear()
            self._ended[job_id] = answer
        return answer

    def _explain_now(self, history: ServiceHistory, last: RoundRecord, job_id: int) -> "Answer":
        """Explain a job in the last round; reads only the records of the job's life."""
        from flows.explain.why import Lived, check_same, explain_round

        run, this = self._solve(history)
        check_same(self.run, this, last)
        first = find_lifetime(self._changes.read(history), job_id).start
        kept = max(history.state.round - MOST_PRICES, first)
        rounds = self._reader.parts(self.run, Lived, first, kept) if first < kept else []
        rounds += (
            Lived(each.round, each.clock_seconds, each.finished, each.leases, each.events)
            for each in self._outcomes.read(history, kept)
        )
        ahead = self._expect(history, this, job_id)
        return explain_round(run, this, job_id, last.round, rounds, ahead)

    def open_logs(
        self,
        job_id: int,
        shown: Mapping[str, "LogPlace"] | None = None,
        tail: int | None = None,
    ) -> "JobLogs":
        """Open the output of a job's containers; the caller closes it.

        `shown` says where the caller stopped reading, by container; `tail`, how many of the last
        lines to begin with.

        Raises:
            InputError: The job never held GPUs, the cluster is virtual, or its file is missing.
            WarehouseError: The records are damaged.
        """
        from flows.api.job_logs import JobLogs, check_has_logs

        check_has_logs(self._reader, self.run, job_id, self.read_history().state.leases)
        hosts = self.read_hosts()
        if hosts is None and self.header.settings.runtime == RuntimeKind.SLURM:
            place, problem = f"job {job_id}", "is a user's own Slurm job"
            raise InputError(place, problem, "read the file that its sbatch named")
        if hosts is None:
            raise InputError("cluster", "is missing", "give the cluster file of the run")
        return JobLogs(hosts, self.run, job_id, shown, lambda: self.has_ended(job_id), tail)

    def has_ended(self, job_id: int) -> bool:
        """Return whether a job has ended, or was refused."""
        state = self.read_history().state
        return job_id <= state.source_position.entries and job_id not in state.beliefs

    def get_job_history(self, job_id: int) -> JobHistory:
        """List a job's leases, costs, forecasts and losses."""
        history = self.read_history()
        lived = find_lifetime(self._changes.read(history), job_id)
        first, stop = lived.start, min(lived.stop, history.state.round)
        rounds = self._outcomes.read(history, first, stop)
        # One estimate per active job and round: too many to decode, or to keep, for one job.
        made = self._reader.parts(self.run, RoundEstimates, first, stop, filled=True, of_job=job_id)
        return make_job_history(history, rounds, made, job_id, self._read_losses(job_id))

    def list_ends(self, history: ServiceHistory, after: int) -> dict[int, int]:
        """Return the jobs that ended in the rounds after one, by id, with their rounds."""
        return {
            event.job_id: record.round
            for record in self._changes.read(history, after + 1)
            for event in record.finished
            if event.ends_job
        }

    def _read_losses(self, job_id: int) -> list[LossRow]:
        with suppress(InputError):  # the cluster file may be gone
            if hosts := self.read_hosts():
                from containers.leasing.telemetry import read_losses

                by_epoch = read_losses(hosts.folder(self.run, job_id))
                return [LossRow(epoch, loss) for epoch, loss in by_epoch.items()]
        return []
