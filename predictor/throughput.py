"""Throughput of jobs: the protocol, and measured profiles.

Work (epochs and steps by regime), allocations and throughput are separate; run times in
seconds are their product.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Protocol

from predictor.allocation import Allocation, Demand
from predictor.application import Application
from predictor.errors import InputError, meant
from predictor.job import JobSpec

UNTYPED = "gpu"
"""GPU type of workloads that declare none."""


class Throughput(Protocol):
    """Rates of jobs at a batch size on an allocation."""

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """The GPU types with known rates."""
        ...

    @property
    def placement_matters(self) -> bool:
        """Whether rates depend on the number of nodes that a gang spans."""
        ...

    def rate(self, job: JobSpec, batch_size: int, allocation: Allocation) -> float:
        """Return the steps per second of the whole job.

        Raises:
            InputError: The job cannot run at this batch size on this allocation.
        """
        ...

    def can_run(self, job: JobSpec, batch_size: int, allocation: Allocation) -> bool:
        """Return whether the job makes progress at a batch size on an allocation."""
        ...

    def shared_rate(
        self,
        job: JobSpec,
        batch_size: int,
        other: JobSpec,
        other_batch_size: int,
        allocation: Allocation,
    ) -> float:
        """Return the steps per second of a job while another job trains on the same GPUs.

        0 if the two do not fit there together, or were not measured. Beside an opportunistic job,
        a guaranteed job is as fast as alone.
        """
        ...

    def keep_measured(self, job: JobSpec, menu: tuple[Allocation, ...]) -> tuple[Allocation, ...]:
        """Return the entries of a menu on which a job makes progress at each batch size it reaches.

        Jobs of measured applications keep all on types of known speed: they are modelled where they
        were not measured.
        """
        ...

    def relative_speed(self, job: JobSpec, gpu_type: str) -> float:
        """Return the speed on a GPU type over that on the type that an application was measured on.

        0 if it is not known; 1 for jobs of no application.
        """
        ...

    def reference(self, job: JobSpec) -> Allocation:
        """Return the allocation that defines isolated run times and feasible batch sizes."""
        ...

    def restart(self, allocation: Allocation, otherwise: float) -> float:
        """Return the seconds from a launch on an allocation to the first step.

        `otherwise` if not measured.
        """
        ...


def epoch_seconds(
    throughput: Throughput, job: JobSpec, batch_size: int, allocation: Allocation | None = None
) -> float:
    """Return the profiled duration of an epoch, in seconds, for isolated run times (NSDI '23).

    It counts the last batch of an epoch by its samples; see `training_seconds`. The default
    allocation is the job's reference.

    Raises:
        InputError: The job cannot run at this batch size on this allocation.
    """
    rate = throughput.rate(job, batch_size, allocation or throughput.reference(job))
    return job.samples_per_epoch / batch_size / rate


def training_seconds(
    throughput: Throughput, job: JobSpec, batch_size: int, allocation: Allocation | None = None
) -> float:
    """Return the seconds for which a job trains in an epoch; its last batch is a whole step.

    Defaults and errors are those of `epoch_seconds`.
    """
    rate = throughput.rate(job, batch_size, allocation or throughput.reference(job))
    return job.steps_per_epoch(batch_size) / rate


def reachable_batch_sizes(
    throughput: Throughput, job: JobSpec, reference: Allocation | None = None
) -> tuple[int, ...]:
    """Return the declared batch sizes that a job can run at on its reference allocation.

    Who knows that allocation passes it on, as finding it takes time.
    """
    sizes = job.batch_sizes
    if len(sizes) > 1:
        allocation = reference or throughput.reference(job)
        sizes = tuple([size for size in sizes if throughput.can_run(job, size, allocation)])
    return sizes or (job.batch_size,)


def runs_on(throughput: Throughput, job: JobSpec, allocation: Allocation) -> bool:
    """Return whether a job makes progress on an allocation at each batch size it can reach."""
    sizes = reachable_batch_sizes(throughput, job)
    return all(throughput.can_run(job, size, allocation) for size in sizes)


@dataclass(frozen=True)
class Profile:
    """A measured throughput table of whole jobs, on exclusive GPUs and in pairs.

    Without `by_nodes`, rates do not depend on the number of nodes. Timed jobs are not in the table:
    they make one step per second on each allocation that they can run on.

    Attributes:
        rates: (model, batch size, GPU type, GPUs) to steps per second of the whole job. A
            missing or zero entry means that the combination cannot run.
        pairs: (model, batch size, other model, other batch size, GPU type, GPUs) to steps per
            second of the first job while both hold the same GPUs. A missing or zero entry means
            that they cannot run together.
        losses: Training loss after each epoch, by model, for simulations of jobs that report it.
        restarts: (GPU type, GPUs) to the measured seconds of a restart.
        by_nodes: Minimum number of nodes to the table of gangs that span as many or more. Without
            an entry, a gang is as fast as on fewer nodes; with a zero entry, it cannot span them.
        applications: Measured applications, by the model of their jobs, in place of rates. Where
            they run on several GPU types, `rates` has them at their initial batch sizes on one GPU
            of each, and the ratios of these hold everywhere.
    """

    rates: Mapping[tuple[str, int, str, int], float]
    source: str = field(default="profile", compare=False)
    pairs: Mapping[tuple[str, int, str, int, str, int], float] = field(default_factory=dict)
    losses: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    restarts: Mapping[tuple[str, int], float] = field(default_factory=dict)
    by_nodes: Mapping[int, "Profile"] = field(default_factory=dict)
    applications: Mapping[str, Application] = field(default_factory=dict)

    @classmethod
    def of_type(
        cls,
        rates: Mapping[tuple[str, int, int], float],
        gpu_type: str = UNTYPED,
        source: str = "profile",
    ) -> "Profile":
        """Make a table of one GPU type, from (model, batch size, GPUs) to steps per second."""
        typed = {(model, size, gpu_type, gpus): r for (model, size, gpus), r in rates.items()}
        return cls(typed, source)

    def of_types(self, gpu_types: Collection[str]) -> "Profile":
        """Return the part of the table about some GPU types."""
        rates = {key: rate for key, rate in self.rates.items() if key[2] in gpu_types}
        pairs = {key: rate for key, rate in self.pairs.items() if key[4] in gpu_types}
        restarts = {key: took for key, took in self.restarts.items() if key[0] in gpu_types}
        by_nodes = {nodes: table.of_types(gpu_types) for nodes, table in self.by_nodes.items()}
        return replace(self, rates=rates, pairs=pairs, restarts=restarts, by_nodes=by_nodes)

    def where_placement_matters(self, gpu_types: Collection[str]) -> "Profile":
        """Return the table with rates by nodes on some GPU types only."""
        if not self.by_nodes:
            return self
        tables = {nodes: table.of_types(gpu_types) for nodes, table in self.by_nodes.items()}
        return replace(self, by_nodes={n: table for n, table in tables.items() if table.rates})

    @property
    def placement_matters(self) -> bool:
        """See `Throughput.placement_matters`."""
        return bool(self.by_nodes or self.applications)

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """The GPU types of the table, sorted."""
        kinds = {gpu_type for _, _, gpu_type, _ in self.rates}
        return tuple(sorted(kinds.union(app.gpu_type for app in self.applications.values())))

    def check_model(self, model: str) -> None:
        """Refuse a model without throughputs.

        Raises:
            InputError: The model has none.
        """
        known = sorted({key[0] for key in self.rates} | self.applications.keys())
        if model not in known:
            problem = f"there are no throughputs of {model[:80]!r}"
            remedy = meant(model, known) if known else "give a table that has its throughputs"
            raise InputError("model", problem, remedy)

    def can_run(self, job: JobSpec, batch_size: int, allocation: Allocation) -> bool:
        """See `Throughput.can_run`."""
        if job.timed:
            return _admits(job.demand, allocation)
        if job.model in self.applications:
            most = self.applications[job.model].limit_gpus(batch_size)
            fits = allocation.gpus <= most
            return fits and self._step_seconds(job, batch_size, allocation) < inf
        key = job.model, batch_size, allocation.gpu_type, allocation.gpus
        table = self._at(allocation.nodes, key) if self.by_nodes else self
        return table.rates.get(key, 0.0) > 0.0

    def _at(self, nodes: int, key: tuple[str, int, str, int]) -> "Profile":
        """Return the table for a gang that spans a number of nodes."""
        if nodes > 1:
            for least in sorted(self.by_nodes, reverse=True):
                if least <= nodes and key in self.by_nodes[least].rates:
                    return self.by_nodes[least]
        return self

    def shared_rate(
        self,
        job: JobSpec,
        batch_size: int,
        other: JobSpec,
        other_batch_size: int,
        allocation: Allocation,
    ) -> float:
        """See `Throughput.shared_rate`.

        Beside a guaranteed job, a local coordinator delays an opportunistic job's kernels until the
        guaranteed job's minibatch takes as long as alone (Xiao et al., AntMan, OSDI '20). The total
        s = Σ shared rate / own rate is preserved, so the opportunistic job keeps s - 1.
        """
        kind, gpus = allocation.gpu_type, allocation.gpus
        own, partner = (job.model, batch_size), (other.model, other_batch_size)
        table = self._at(allocation.nodes, (*own, kind, gpus))
        rate = table.pairs.get((*own, *partner, kind, gpus), 0.0)
        if job.opportunistic == other.opportunistic or not rate:
            return rate
        alone = table.rates[*own, kind, gpus]
        if not job.opportunistic:
            return alone
        beside = self._at(allocation.nodes, (*partner, kind, gpus))
        of_other = (
            beside.pairs.get((*partner, *own, kind, gpus), 0.0) / beside.rates[*partner, kind, gpus]
        )
        return alone * max(rate / alone + of_other - 1.0, 0.0) if of_other else 0.0

    def rate(self, job: JobSpec, batch_size: int, allocation: Allocation) -> float:
        """See `Throughput.rate`."""
        if job.timed and _admits(job.demand, allocation):
            return 1.0
        key = job.model, batch_size, allocation.gpu_type, allocation.gpus
        if job.model in self.applications:
            rate = 1.0 / self._step_seconds(job, batch_size, allocation)
        else:
            table = self._at(allocation.nodes, key) if self.by_nodes else self
            rate = table.rates.get(key, 0.0)
        if rate > 0.0:
            return rate
        models = sorted({model for model, _, _, _ in self.rates} | self.applications.keys())
        if job.model not in models:
            raise InputError(
                self.source,
                f"unknown model {job.model!r}",
                f"choose from {', '.join(models)}" if models else "add its measurements",
            )
        kind = "" if allocation.gpu_type == UNTYPED else f" of type {allocation.gpu_type}"
        raise InputError(
            self.source,
            f"no throughput for {job.model} with batch size {batch_size} "
            f"on {allocation.gpus} GPU{'s' * (allocation.gpus != 1)}{kind}"
            f"{f' of {allocation.nodes} nodes' * (key in self.rates and rate != self.rates[key])}",
            "add the measurement to the profile or change the job",
        )

    def keep_measured(self, job: JobSpec, menu: tuple[Allocation, ...]) -> tuple[Allocation, ...]:
        """See `Throughput.keep_measured`."""
        if job.model in self.applications:
            kinds = {kind for kind in self.gpu_types if self.relative_speed(job, kind) > 0.0}
            return tuple(there for there in menu if there.gpu_type in kinds)
        key = job.model, job.batch_sizes, job.demand, menu
        found = self._measured.get(key)
        if found is None:
            found = tuple(there for there in menu if runs_on(self, job, there))
            self._measured[key] = found
        return found

    def relative_speed(self, job: JobSpec, gpu_type: str) -> float:
        """See `Throughput.relative_speed`."""
        app = self.applications.get(job.model)
        if app is None or gpu_type == app.gpu_type:
            return 1.0
        there = self.rates.get((app.name, app.batch_size, gpu_type, 1), 0.0)
        return there / self.rates[app.name, app.batch_size, app.gpu_type, 1] if there else 0.0

    def restart(self, allocation: Allocation, otherwise: float) -> float:
        """See `Throughput.restart`; uses the nearest measured number of GPUs of that type."""
        known = [gpus for kind, gpus in self.restarts if kind == allocation.gpu_type]
        if not known:
            return otherwise
        nearest = min(known, key=lambda gpus: (abs(gpus - allocation.gpus), gpus))
        return self.restarts[allocation.gpu_type, nearest]

    def reference(self, job: JobSpec) -> Allocation:
        """Return the gang of the job's demand, on one node, of its fastest type.

        A measured application's gang is on as few nodes as possible. The fastest type is that at
        the declared batch size; ties go to the first type.
        """
        if job.model in self.applications:
            app, gpus = self.applications[job.model], job.demand.size
            known = [kind for kind in self.gpu_types if job.demand.allows(kind)]
            fastest = max(
                known, key=lambda kind: self.relative_speed(job, kind), default=app.gpu_type
            )
            return Allocation(fastest, gpus, -(-gpus // app.gpus_per_node))
        demand = job.demand
        key: tuple[object, ...] = demand.size, demand.types  # compared faster than the dataclass
        if len(self.gpu_types) > 1:
            key = *key, job.model, job.batch_size
        found = self._references.get(key)
        if found is None:
            gpus = job.demand.size
            known = [kind for kind in self.gpu_types if job.demand.allows(kind)]
            fastest = max(
                known,
                key=lambda kind: self.rates.get((job.model, job.batch_size, kind, gpus), 0.0),
                default=UNTYPED,
            )
            found = self._references[key] = Allocation(fastest, gpus)
        return found

    def _step_seconds(self, job: JobSpec, batch_size: int, allocation: Allocation) -> float:
        """Return the seconds of a step of a measured application; infinite if it cannot run.

        A batch that is too small for its GPUs takes as long as the smallest that is not.
        """
        app = self.applications[job.model]
        speed = self.relative_speed(job, allocation.gpu_type)
        size = max(batch_size, min(allocation.gpus * app.least_local, app.max_batch_size))
        return app.step_seconds(app.pack(allocation), size) / speed if speed else inf

    @cached_property
    def _measured(self) -> dict[tuple[object, ...], tuple[Allocation, ...]]:
        return {}

    @cached_property
    def _references(self) -> dict[tuple[object, ...], Allocation]:
        return {}


def _admits(demand: Demand, allocation: Allocation) -> bool:
    """Return whether a job's demand admits an allocation."""
    gpus, kind = allocation.gpus, allocation.gpu_type
    return demand.least <= gpus <= demand.most and demand.allows(kind)
