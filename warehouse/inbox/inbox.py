"""The inbox of a service: it accepts submissions, finds entries and returns them in order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select

from predictor.errors import InputError, likely
from predictor.job import JobSpec
from predictor.options import array_of
from tasks.commands import NO_TERMS, CommandKind, NewNode, TenantTerms
from warehouse.inbox.accepting import accept_all, last_entry, terms_of
from warehouse.inbox.database import Database
from warehouse.inbox.entries import SUBMIT, Entry, Submission, check_submission, entry_of
from warehouse.inbox.tables import ENTRIES, SERVICE

FILE = Path("inbox") / "inbox.sqlite"
"""The default database, in the warehouse."""

MOST_READ = 10_000
"""Most entries read at once. An engineering bound."""

LATEST = 1_000
"""Number of latest jobs whose names are suggested for an unknown name. An engineering bound."""

PAUSE, RESUME = CommandKind.PAUSE.value, CommandKind.RESUME.value

_WINDOW = ("window_hours",)
"""Terms that windows give."""

_JOBS = select(ENTRIES).where(ENTRIES.c.kind == SUBMIT)

_WINDOWS = select(ENTRIES).where(ENTRIES.c.kind.in_([kind.value for kind in CommandKind.windows()]))


class Inbox:
    """The inbox of the service of a warehouse; for `url` and errors see `Database`."""

    def __init__(self, warehouse: Path, url: str = "") -> None:
        self._database = Database(warehouse / FILE, url)
        self._writer = ThreadPoolExecutor(1, "inbox")
        self._waiting = SimpleQueue[tuple[Sequence[Submission], Future[list[Entry]]]]()

    def accept(self, submissions: Sequence[Submission]) -> list[Entry]:
        """Accept submissions durably, all or none.

        A key that was accepted before returns its earlier entry.

        Raises:
            InputError: A key belongs to another submission, or a submission is invalid.
            WarehouseBusy: The database does not answer, but may have accepted the submissions.
                Retry with the same keys.
        """
        for submission in submissions:
            check_submission(submission)
        outcome = Future[list[Entry]]()
        self._waiting.put((submissions, outcome))
        self._writer.submit(self._commit)
        return outcome.result()

    def _commit(self) -> None:
        """Accept the submissions of all threads in one transaction: a flush takes milliseconds."""
        together = [self._waiting.get() for _ in range(self._waiting.qsize())]
        if not together:
            return  # an earlier call accepted them
        try:
            handed = [submissions for submissions, _ in together]
            outcomes = self._database.write(lambda connection: accept_all(connection, handed))
        except BaseException as error:
            for _, outcome in together:
                outcome.set_exception(error)
            return
        for (_, outcome), found in zip(together, outcomes, strict=True):
            if isinstance(found, InputError):
                outcome.set_exception(found)
            else:
                outcome.set_result(found)

    def submit(self, job: JobSpec, *, by: str = "", key: str = "") -> Entry:
        """Accept a job; see `accept`."""
        return self.submit_all([job], by=by, key=key)[0]

    def submit_all(self, jobs: Sequence[JobSpec], *, by: str = "", key: str = "") -> list[Entry]:
        """Accept jobs, all or none, with consecutive numbers; see `accept`."""
        keys = _keys(key, len(jobs))
        asked = zip(jobs, keys, strict=True)
        return self.accept([Submission(SUBMIT, job=job, by=by, key=own) for job, own in asked])

    def command(
        self, kind: CommandKind, target: int, *, value: float = 0.0, by: str = "", key: str = ""
    ) -> Entry:
        """Accept a command; see `accept`."""
        return self.command_all(kind, [target], value=value, by=by, key=key)[0]

    def command_all(
        self,
        kind: CommandKind,
        targets: Sequence[int],
        *,
        value: float = 0.0,
        by: str = "",
        key: str = "",
    ) -> list[Entry]:
        """Accept a command for several jobs or nodes, all or none; see `accept`."""
        name, asked = kind.value, zip(targets, _keys(key, len(targets)), strict=True)
        return self.accept(
            [Submission(name, target=target, value=value, by=by, key=own) for target, own in asked]
        )

    def add_windows(
        self,
        kind: CommandKind,
        node: int,
        starts: Sequence[float],
        hours: float,
        tenant: str,
        *,
        by: str = "",
        key: str = "",
    ) -> list[Entry]:
        """Accept windows of a node, all or none, by their starts since the epoch; see `accept`."""
        terms, asked = replace(NO_TERMS, tenant=tenant, window_hours=hours), kind.value
        return self.accept(
            [
                Submission(asked, target=node, value=at, by=by, key=own, terms=terms, given=_WINDOW)
                for at, own in zip(starts, _keys(key, len(starts)), strict=True)
            ]
        )

    def windows_of(self, node: int) -> list[Entry]:
        """Return the windows of a node, with their starts since the epoch, that nobody ended."""
        ends = select(ENTRIES.c.target).where(ENTRIES.c.kind == CommandKind.REOPEN.value)
        asked = _WINDOWS.where(ENTRIES.c.target == node)
        return self._entries(asked.where(ENTRIES.c.number.not_in(ends)))

    def window_starts(self, numbers: Iterable[int]) -> dict[int, float]:
        """Return the starts of windows since the epoch by number; other numbers are ignored."""
        return {entry.number: entry.value for entry in self._numbered(_WINDOWS, numbers)}

    def entries_after(self, number: int, most: int = MOST_READ) -> list[Entry]:
        """Return up to `most` entries after a number, in order; 0 starts with the first."""
        asked = select(ENTRIES).where(ENTRIES.c.number > number).order_by(ENTRIES.c.number)
        return self._entries(asked.limit(most))

    def jobs(self, numbers: Iterable[int]) -> dict[int, JobSpec]:
        """Return declarations of jobs by id; other numbers are ignored."""
        return {e.number: e.job for e in self._numbered(_JOBS, numbers) if e.job}

    def submitters(self, numbers: Iterable[int]) -> dict[int, str]:
        """Return who submitted jobs, by id, as far as it is known."""
        asked, found = sorted({*numbers}), dict[int, str]()
        columns = select(ENTRIES.c.number, ENTRIES.c.submitter)
        for start in range(0, len(asked), MOST_READ):
            some = columns.where(ENTRIES.c.number.in_(asked[start : start + MOST_READ]))

            def work(connection: Connection, some: Select[Any] = some) -> list[Any]:
                return list(connection.execute(some))

            found |= {number: by for number, by in self._database.read(work) if by}
        return found

    def tenant(
        self, tenant: str, given: Mapping[str, Any], *, by: str = "", key: str = ""
    ) -> Entry:
        """Accept new values of some terms of a tenant; see `accept`."""
        terms, kind = replace(NO_TERMS, tenant=tenant, **given), CommandKind.TENANT.value
        return self.accept([Submission(kind, by=by, key=key, terms=terms, given=(*given,))])[0]

    def add(self, node: NewNode, given: Iterable[str], *, by: str = "", key: str = "") -> Entry:
        """Accept a new node; see `accept`.

        `given` names the fields that the submitter gave; a retry may differ in all others.
        """
        kind = CommandKind.ADD.value
        return self.accept([Submission(kind, by=by, key=key, node=node, given=(*given,))])[0]

    def terms(self, tenant: str, *, by: str = "") -> TenantTerms:
        """Return the last accepted terms of a tenant, of a submitter's entries if one is given."""
        return self._database.read(lambda connection: terms_of(connection, tenant, by))

    def is_paused(self) -> bool:
        """Return whether the service is paused."""
        asked = select(ENTRIES.c.kind).where(ENTRIES.c.kind.in_([PAUSE, RESUME]))
        latest = asked.order_by(ENTRIES.c.number.desc()).limit(1)
        return self._database.read(lambda connection: connection.scalar(latest)) == PAUSE

    def last(self) -> int:
        """Return the number of the last entry; 0 if there is none."""
        return self._database.read(last_entry)

    def number_of(self, key: str) -> int | None:
        """Return the number of the entry with a key; None if there is none."""
        asked = select(ENTRIES.c.number).where(ENTRIES.c.key == key)
        return self._database.read(lambda connection: connection.scalar(asked)) if key else None

    def find_all(
        self, job: str, tenant: str | None = None, before: int | None = None
    ) -> list[Entry]:
        """Find a job by id, or the latest job of a name with all of its array.

        `job` is an id, a name, or `NAME[INDEX]` for a job of an array. Only the tenant's jobs and
        entries before `before` are searched.
        """
        name, _, index = job.partition("[")
        found = self.find(name, tenant, before)
        if found is None or found.job is None or name.isdigit():
            return [found] if found and not index else []
        first = array_of(found.number, found.job.options)
        if first is None:
            return [] if index else [found]
        tasks = self.entries_after(first - 1, found.job.options.task.tasks)
        return [e for e in tasks if not index or (e.job and e.job.options.task.index_is(index))]

    def suggest(self, job: str, tenant: str | None = None) -> str:
        """Suggest the recent job's name closest to an unknown one, as a question; see `likely`."""
        latest = self._entries(_JOBS.order_by(ENTRIES.c.number.desc()).limit(LATEST))
        specs = [entry.job for entry in latest if entry.job]
        return likely(job, sorted({s.name for s in specs if tenant is None or s.tenant == tenant}))

    def find(self, job: str, tenant: str | None = None, before: int | None = None) -> Entry | None:
        """Find a job by id, or the latest job of a name; None if there is none. See `find_all`."""
        if not job or not job.isprintable():
            return None  # unnamed jobs have an empty name, which finds nothing
        jobs = _JOBS.order_by(ENTRIES.c.number.desc())
        if before is not None:
            jobs = jobs.where(ENTRIES.c.number < before)
        asked = jobs.where(ENTRIES.c.name == job)
        if job.isascii() and job.isdigit() and len(job) < 19:
            asked = jobs.where(ENTRIES.c.number == int(job))

        def work(connection: Connection) -> Entry | None:
            with connection.execute(asked).mappings() as rows:
                for entry in map(entry_of, rows):
                    if tenant is None or (entry.job and entry.job.tenant == tenant):
                        return entry
            return None

        return self._database.read(work)

    def _numbered(self, asked: Select[Any], numbers: Iterable[int]) -> Iterator[Entry]:
        """Yield the entries with some numbers that a query returns."""
        wanted = sorted({*numbers})
        for start in range(0, len(wanted), MOST_READ):
            some = wanted[start : start + MOST_READ]
            yield from self._entries(asked.where(ENTRIES.c.number.in_(some)))

    def _entries(self, asked: Select[Any]) -> list[Entry]:
        def work(connection: Connection) -> list[Entry]:
            return [entry_of(row) for row in connection.execute(asked).mappings()]

        return self._database.read(work)

    @property
    def run(self) -> str:
        """Return the id of the service's run; empty before its first start."""
        return self._value("run")

    @property
    def cluster(self) -> str:
        """Return the path of the service's cluster file; empty without one."""
        return self._value("cluster")

    def _value(self, name: str) -> str:
        asked = select(SERVICE.c.value).where(SERVICE.c.name == name)
        return self._database.read(lambda connection: connection.scalar(asked) or "")

    def set_cluster(self, cluster: Path) -> None:
        """Record the service's cluster file, which can move between starts."""

        def work(connection: Connection) -> None:
            connection.execute(delete(SERVICE).where(SERVICE.c.name == "cluster"))
            connection.execute(insert(SERVICE), {"name": "cluster", "value": str(cluster)})

        self._database.write(work)

    def claim(self, run: str) -> None:
        """Record, once and for all, the run that takes the entries in.

        Raises:
            InputError: The inbox belongs to another run.
        """

        def work(connection: Connection) -> str:
            asked = select(SERVICE.c.value).where(SERVICE.c.name == "run")
            found: str | None = connection.scalar(asked)
            if found is None:
                connection.execute(insert(SERVICE), {"name": "run", "value": run})
            return found or run

        if (found := self._database.write(work)) != run:
            remedy = "give another database"
            raise InputError("database_url", f"is the inbox of run {found!r}", remedy)

    def close(self) -> None:
        """Close all connections."""
        self._writer.shutdown()
        self._database.close()

    def __enter__(self) -> "Inbox":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _keys(key: str, entries: int) -> list[str]:
    """Return the keys of submissions that are accepted together under one key."""
    return [f"{key}[{place}]" if key and place else key for place in range(entries)]
