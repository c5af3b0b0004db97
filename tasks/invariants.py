"""Invariants of every round of a run, under any policy.

A fold over records, independent of `tasks.state`: it trusts no record.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise

from containers.runtime import EventKind
from predictor.job import JobSpec, Mode
from predictor.options import array_of
from predictor.rows import from_json
from solver.cells.gangs import Waits
from solver.inventory import InService, Inventory
from solver.promised import PolicyMemory, Promises
from tasks.commands import Orders
from tasks.record import RoundRecord, RunHeader
from tasks.reports import Reports
from tasks.sources import Workload
from tasks.tenancy import NO_TENANCY, Tenancy, sum_gpu_seconds
from tasks.time_held import GpuHold, TimeHeld

TOLERANCE = 1e-6
"""Relative tolerance of objectives and bounds, for rounding errors."""


@dataclass
class Invariants:
    """The state that a run's earlier rounds imply, against which its next round is checked."""

    header: RunHeader
    workload: Workload
    arrived: int = 0
    started: set[int] = field(default_factory=set)
    entries: int = 0
    orders: Orders = field(default_factory=Orders)
    tenancy: Tenancy = NO_TENANCY
    time_held: TimeHeld = field(default_factory=TimeHeld)
    memory: str = ""
    reports: Reports = field(default_factory=Reports)

    def check(self, record: RoundRecord) -> Iterator[str]:
        """Check the next round; yield violated invariants, in words."""
        yield from self._observed(record)
        yield from self._expected(record)
        yield from self._decided(record)

    @property
    def unended(self) -> list[int]:
        """Jobs without an end: active jobs and jobs that never arrived."""
        never = self.workload.specs[self.arrived :]
        return [*self.reports.active, *(spec.job_id for spec in never)]

    def _observed(self, record: RoundRecord) -> Iterator[str]:
        since, now = self.reports.clock_seconds, record.clock_seconds
        held = self.time_held.measure_round(self.reports.leases, record.finished, now)
        self.tenancy = self.tenancy.after(now, self._by_tenant(held), record.commands)
        self.time_held = TimeHeld(now)
        yield from self.reports.check(record.observation)
        coming = self.workload.specs[self.arrived : self.arrived + len(record.arrivals)]
        if coming != record.arrivals:
            jobs = [spec.job_id for spec in record.arrivals]
            yield f"arrivals {jobs} are not the next jobs of the workload"
        for spec in record.arrivals:
            if spec.arrival_seconds > record.clock_seconds:
                yield f"job {spec.job_id} is admitted before it arrives"
            self.reports.active[spec.job_id] = spec
        self.arrived += len(record.arrivals)
        if self.header.service:
            yield from self._taken_in(record, since)
        self.orders = self.orders.after(self.reports.active, record.commands)

    def _by_tenant(self, held: dict[int, GpuHold]) -> dict[str, float]:
        active = self.reports.active
        times = ((active[job].tenant, held[job].gpu_seconds) for job in held if job in active)
        return sum_gpu_seconds(times, self.tenancy.usage)

    def _taken_in(self, record: RoundRecord, since: float) -> Iterator[str]:
        """Check that each entry of the inbox is taken in once, and cancelled jobs are withdrawn."""
        numbers = [spec.job_id for spec in record.arrivals]
        if record.truths and [truth.job_id for truth in record.truths] != numbers:
            yield "the ground truths are not those of the jobs that arrived"
        numbers += [command.number for command in record.commands]
        due = range(self.entries + 1, self.entries + len(numbers) + 1)
        if sorted(numbers) != [*due] and not self.header.settings.forked:
            yield f"entries {sorted(numbers)} are taken in, not {due.start} to {due.stop - 1}"
        self.entries += len(numbers)
        since = since if record.round else -math.inf
        times = {spec.job_id: spec.arrival_seconds for spec in record.arrivals}
        times |= {command.number: command.at_seconds for command in record.commands}
        for number, at in times.items():
            if not since < at <= record.clock_seconds:
                yield f"entry {number} is of another round"
        for job in sorted(self.orders.cancelled & self.reports.active.keys()):
            yield f"job {job} was cancelled and goes on"

    def _expected(self, record: RoundRecord) -> Iterator[str]:
        for forecast in record.forecasts:
            if forecast.job_id not in self.reports.active:
                yield f"job {forecast.job_id} is forecast and not active"
        for estimate in record.estimates:
            if not 0.0 <= estimate.low_seconds <= estimate.high_seconds < math.inf:
                yield f"the forecast of job {estimate.job_id} has no interval"
        for bid in record.bids:
            if bid.job_id not in self.reports.active:
                yield f"job {bid.job_id} bids and is not active"
        solve = record.solve
        slack = TOLERANCE * max(1.0, abs(solve.objective), abs(solve.bound))
        if not solve.objective <= solve.bound + slack and solve.status != "imprecise":
            yield f"the objective {solve.objective:g} is above its bound {solve.bound:g}"

    def _inventory(self, number: int | None = None) -> Inventory:
        """Return the cluster in a round, added nodes included; by default that of this run."""
        settings, added = self.header.settings, self.orders.added
        return settings.inventory_in(settings.first_own_round if number is None else number, added)

    def _decided(self, record: RoundRecord) -> Iterator[str]:
        inventory, drained = self._inventory(), {*record.solve.drained}
        for node in sorted(self.orders.out_of_service - drained):
            yield f"node {node} is in service against an order"
        now = {lease.job_id: lease.gpus for lease in record.leases}
        if len(now) < len(record.leases):
            yield "a job is launched twice"
        yield from self._shared(record.pairs, now)
        second = {pair[-1] for pair in record.pairs}
        exclusive = [gpus for job, gpus in now.items() if job not in second]
        for gpu, holders in Counter(chain.from_iterable(exclusive)).items():
            if holders > 1:
                yield f"GPU {gpu} is given to {holders} jobs"
            if not 0 <= gpu < self._inventory(record.round).gpus:
                yield f"there is no GPU {gpu}"
            elif gpu < inventory.gpus and inventory.node(gpu) in drained:
                yield f"GPU {gpu} is given away, and its node is out of service"
        held_at_once: Counter[int | None] = Counter()
        for job, gpus in now.items():
            spec = self.reports.active.get(job)
            if spec is None:
                yield f"job {job} is launched and not active"
            elif not self.orders.may_run(job):
                yield f"job {job} is launched against an order"
            elif self._over_quota(spec):
                yield f"job {job} is launched, and its tenant has used up its quota"
            elif not self.reports.finished.issuperset(spec.options.after):
                yield f"job {job} is launched before what it comes after has ended well"
            elif not spec.demand.least <= len(gpus) <= spec.demand.most:
                asked = f"{spec.demand.least} to {spec.demand.most}"
                yield f"job {job} gets {len(gpus)} GPUs and asked for {asked}"
            nodes = inventory.nodes_of(gpus)
            tenant, clock = spec.tenant if spec else "", record.clock_seconds
            if self.reports.leases.get(job) != gpus:
                if nodes & self.orders.closed_to(tenant, clock):
                    yield f"job {job} is launched on a node that is cordoned or set aside"
            elif spec and spec.preemptible and nodes & self.orders.maintained(clock):
                yield f"job {job} stays on a node under maintenance"
            if any(gpu >= following for gpu, following in pairwise(gpus)):
                yield f"the GPUs of job {job} are not in order"
            if spec and spec.options.task.at_once:
                held_at_once[array_of(job, spec.options)] += 1
                if held_at_once[array_of(job, spec.options)] > spec.options.task.at_once:
                    yield f"job {job} is launched beside too many tasks of its array"
            if spec and gpus:
                yield from self._off_the_menu(spec, gpus, record.round)
        yield from self._kept(record, now)
        yield from self._promised(record, now)
        yield from self._carried_out(record, now)
        held = self.time_held.measure_dispatch(self.reports.leases, record.events)
        self.tenancy = self.tenancy.charge(self._by_tenant(held))
        self.time_held = self.time_held.after_dispatch(record.events, {})
        self.reports.leases = now
        self.started |= now.keys()

    def _shared(
        self, pairs: tuple[tuple[int, ...], ...], now: dict[int, tuple[int, ...]]
    ) -> Iterator[str]:
        """Check that jobs that share GPUs are two, hold the same GPUs, and fit together."""
        for job, times in Counter(chain.from_iterable(pairs)).items():
            if times > 1:
                yield f"job {job} shares its GPUs {times} times"
        for pair in pairs:
            if len({*pair}) != 2 or len({now.get(job, ()) for job in pair}) > 1:
                yield f"jobs {list(pair)} are a pair and do not hold the same GPUs"
            elif self.reports.active.keys() >= {*pair} and now.keys() >= {*pair}:
                first, other = (self.reports.active[job] for job in pair)
                there = self._inventory().allocation(now[first.job_id])
                sizes = [
                    self.reports.batch_sizes.get(job.job_id, job.batch_size)
                    for job in (first, other)
                ]
                rate = self.header.throughputs.shared_rate
                if not rate(first, sizes[0], other, sizes[1], there):
                    yield f"jobs {list(pair)} share GPUs and cannot run together there"

    def _off_the_menu(self, spec: JobSpec, gpus: tuple[int, ...], number: int) -> Iterator[str]:
        """Check that GPUs are of one pool, and of a type that the job can run on."""
        inventory = self._inventory(number)
        if not all(0 <= gpu < inventory.gpus for gpu in gpus):
            return  # reported before
        if len(set(map(inventory.pool, gpus))) > 1:
            yield f"the GPUs {list(gpus)} of job {spec.job_id} span pools"
        found = inventory.allocation(gpus)
        table, adapts = self.header.throughputs, self.header.adapts and spec.mode is Mode.GOODPUT
        size = spec.max_batch_size if adapts else spec.batch_size
        runs = table.can_run(spec, size, found)
        if not (runs and spec.demand.allows(found.gpu_type)):
            there = found.gpu_type + f" on {found.nodes} nodes" * (found.nodes > 1)
            yield f"job {spec.job_id} gets GPUs of type {there} and cannot run there"

    def _promised(self, record: RoundRecord, now: dict[int, tuple[int, ...]]) -> Iterator[str]:
        """Check that tenants have what they are promised (`solver.promised`).

        Jobs in cells hold the GPUs of these cells. All promises can still be kept at once. No job
        that fits into cells of its tenant waits or trades.
        """
        settings = self.header.settings
        self.memory = record.memory or self.memory
        if settings.layout is None or record.round < settings.first_own_round:
            return
        drained = record.solve.drained
        nodes = InService(settings.inventory, drained)
        if nodes.inventory is None:
            return
        cordoned = tuple(sorted(self.orders.cordoned))
        promises = Promises(settings.layout, settings.inventory, nodes, drained, cordoned)
        held = [
            job
            for job in from_json(PolicyMemory, self.memory).held
            if job.job_id in self.reports.active
        ]
        for gang in held:
            if now.get(gang.job_id) != gang.whole:
                yield f"job {gang.job_id} is in cells of its tenant and does not hold their GPUs"
        cells = promises.cells(
            held, {job: spec.tenant for job, spec in self.reports.active.items()}
        )
        if demoted := cells.demoted():
            yield f"jobs {', '.join(demoted)} are in cells that their tenants do not have"
        if not cells.safe():
            yield "promised cells that are not taken could not all be given at once"
        inside = {job.job_id for job in held}
        for job, spec in self.reports.active.items():
            waits = spec.options.after or array_of(job, spec.options) is not None
            kept = (
                job in self.reports.failed or not self.orders.may_run(job) or self._over_quota(spec)
            )
            if job in inside or waits or kept or spec.opportunistic:
                continue  # it may have to wait for other reasons
            menu = settings.inventory.menu_of(spec, spec.batch_size, self.header.throughputs)
            kinds = [(found.gpu_type, found.gpus) for found in menu]
            for request in promises.requests(job, spec.tenant, kinds):
                if not isinstance(cells.ask(request), Waits):
                    yield f"cells of tenant {spec.tenant} are free, and job {job} is not in them"
                    cells.end(request.name)
                    break

    def _over_quota(self, spec: JobSpec) -> bool:
        """Return whether its tenant's quota bars a job from GPUs; non-preemptible jobs continue."""
        goes_on = not spec.preemptible and spec.job_id in self.reports.leases
        return self.tenancy.spent_until(spec.tenant) is not None and not goes_on

    def _kept(self, record: RoundRecord, now: dict[int, tuple[int, ...]]) -> Iterator[str]:
        """Check that non-preemptible jobs keep their GPUs.

        They may lose them only by an order, or if their nodes go out of service.
        """
        for job, gpus in self.reports.leases.items():
            spec = self.reports.active.get(job)
            if spec is None or spec.preemptible or now.get(job) == gpus:
                continue
            if not self.orders.may_run(job):
                continue
            inventory, whole = self._inventory(record.round), self._inventory()
            there = gpus[-1] < min(inventory.gpus, whole.gpus)
            if there and {*map(whole.node, gpus)}.isdisjoint(record.solve.drained):
                yield f"job {job} is {spec.kind.value} and loses its GPUs {list(gpus)}"

    def _carried_out(self, record: RoundRecord, now: dict[int, tuple[int, ...]]) -> Iterator[str]:
        """Check that the events explain the change from the last leases to the current leases."""
        due = {
            (job, "preempted", gpus) for job, gpus in self.reports.leases.items() if job not in now
        }
        due |= {
            (job, "launched", gpus)
            for job, gpus in now.items()
            if self.reports.leases.get(job) != gpus
        }
        reported = set()
        for event in record.events:
            preempted = event.kind is EventKind.PREEMPTED
            reported.add((event.job_id, "preempted" if preempted else "launched", event.gpus))
            first = event.kind is EventKind.STARTED
            if not preempted and first is (event.job_id in self.started):
                yield f"job {event.job_id} is {event.kind}, {'' if first else 'not '}having run"
        for job, what, gpus in sorted(due - reported):
            yield f"job {job} is {what} (GPUs {list(gpus)}) without an event"
        for job, what, gpus in sorted(reported - due):
            yield f"job {job} has an event: {what} (GPUs {list(gpus)}), and no such lease"
