"""Questions and commands to a service, for the command line and the API.

It writes to the inbox of a warehouse alone, whether a scheduler runs or not.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from containers.runtime import EventKind
from flows.api.history import make_queue_rows, solve_last_round
from flows.api.queries import ServiceQueries
from flows.api.rows import QueueRow, format_jobs
from flows.scheduler.admission import (
    check_budget,
    check_job,
    check_node,
    check_tenant,
    check_terms,
)
from predictor.errors import InputError
from predictor.job import JobSpec
from tasks.commands import NO_NODE, NO_TERMS, CommandKind, NewNode
from warehouse.inbox.entries import Entry
from warehouse.workloads.families import FAMILIES

ENDED_BADLY = ("refused", EventKind.FAILED.value, EventKind.WITHDRAWN.value, "cancelled")
"""Status of jobs that nothing can come after."""


class ServiceCommands(ServiceQueries):
    """The service of a warehouse, to read and to write; see `DeskReader`."""

    @property
    def samples(self) -> dict[str, int]:
        """Samples per epoch of the models that are known, by model."""
        return {family.name: family.samples for family in FAMILIES}

    def submit(self, *jobs: JobSpec, by: str = "", key: str = "") -> list[Entry]:
        """Accept a job, or all tasks of an array: once this returns, a crash does not lose them.

        Jobs whose key is known were accepted, whatever holds by now.

        Args:
            *jobs: Their declarations; ids and arrivals are given to them.
            by: Who submits them.
            key: Makes it idempotent; see `Request`.

        Raises:
            InputError: The cluster cannot run them, or a field is invalid.
            WarehouseBusy: The inbox does not answer.
        """
        try:
            self.check(jobs[0])
        except InputError:
            if self.inbox.number_of(key) is None:
                raise
        return self.inbox.submit_all(jobs, by=by, key=key)

    def before(
        self, names: Sequence[str], tenant: str | None = None, known: int | None = None
    ) -> tuple[int, ...]:
        """The ids of the jobs that another job comes after, from their names.

        Args:
            names: Their ids or names.
            tenant: Only jobs of this tenant.
            known: The id of that other job, if it was accepted already: names are resolved as of
                then.

        Raises:
            InputError: There is no such job.
        """
        ids: dict[int, None] = {}
        for name in names:
            entries = self.inbox.find_all(name, tenant, known)
            if not entries:
                like = self.inbox.suggest(name, tenant)
                raise InputError(
                    "after", f"there is no job {name!r}", f"{like}see shockwave job list"
                )
            ids |= dict.fromkeys(entry.number for entry in entries)
        return tuple(ids)

    def check(self, job: JobSpec) -> None:
        """Refuse a job that the cluster cannot run, or whose predecessor did not end well.

        Raises:
            InputError: The job is refused.
        """
        self._check_fits(job)
        for row in self.jobs() if job.options.after else ():
            if row.job_id in job.options.after and row.status in ENDED_BADLY:
                problem = f"job {row.job_id} is {row.status}, so that nothing can start after it"
                raise InputError("after", problem, "leave it out, or submit that job once more")
        if job.image:
            check_tenant(job, self.inbox.terms(job.tenant))
        hosts = None
        with suppress(InputError):  # the file is gone: the round that takes the job in reports it
            hosts = self.hosts() if job.image or job.options.secrets else None
        if hosts:
            from containers.docker.own_images import check_images

            try:
                check_images(hosts, [job])
            except InputError as error:
                field = error.place.rpartition(", ")[2]
                raise InputError(field, error.problem, error.remedy) from None

    def _check_fits(self, job: JobSpec) -> None:
        """Refuse a job that the cluster cannot run, by the last known state and the present one."""
        if self.known:
            with suppress(InputError):
                check_job(job, self.header, self.known.state.present_inventory(self.header))
                return
        check_job(job, self.header, self.history().state.present_inventory(self.header))

    def command(
        self, kind: CommandKind, target: str, *, value: float = 0.0, by: str = "", key: str = ""
    ) -> list[Entry]:
        """Accept a command: once this returns, a crash does not lose it.

        Args:
            kind: Its kind.
            target: A job by id or name (the latest of that name, and all tasks of its array), or
                a node by its index or name.
            value: The new budget, of `budget`.
            by: Who gives it.
            key: Makes it idempotent; see `Request`.

        Raises:
            InputError: There is no such job or node, it has ended, or the value is invalid.
            WarehouseBusy: The inbox does not answer.
        """
        if kind is CommandKind.CORDON and self.header.settings.cells:
            problem = "cells that tenants are promised are served on all nodes in service"
            raise InputError("node", problem, "drain it")
        if kind.of_node:
            return self.inbox.command_all(kind, [self._node(target, key)], by=by, key=key)
        numbers = [entry.number for entry in self.entries(target)]
        return self.command_jobs(kind, numbers, value=value, by=by, key=key)

    def command_jobs(
        self,
        kind: CommandKind,
        jobs: Sequence[int],
        *,
        value: float = 0.0,
        by: str = "",
        key: str = "",
    ) -> list[Entry]:
        """Accept a command about jobs by their ids; see `command`.

        Raises:
            InputError: They have all ended, or the value is invalid.
            WarehouseBusy: The inbox does not answer.
        """
        if kind is CommandKind.BUDGET:
            check_budget("value", value)
        if self.inbox.number_of(key) is None:
            self._check_active(jobs)
        return self.inbox.command_all(kind, jobs, value=value, by=by, key=key)

    def _check_active(self, jobs: Sequence[int]) -> None:
        """Refuse jobs if none of them is active or waits to be taken in.

        The state suffices; no record before the snapshot is read.

        Raises:
            InputError: All of them have ended.
        """
        state = self.history().state
        if any(job > state.source_position.entries or job in state.beliefs for job in jobs):
            return
        ends = dict.fromkeys(
            "finished" if job in state.learning.finished_ids else "not finished" for job in jobs
        )
        problem = f"{format_jobs(jobs)} ended already: {', '.join(ends)}"
        raise InputError("job", problem, "see shockwave job list")

    def add(self, fields: Mapping[str, Any], *, by: str = "", key: str = "") -> Entry:
        """Accept a further node: once this returns, a crash does not lose it.

        Args:
            fields: Fields of a `NewNode`. On Docker hosts only its name in the cluster
                file; otherwise, missing fields are as of the last node.
            by: Who gives it.
            key: Makes it idempotent; see `Request`.

        Raises:
            InputError: The service cannot take it.
            WarehouseBusy: The inbox does not answer.
        """
        if self.inbox.number_of(key) is not None:  # missing fields are as of then
            return self.inbox.add(replace(NO_NODE, **fields), fields, by=by, key=key)
        state, hosts = self.history().state, self.hosts()
        inventory = state.inventory(self.header)
        last = inventory.pools[-1]
        if hosts is None:
            if fields.get("name"):
                remedy = "leave it out; on Docker hosts, it is one of the cluster file"
                raise InputError("name", "is no node of a virtual cluster", remedy)
            own = NewNode(gpu_type=last.gpu_type, gpus=last.gpus_per_node, price=last.price)
            node = replace(own, **fields)
        else:
            name = fields.get("name") or ""
            there = next((node for node in hosts.nodes if node.name == name), None)
            if there is None or len(fields) > 1:
                remedy = f"write it into {self.inbox.cluster}, and give its name alone"
                raise InputError("name", f"{name[:80]!r} is not in the cluster file", remedy)
            node = NewNode(name, there.gpu_type, len(there.gpus), there.price)
            from flows.runs.hosts import check_new

            check_new(name, self.names())
        check_node(node, self.header, inventory)
        return self.inbox.add(node, fields, by=by, key=key)

    def tenant(
        self, name: str, terms: Mapping[str, Any], *, by: str = "", key: str = ""
    ) -> list[Entry]:
        """Accept new terms of a tenant: once this returns, a crash does not lose them.

        Args:
            name: The tenant.
            terms: Fields of `TenantTerms`; the others stay as they were accepted last.
            by: Who gives them.
            key: Makes it idempotent; see `Request`.

        Raises:
            InputError: A term is out of bounds.
            WarehouseBusy: The inbox does not answer.
        """
        check_terms(replace(NO_TERMS, **terms))
        return [self.inbox.tenant(name, terms, by=by, key=key)]

    def entries(self, target: str, tenant: str | None = None) -> list[Entry]:
        """The entries of a job by its id or name, with all tasks of its array.

        Args:
            target: The job.
            tenant: Only jobs of this tenant.

        Raises:
            InputError: There is none.
        """
        matches = self.inbox.find_all(target, tenant)
        if not matches:
            like = self.inbox.suggest(target, tenant)
            raise InputError("job", f"there is no job {target!r}", f"{like}see shockwave job list")
        return matches

    def job(self, target: str) -> Entry:
        """The entry of a job by its id, or of the latest of its name; see `entries`."""
        return self.entries(target)[-1]

    def node(self, target: str) -> int:
        """The index of a node, from its text or its name.

        Raises:
            InputError: There is none.
        """
        rows = self.nodes()
        indices = [row.node for row in rows if target == str(row.node)]
        indices += [row.node for row in rows if row.name and target == row.name]
        if not indices:
            remedy = f"give one from {rows[0].node} to {rows[-1].node}" if rows else "add one"
            raise InputError("node", f"there is no node {target!r}", remedy)
        return indices[0]

    def _node(self, target: str, key: str) -> int:
        """The index of a node; with a known key, the node may be gone by now."""
        index = target.isascii() and target.isdigit() and len(target) < 10
        if self.inbox.number_of(key) is not None:
            if index:
                return int(target)
            if target in (names := self.names()):
                return names.index(target)
        return self.node(target)

    def expect(self, job: JobSpec) -> QueueRow:
        """The forecast of a job, as if it had arrived in the last round; nothing is accepted.

        Raises:
            InputError: The cluster cannot run it.
        """
        self.check(job)
        history = self.history()
        pending = self.pending(history)
        new = replace(job, job_id=self.inbox.last() + 1)
        run, this = solve_last_round(self.run, history, [*pending, new])
        (row,) = make_queue_rows(run, this, [new.job_id])
        return row
