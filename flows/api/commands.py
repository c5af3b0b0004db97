"""A service's commands: they are checked, then accepted into its inbox.

They need no running scheduler: its next round takes them in.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO

from containers.runtime import EventKind
from flows.api.history import ServiceHistory, solve_last_round
from flows.api.queries import ServiceQueries
from flows.api.queue import make_queue_rows
from flows.api.requests import WindowRequest
from flows.api.rows import DryRun, QueueRow, SizeRow, format_jobs
from flows.api.submission import make_specs
from flows.runs.job_file import JobFile
from flows.scheduler.admission import (
    check_budget,
    check_job,
    check_node,
    check_order,
    check_tenant,
    check_terms,
)
from flows.scheduler.intake import NEW_SERVICE, NODES_OF_SLURM, refuse_image
from predictor.allocation import Allocation, Demand
from predictor.errors import InputError, WarehouseError
from predictor.image import find_code
from predictor.job import JobSpec
from predictor.options import NO_OPTIONS
from solver.configurations import list_configurations, node_sizes
from solver.inventory import Inventory, Pool
from solver.plan import ActiveJob
from tasks.commands import HOUR, NO_NODE, NO_TERMS, CommandKind, NewNode
from tasks.record import RuntimeKind
from tasks.rollouts import forecast_times
from warehouse.inbox.entries import Entry
from warehouse.workloads.families import FAMILIES

if TYPE_CHECKING:
    from containers.docker.daemon import Shell

DEFAULT_SHELL = ("/bin/sh",)
"""Program of a shell."""

NO_SHELL = "has no shell: none of its containers runs"
"""Problem of a job whose containers are being started, or have ended."""

UNSUCCESSFUL = ("refused", EventKind.FAILED.value, EventKind.WITHDRAWN.value, "cancelled")
"""Statuses of jobs after which dependent jobs cannot start."""

SAMPLES = {family.name: family.samples for family in FAMILIES}
"""Samples per epoch of the known models."""


MOST_SIZES = 8
"""Sizes of a job that a dry run tries: each is a simulation of the queue. An engineering bound."""


class JobNotFound(InputError):
    """There is no such job, or the caller may not see it."""


class ServiceCommands(ServiceQueries):
    """Queries and commands of a warehouse's service; see `ServiceQueries`.

    Submissions and commands are durable when the method returns. A repetition with the same
    idempotency key (see `Request`) has no further effect. All methods raise `WarehouseBusy` if the
    inbox does not answer.
    """

    def submit(self, *jobs: JobSpec, by: str = "", key: str = "") -> list[Entry]:
        """Accept a job, or all tasks of an array; the inbox assigns ids and arrivals.

        Raises:
            InputError: The cluster cannot run the jobs, or a field is invalid.
        """
        try:
            self.check_job(jobs[0])
        except InputError:
            if self.inbox.number_of(key) is None:  # a repeated request stays accepted
                raise
        return self.inbox.submit_all(jobs, by=by, key=key)

    def store_code(self, archive: BinaryIO, tenant: str) -> str:
        """Store the code of a tenant's jobs, and return the SHA-256 of its archive.

        Raises:
            InputError: The archive is refused, or the service runs no containers.
            WarehouseError: The storage cannot be written.
        """
        from containers.docker.nodes import Nodes
        from containers.leasing.code import store_code

        hosts, history = self.read_hosts(), self.read_history()
        if not isinstance(hosts, Nodes):
            raise InputError("code", "is for containers, and the service runs none", "leave it out")
        active = [belief.spec for belief in history.state.beliefs.values()]
        named = {find_code(job.environment) for job in (*active, *self.list_pending(history))}
        try:
            return store_code(hosts.storage, tenant, archive, named)
        except OSError as error:
            problem = f"cannot be stored: {error.strerror}"
            remedy = "ask an operator to look after the storage"
            raise WarehouseError("code", problem, remedy) from None

    def open_shell(self, job_id: int, command: Sequence[str], *, by: str) -> "Shell":
        """Open a shell in a running job; the records say who did.

        Raises:
            InputError: No container of the job runs, or it lacks the program.
        """
        from containers.docker.fleet import Fleet
        from containers.docker.nodes import Nodes
        from containers.leasing.engine import NodeGone, Refused

        hosts, place = self.read_hosts(), f"job {job_id}"
        if not isinstance(hosts, Nodes):
            remedy = f"see shockwave why {job_id}"
            raise InputError(place, "is in no container, as the service runs none", remedy)
        fleet = Fleet(hosts, self.run)
        try:
            shell = fleet.open_shell(job_id, command or DEFAULT_SHELL)
        except (NodeGone, Refused) as error:
            fleet.close()
            remedy = f"see shockwave why {job_id}, and shockwave queue"
            raise InputError(place, f"has no shell: {error}", remedy) from None
        try:
            self.inbox.command(CommandKind.SHELL, job_id, by=by)
        except BaseException:  # nobody uses a shell that is not in the records
            shell.close()
            raise
        return shell

    def make_specs(
        self, job: JobFile, find_jobs: Callable[[Sequence[str]], tuple[int, ...]]
    ) -> tuple[JobSpec, ...]:
        """Return a declared job, or the tasks of its array; see `submission.make_specs`."""
        return make_specs(job, self.header.throughputs, SAMPLES, find_jobs)

    def find_predecessors(
        self, names: Sequence[str], tenant: str | None = None, known: int | None = None
    ) -> tuple[int, ...]:
        """Return the ids of the jobs for which a job waits.

        Args:
            names: Their ids or names.
            tenant: Restricts the search to this tenant's jobs.
            known: The waiting job's id if it was accepted before: names then keep their meaning of
                that time.

        Raises:
            InputError: There is no such job.
        """
        ids: dict[int, None] = {}
        for name in names:
            try:
                entries = self.find_entries(name, tenant, known)
            except JobNotFound as error:
                raise InputError("after", error.problem, error.remedy) from None
            ids |= dict.fromkeys(entry.number for entry in entries)
        return tuple(ids)

    def check_job(self, job: JobSpec) -> None:
        """Refuse a job that the cluster cannot run, or whose predecessors did not succeed.

        Raises:
            InputError: The job is refused.
        """
        self._check_fits(job)
        for row in self.list_jobs() if job.options.after else ():
            if row.job_id in job.options.after and row.status in UNSUCCESSFUL:
                problem = f"job {row.job_id} is {row.status}, so no job can start after it"
                raise InputError("after", problem, "submit that job again, or leave this out")
        if job.image:
            check_tenant(job, self.inbox.terms(job.tenant))
        hosts = None
        with suppress(InputError):  # without its cluster file, the next round refuses the job
            hosts = (
                self.read_hosts()
                if job.image or job.timed or job.environment or job.options != NO_OPTIONS
                else None
            )
        if hosts:
            from containers.docker.own_images import check_needs, check_present
            from containers.slurm.cluster import SlurmSite
            from containers.slurm.rendering import check_needs as check_needs_on_slurm

            try:
                if isinstance(hosts, SlurmSite):
                    check_needs_on_slurm(hosts.trainer, [job])
                else:
                    check_needs(hosts, [job])
                    check_present(hosts, job)
            except InputError as error:
                field = error.place.rpartition(", ")[2]
                raise InputError(field, error.problem, error.remedy) from None

    def _check_fits(self, job: JobSpec) -> None:
        """Refuse a job that fits neither the last known cluster nor the present one.

        The known cluster comes first because it needs no reading of records.
        """
        if self.known:
            with suppress(InputError):
                check_job(job, self.header, self.known.state.present_inventory(self.header))
                return
        check_job(job, self.header, self.read_history().state.present_inventory(self.header))

    def command(
        self,
        kind: CommandKind,
        target: str,
        *,
        value: float = 0.0,
        by: str = "",
        key: str = "",
        tenant: str | None = None,
    ) -> list[Entry]:
        """Accept a command.

        Args:
            kind: Its kind.
            target: A job by id or name (the latest of that name, with all tasks of its array), or
                a node by index or name.
            value: The new budget, for `CommandKind.BUDGET`.
            by: The sender.
            key: Idempotency key.
            tenant: Restricts the command to this tenant's jobs.

        Raises:
            JobNotFound: There is no such job.
            InputError: There is no such node, the job has ended, or the value is invalid.
        """
        known = self.inbox.number_of(key)
        if kind in (*CommandKind.windows(), CommandKind.REOPEN):
            raise InputError("kind", f"{kind.value} needs a window", "see add_window and reopen")
        if kind is CommandKind.CORDON and self.header.settings.cells:
            problem = "cells promised to tenants need all nodes in service"
            raise InputError("node", problem, "drain it")
        if kind.of_node:
            node = self._find_node(target, known)
            if kind is CommandKind.IMAGE and known is None:
                self._check_image(node)
            if known is None:
                self._check_orders(kind, [node])
            return self.inbox.command_all(kind, [node], by=by, key=key)
        # A repeated command must reach the job that the name meant at first.
        entries = self.find_entries(target, tenant, None if target.isdigit() else known)
        numbers = [entry.number for entry in entries]
        if kind is CommandKind.BUDGET:
            check_budget("value", value)
        if known is None:
            self._check_active(numbers)
            self._check_orders(kind, numbers)
        return self.inbox.command_all(kind, numbers, value=value, by=by, key=key)

    def _check_orders(self, kind: CommandKind, targets: Sequence[int]) -> None:
        """Refuse what would take GPUs back from users' Slurm jobs, which run on."""
        if self.header.settings.runtime == RuntimeKind.SLURM and not self.inbox.cluster:
            state = self.read_history().state
            for target in targets:
                check_order(kind, target, state, state.inventory(self.header))

    def _check_image(self, node: int) -> None:
        hosts = self.read_hosts()
        from containers.docker.nodes import Nodes

        if not isinstance(hosts, Nodes):
            refuse_image(node, 0)
        else:
            from flows.runs.hosts import read_image

            read_image(hosts, self.read_node_names()[node])

    def _check_active(self, jobs: Sequence[int]) -> None:
        """Refuse jobs that have all ended; reads no old records."""
        state = self.read_history().state
        if any(job > state.source_position.entries or job in state.beliefs for job in jobs):
            return
        ends = dict.fromkeys(
            "finished" if job in state.learning.finished_ids else "not finished" for job in jobs
        )
        problem = f"{format_jobs(jobs)} already ended: {', '.join(ends)}"
        raise InputError("job", problem, "see shockwave job list")

    def add_node(self, fields: Mapping[str, Any], *, by: str = "", key: str = "") -> Entry:
        """Accept a further node, given by fields of a `NewNode`.

        On Docker hosts, `fields` has only the name in the cluster file. Otherwise, missing fields
        are copied from the last node.

        Raises:
            InputError: The service cannot take the node.
        """
        if self.inbox.number_of(key) is not None:  # the first request completed the fields
            return self.inbox.add(replace(NO_NODE, **fields), fields, by=by, key=key)
        inventory = self.read_history().state.inventory(self.header)
        node = self._complete_node(fields, inventory.pools[-1])
        check_node(node, self.header, inventory)
        return self.inbox.add(node, fields, by=by, key=key)

    def _complete_node(self, fields: Mapping[str, Any], last: Pool) -> NewNode:
        """Fill in the missing fields of a node from the cluster file or the last pool."""
        hosts, name = self.read_hosts(), fields.get("name") or ""
        if hosts is None:
            if name:
                remedy = "leave it out; only Docker hosts have names"
                raise InputError("name", "has no effect on a virtual cluster", remedy)
            own = NewNode(gpu_type=last.gpu_type, gpus=last.gpus_per_node, price=last.price)
            return replace(own, **fields)
        from containers.slurm.cluster import SlurmSite

        if isinstance(hosts, SlurmSite):
            raise InputError("name", NODES_OF_SLURM, NEW_SERVICE)
        there = next((node for node in hosts.nodes if node.name == name), None)
        if there is None or len(fields) > 1:
            remedy = f"add it to {self.inbox.cluster}, and give only its name"
            raise InputError("name", f"{name[:80]!r} is not in the cluster file", remedy)
        from flows.runs.hosts import check_new

        check_new(name, self.read_node_names())
        return NewNode(name, there.gpu_type, len(there.gpus), there.price)

    def add_windows(
        self, node: str, window: WindowRequest, tenant: str = "", *, by: str = "", key: str = ""
    ) -> list[Entry]:
        """Accept windows of a node: for maintenance, or reserved for a tenant.

        Raises:
            InputError: There is no such node, or the windows are invalid or overlap others.
        """
        if self.header.settings.cells:
            problem = "cells promised to tenants need all nodes in service"
            raise InputError("node", problem, "promise the tenant cells, or drain the node")
        known = self.inbox.number_of(key)
        index, now = self._find_node(node, known), time.time()
        if known is not None:  # a repetition means the same windows
            (first,) = self.inbox.entries_after(known - 1, most=1)
            now = first.accepted_at if window.start else first.value
        starts = window.list_starts(datetime.fromtimestamp(now, UTC))
        kind = CommandKind.RESERVE if tenant else CommandKind.MAINTAIN
        values = [at.timestamp() for at in starts]
        if known is None:
            self._check_windows(index, values, window.hours, tenant)
        return self.inbox.add_windows(kind, index, values, window.hours, tenant, by=by, key=key)

    def _check_windows(self, node: int, starts: Sequence[float], hours: float, tenant: str) -> None:
        """Refuse windows that overlap windows of the same kind, as a repeated request's do."""
        known = [
            (window.number, window.value, window.value + window.terms.window_hours * HOUR)
            for window in self.inbox.windows_of(node)
            if window.terms.tenant == tenant
        ]
        for start in starts:
            for number, begin, end in known:
                if begin < start + hours * HOUR and start < end:
                    until = datetime.fromtimestamp(math.ceil(end), UTC).isoformat()
                    problem = f"window {number} sets node {node} aside already, until {until}"
                    remedy = f"start then to extend it, or end it: shockwave node reopen {number}"
                    raise InputError("start", problem, remedy)

    def reopen(self, number: int, *, by: str = "", key: str = "") -> Entry:
        """Accept the end of a window; one that has not begun does not begin.

        Raises:
            InputError: There is no such window.
        """
        known = self.inbox.number_of(key) is not None
        windows = self.inbox.entries_after(number - 1, most=1) if number > 0 else []
        kinds = CommandKind.windows()
        if not known and (not windows or windows[0].kind not in kinds):
            remedy = "see shockwave node windows"
            raise InputError("window", f"there is no window {number}", remedy)
        return self.inbox.command(CommandKind.REOPEN, number, by=by, key=key)

    def update_tenant(
        self, name: str, terms: Mapping[str, Any], *, by: str = "", key: str = ""
    ) -> Entry:
        """Accept new terms of a tenant, given by fields of `TenantTerms`.

        Raises:
            InputError: A term is out of bounds.
        """
        check_terms(replace(NO_TERMS, **terms))
        return self.inbox.tenant(name, terms, by=by, key=key)

    def find_entries(
        self, target: str, tenant: str | None = None, known: int | None = None
    ) -> list[Entry]:
        """Return the entries of a job by id or name, with all tasks of its array.

        Only jobs of `tenant` count if it is given. With `known`, names mean what they meant at that
        entry.

        Raises:
            JobNotFound: There is no such job.
        """
        matches = self.inbox.find_all(target, tenant, known)
        if not matches:
            like = self.inbox.suggest(target, tenant)
            raise JobNotFound("job", f"there is no job {target!r}", f"{like}see shockwave job list")
        return matches

    def find_job(self, target: str, tenant: str | None = None) -> int:
        """Return the id of a job by id or name (the latest of that name); see `find_entries`."""
        return self.find_entries(target, tenant)[-1].number

    def find_node(self, target: str) -> int:
        """Return the index of a node by its index or name.

        Raises:
            InputError: There is no such node.
        """
        rows = self.list_nodes()
        indices = [row.node for row in rows if target == str(row.node)]
        indices += [row.node for row in rows if row.name and target == row.name]
        if not indices:
            remedy = f"give one from {rows[0].node} to {rows[-1].node}" if rows else "add one"
            raise InputError("node", f"there is no node {target!r}", remedy)
        return indices[0]

    def _find_node(self, target: str, known: int | None) -> int:
        """Return a node's index; a repeated command may name a node that was removed since."""
        if known is not None:
            if target.isascii() and target.isdigit() and len(target) < 10:
                return int(target)
            if target in (names := self.read_node_names()):
                return names.index(target)
        return self.find_node(target)

    def forecast_job(self, job: JobSpec) -> DryRun:
        """Forecast a job as if it had arrived in the last round; it is not accepted.

        Raises:
            InputError: The cluster cannot run the job.
        """
        self.check_job(job)
        history, new = self.read_history(), replace(job, job_id=self.inbox.last() + 1)
        row, active, inventory = self._try(history, new)
        known = row.deadline_in_s is not None and active.forecast is not None
        size = self._find_size(history, new, active, inventory) if known else None
        fields = {field.name: getattr(row, field.name) for field in dataclass_fields(row)}
        return DryRun(**fields, size=size)

    def _find_size(
        self, history: ServiceHistory, new: JobSpec, active: ActiveJob, inventory: Inventory
    ) -> SizeRow | None:
        """Find the size of an elastic job that should meet its deadline; see `DryRun`."""
        menu = inventory.menu_of(new, new.batch_size, active.throughput, elastic=True)
        if len({entry.gpus for entry in menu}) < 2:
            return None
        sizes = list_configurations(replace(active, menu=menu), node_sizes(inventory))
        work = {entry: active.run_time(entry).remaining * entry.gpus for entry in sizes}
        within = new.options.deadline_seconds  # others are late even if they start at once
        early = [entry for entry in sizes if work[entry] <= within * entry.gpus]
        early.sort(key=lambda entry: (work[entry], entry.gpus))
        for entry in spread_out(early, MOST_SIZES):
            kinds = (entry.gpu_type,) if inventory.mixed else new.demand.types
            gang = replace(new, demand=Demand(entry.gpus, entry.gpus, kinds))
            row, _, _ = self._try(history, gang)
            if row.in_time == "yes" and row.ends_in_s is not None:
                kind = entry.gpu_type if inventory.mixed else ""
                return SizeRow(kind, entry.gpus, row.ends_in_s, work[entry] / 3600.0)
        return None

    def _try(self, history: ServiceHistory, new: JobSpec) -> tuple[QueueRow, ActiveJob, Inventory]:
        """Return a new job's forecast, the job, and the nodes in service or, without any, all."""
        run, this = solve_last_round(self.run, history, [*self.list_pending(history), new])
        times = forecast_times(run, this, {new.job_id})
        (row,) = make_queue_rows(run, this, [new.job_id], times)
        return row, this.active[new.job_id], this.nodes.inventory or this.nodes.whole


def spread_out(sizes: Sequence[Allocation], most: int) -> list[Allocation]:
    """Return at most so many sizes, two or more, from first to last in growing steps."""
    if len(sizes) <= most:
        return [*sizes]
    places = {round(len(sizes) ** (step / (most - 1))) - 1 for step in range(most)}
    return [sizes[place] for place in sorted(places)]
