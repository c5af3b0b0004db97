"""Place jobs in tenants' cells before the policy plans (HiveD, OSDI '20; `solver.cells`).

Each round, jobs of tenants with cells ask for them. A job that gets cells holds their GPUs until
its end, whatever others bid. All other jobs trade for the rest, idle promised GPUs included. They
are opportunistic: a job whose GPUs are needed for a promise loses them at the next round.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain

from predictor.rows import from_json, to_json
from solver.cells.cells import Cells
from solver.cells.gangs import CellRequest, RunningGang, Slot, Waits
from solver.cells.layout import Layout
from solver.inventory import InService, Inventory
from solver.plan import Plan, Situation, SolveReport, drop_lost_gpus, keep_fitting

NOT_TRADED = "a job that is not preempted runs in cells only, where tenants have some"


@dataclass(frozen=True)
class Held:
    """A job in its tenant's cells.

    Attributes:
        gpus: GPUs of each member, each on one node, by index in the whole inventory.
        levels: Level of the promised cell of each GPU.
    """

    job_id: int
    gpus: tuple[tuple[int, ...], ...]
    levels: tuple[tuple[str, ...], ...]

    @property
    def whole(self) -> tuple[int, ...]:
        """Its GPUs, ascending."""
        return tuple(sorted(chain.from_iterable(self.gpus)))


@dataclass(frozen=True)
class PolicyMemory:
    """The memory of a plan: the jobs in cells, and the policy's own memory."""

    held: tuple[Held, ...] = ()
    policy: str = ""


@dataclass(frozen=True)
class Promises:
    """A cluster's promises to its tenants.

    Attributes:
        layout: Cells and promises, of the whole inventory.
        whole: The whole inventory.
        nodes: Its nodes in service, as policies number them.
        drained: Indices of its other nodes, ascending.
        cordoned: Indices of nodes on which no job starts, ascending.
    """

    layout: Layout
    whole: Inventory
    nodes: InService = field(compare=False)
    drained: tuple[int, ...] = ()
    cordoned: tuple[int, ...] = ()

    def cells(self, held: Sequence[Held], tenant_of: Mapping[int, str]) -> Cells:
        """Return the cells with their jobs, `held` in the order in which they began."""
        cells = Cells(self.layout)
        for node in self.drained:
            cells.report(str(node), False)
        cells.restore(
            RunningGang(
                self.request(job.job_id, tenant_of[job.job_id], job.gpus[0][0], len(job.whole)),
                tuple(tuple(map(self.slot, member)) for member in job.gpus),
                job.levels,
            )
            for job in held
        )
        for node in self.cordoned:  # jobs in cells there stay in them
            if node < self.whole.nodes:
                cells.report(str(node), False)
        return cells

    def request(self, job_id: int, tenant: str, near: int, gpus: int) -> CellRequest:
        """Return a job's request for cells of a GPU's pool: as many whole nodes as it fills."""
        pool = self.whole.pools[self.whole.pool(near)]
        nodes, rest = divmod(gpus, pool.gpus_per_node)
        members = (pool.gpus_per_node,) * nodes + (rest,) * (rest > 0)
        return CellRequest(str(job_id), tenant, members, pool.gpu_type)

    def requests(
        self, job_id: int, tenant: str, menu: Sequence[tuple[str, int]]
    ) -> list[CellRequest]:
        """Return a job's requests, in menu order, for cells of each type that its tenant has.

        The menu lists GPU types and numbers of GPUs.
        """
        own = next((known for known in self.layout.tenants if known.name == tenant), None)
        numbers = {int(promise.pool) for promise in own.cells} if own else set()
        return [
            self.request(job_id, tenant, self.whole.first_gpus[number], gpus)
            for kind, gpus in menu
            for number in self.whole.pools_of.get(kind, ())
            if number in numbers
        ]

    def slot(self, gpu: int) -> Slot:
        """Return a GPU of the whole inventory as a slot of its node."""
        node = self.whole.node(gpu)
        return Slot(str(node), gpu - self.whole.gpus_of(node).start)

    def gpu(self, slot: Slot) -> int:
        """Return the index of a slot in the whole inventory."""
        return self.whole.gpus_of(int(slot.node)).start + slot.gpu


@dataclass(frozen=True, slots=True)
class GpuWindow:
    """A time for which GPUs are set aside, on the run's clock.

    Attributes:
        tenant: Whose jobs may start there; empty for maintenance.
    """

    gpus: frozenset[int]
    begin_seconds: float
    end_seconds: float
    tenant: str = ""


@dataclass(frozen=True)
class RoundInput(Situation):
    """All input of a decision: policy input, and what policies never see.

    Attributes:
        cordoned: GPUs on which no job starts; jobs that hold some of them continue.
        promises: Promises to tenants; None without any.
        windows: Open and future windows, in order.
    """

    cordoned: frozenset[int] = frozenset()
    promises: Promises | None = None
    windows: tuple[GpuWindow, ...] = ()

    @cached_property
    def maintained(self) -> frozenset[int]:
        """GPUs under maintenance; only jobs that are not preempted continue there."""
        return frozenset().union(*(w.gpus for w in self._open if not w.tenant))

    @cached_property
    def closed(self) -> frozenset[int]:
        """GPUs on which no job starts."""
        return self.cordoned | self.maintained

    @cached_property
    def reserved(self) -> dict[str, frozenset[int]]:
        """GPUs on which only jobs of a tenant start, by tenant."""
        taken, found = {*self.closed}, dict[str, frozenset[int]]()
        for window in self._open:
            if window.tenant:
                found[window.tenant] = found.get(window.tenant, frozenset()) | window.gpus - taken
                taken |= window.gpus
        return found

    @property
    def _open(self) -> list[GpuWindow]:
        now = self.clock_seconds
        return [w for w in self.windows if w.begin_seconds <= now < w.end_seconds]

    def for_policies(self) -> Situation:
        """Return only the policy input."""
        return Situation(**{part.name: getattr(self, part.name) for part in fields(Situation)})


def around_cells(name: str, plan: Callable[[RoundInput], Plan], situation: RoundInput) -> Plan:
    """Return the plan of policy `name` for GPUs that no promise needs, plus the jobs in cells.

    The memory of the policy input is a `PolicyMemory`.
    """
    promises = situation.promises
    assert promises is not None
    noted = from_json(PolicyMemory, situation.memory)
    held, why = _in_cells(promises, noted.held, situation)
    nodes = promises.nodes
    placement = {job.job_id: nodes.numbered(job.whole) for job in held}
    inventory = situation.inventory.without(chain.from_iterable(placement.values()))
    trading = [
        drop_lost_gpus(job, inventory) for job in situation.jobs if job.job_id not in placement
    ]
    found = Plan({}, SolveReport(name, reason="all GPUs are in use by promise"))
    jobs = tuple(keep_fitting(inventory, (job for job in trading if job.spec.preemptible)))
    why |= {job.job_id: NOT_TRADED for job in trading if not job.spec.preemptible}
    if inventory.gpus:
        found = plan(replace(situation, inventory=inventory, jobs=jobs, memory=noted.policy))
    memory = to_json(PolicyMemory(held, found.memory or noted.policy))
    return replace(
        found,
        placement={**placement, **found.placement},
        memory="" if memory == situation.memory else memory,
        promised=why,
    )


def _in_cells(
    promises: Promises, noted: Sequence[Held], situation: RoundInput
) -> tuple[tuple[Held, ...], dict[int, str]]:
    """Return the jobs in cells from now on, and the result for each job that may ask, in words."""
    jobs = {job.job_id: job for job in situation.jobs}
    runs = {job.job_id: promises.nodes.known_as(job.gpus) for job in situation.jobs if job.gpus}
    before = [job for job in noted if runs.get(job.job_id) == job.whole]
    tenant_of = {job_id: job.spec.tenant for job_id, job in jobs.items()}
    cells = promises.cells(before, tenant_of)
    inside = {job.job_id for job in before}
    # One job stands for a pair that shares GPUs: both lose their GPUs together.
    traded = {gpus: job_id for job_id, gpus in runs.items() if job_id not in inside}
    cells.restore(_trading(job_id, gpus, promises) for gpus, job_id in traded.items())
    why = {}
    for job in sorted(situation.jobs, key=lambda job: (job.spec.arrival_seconds, job.job_id)):
        if job.job_id not in inside and not job.spec.opportunistic:
            menu = [(found.gpu_type, found.gpus) for found in job.choices]
            for request in promises.requests(job.job_id, job.spec.tenant, menu):
                answer = cells.ask(request)  # trading jobs on the GPUs that it gets end
                why[job.job_id] = answer.reason if isinstance(answer, Waits) else ""
                if not isinstance(answer, Waits):
                    break
    held = tuple(
        Held(
            int(gang.request.name),
            tuple(tuple(map(promises.gpu, member)) for member in gang.slots),
            gang.levels,
        )
        for gang in cells.gangs()
        if gang.request.guaranteed
    )
    for in_cells in held:
        levels = ", ".join(dict.fromkeys(chain.from_iterable(in_cells.levels)))
        why[in_cells.job_id] = f"{levels} of {tenant_of[in_cells.job_id]}"
    return held, why


def _trading(job_id: int, gpus: Sequence[int], promises: Promises) -> RunningGang:
    slots = tuple((promises.slot(gpu),) for gpu in gpus)
    request = CellRequest(f"trading {job_id}", "", (1,) * len(gpus), guaranteed=False)
    return RunningGang(request, slots, (("",),) * len(gpus))
