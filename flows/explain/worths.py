"""The worth of a GPU in the coming round to each job, and the jobs that hold GPUs."""

from collections.abc import Iterator
from dataclasses import dataclass

from solver.inventory import Inventory
from solver.plan import ActiveJob, Plan


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A running job.

    Attributes:
        job_id: None if the caller may not see the job.
        worth: Worth to the job of a GPU of its type in this round.
        place: Its place in line; None if it keeps its GPUs outside the line.
        gpu_type: None on a cluster of one type.
    """

    job_id: int | None
    gpus: int
    worth: float | None
    place: int | None
    gpu_type: str | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """A job's speed on a GPU type, relative to its fastest type.

    Attributes:
        speed: Rate on this type over the rate on the fastest.
        price: Market price of a GPU-round of this type.
        worth: Worth to the job of a GPU of this type in the coming round, by its bid.
    """

    gpu_type: str
    speed: float
    price: float | None
    worth: float | None = None


@dataclass(frozen=True, slots=True)
class Wider:
    """The next larger configuration of a job that chooses its size.

    Attributes:
        gpus: Its number of GPUs.
        gain: What the round is worth more to the job there.
        price: Price of the GPUs between.
    """

    gpus: int
    gain: float
    price: float


class Worths:
    """The worth of a GPU in the coming round to jobs in line, by their bids.

    Worths on different GPU types are not comparable, so each is given with its type.
    """

    def __init__(self, plan: Plan, inventory: Inventory) -> None:
        self._plan = plan
        self._places = {job_id: place for place, job_id in enumerate(plan.order, 1)}
        self._leading = dict(zip(plan.order, plan.worth, strict=True)) if plan.worth else {}
        self._by_type: dict[int, dict[str, float]] = {}
        self._held: dict[int, str] = {}
        if inventory.mixed:
            self._held = {
                job_id: inventory.allocation(gpus).gpu_type
                for job_id, gpus in plan.placement.items()
            }
            for bid in plan.bids:
                worths = self._by_type.setdefault(bid.job_id, {})
                worths[bid.allocation.gpu_type] = bid.utility / bid.allocation.gpus

    def type_of(self, job_id: int) -> str | None:
        """Return the GPU type of a job's worth: the type that it holds, or its highest bid's.

        None on a single type, and if jobs do not bid for types.
        """
        worths = self._by_type.get(job_id)
        if not worths or job_id not in self._leading:
            return None
        held = self._held.get(job_id)
        return held if held in worths else max(worths, key=lambda kind: worths[kind])

    def on(self, job_id: int, kind: str | None) -> float | None:
        """Return the worth to a job of a GPU of a type; by default of the only type."""
        worth = self._leading.get(job_id)
        return self._by_type.get(job_id, {}).get(kind) if kind and worth is not None else worth

    def least(self, kind: str | None) -> float | None:
        """Return the least worth of a GPU of a type to a job that holds some."""
        there = (job for job in self._plan.placement if not kind or self._held.get(job) == kind)
        worths = (self.on(job_id, kind) for job_id in there)
        return min((worth for worth in worths if worth is not None), default=None)

    def holders(self) -> Iterator[GpuHolder]:
        """Yield the running jobs by descending worth."""
        placement = self._plan.placement
        worths = {job_id: self.on(job_id, self.type_of(job_id)) for job_id in placement}
        for job_id in sorted(placement, key=lambda job_id: (-(worths[job_id] or 0.0), job_id)):
            yield GpuHolder(
                job_id,
                len(placement[job_id]),
                worths[job_id],
                self._places.get(job_id),
                self._held.get(job_id),
            )

    def wider(self, job_id: int) -> Wider | None:
        """Return the next larger configuration on the type of GPUs that a job gets, if any."""
        gpus = len(self._plan.placement.get(job_id, ()))
        own = [bid for bid in self._plan.offers if bid.job_id == job_id]
        held = next((bid for bid in self._plan.bids if bid.job_id == job_id), None)
        if not gpus or not held:
            return None
        kind = held.allocation.gpu_type
        there = {b.allocation.gpus: b.utility for b in own if b.allocation.gpu_type == kind}
        more = min((other for other in there if other > gpus), default=None)
        if more is None or gpus not in there:
            return None
        price = self._plan.report.price_of[kind]
        return Wider(more, there[more] - there[gpus], price * (more - gpus))

    def speeds(self, job: ActiveJob) -> tuple[Speed, ...]:
        """Return a job's speeds by GPU type, the fastest first; empty on a cluster of one type."""
        if len(job.choices) == 1:
            return ()
        fastest, prices = job.rate(job.choices[0]), self._plan.report.price_of
        worth = self._by_type.get(job.job_id, {})
        return tuple(
            Speed(kind, job.rate(allocation) / fastest, prices.get(kind), worth.get(kind))
            for allocation in job.choices
            for kind in [allocation.gpu_type]
        )
