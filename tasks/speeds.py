"""Speeds of jobs in the last round, according to the throughput table."""

from collections.abc import Mapping
from dataclasses import dataclass

from containers.runtime import Observation
from predictor.application import Placement
from predictor.belief import Belief
from predictor.throughput import Throughput
from solver.inventory import Inventory
from tasks.record import RunHeader, RuntimeKind


def isolated_factor(belief: Belief, throughput: Throughput, inventory: Inventory) -> float:
    """Return a job's isolated run time over its run time on its reference allocation.

    Isolated run times are at the mean speed of a cluster's GPUs, at the present batch size.
    """
    if len(inventory.types) < 2:
        return 1.0
    spec, size = belief.spec, belief.batch_size
    menu = inventory.menu_of(spec, size, throughput)
    rates = {found.gpu_type: throughput.rate(spec, size, found) for found in reversed(menu)}
    gpus = inventory.capacities
    mean = sum(gpus[kind] * rate for kind, rate in rates.items()) / inventory.gpus
    return throughput.rate(spec, size, throughput.reference(spec)) / mean if mean else 1.0


@dataclass(frozen=True, slots=True)
class LastRound:
    """The last round that was carried out.

    Attributes:
        inventory: The cluster in that round.
        began: The run's clock at its start, in seconds.
    """

    header: RunHeader
    inventory: Inventory
    beliefs: Mapping[int, Belief]
    leases: Mapping[int, tuple[int, ...]]
    began: float

    def measure_speed(self, belief: Belief, seen: Observation) -> float:
        """Return a job's rate, relative to that on its reference allocation.

        If the other job of a pair ended within the round, the job ran at the shared rate until
        then and alone afterwards; under the published rules, at a single rate.
        """
        header, job = self.header, belief.spec
        other = self._shares_with(job.job_id) if header.pairs else None
        gpus, profile = self.leases[job.job_id], header.throughputs
        alike = not (header.pairs or profile.placement_matters) and len(profile.gpu_types) < 2
        if alike and len(gpus) == job.demand.size:
            return 1.0
        reference = profile.reference(job)
        held, rate = self.inventory.allocation(gpus), header.throughputs.rate
        if other:
            shared, size = header.throughputs.shared_rate, belief.batch_size
            there = shared(job, size, other.spec, other.batch_size, held)
            if header.settings.runtime != RuntimeKind.VIRTUAL:
                together = self._share_together(seen, job.job_id, other.spec.job_id)
                there = together * there + (1.0 - together) * rate(job, size, held)
            return there / rate(job, size, reference)
        if held == reference or not header.throughputs.can_run(job, belief.batch_size, held):
            return 1.0
        return rate(job, belief.batch_size, held) / rate(job, belief.batch_size, reference)

    def find_placement(self, job_id: int) -> Placement:
        """Return the GPUs by node of a job that chooses its batch sizes."""
        agent = self.beliefs[job_id].agent
        assert agent is not None, "the job chooses its batch sizes"
        return agent.app.place([self.inventory.node(gpu) for gpu in self.leases[job_id]])

    def _share_together(self, seen: Observation, *pair: int) -> float:
        """Return the share of a job's training time in which the other job of its pair also ran.

        Time in which a job holds GPUs without training counts as its restart, at the start.
        """
        ends = {event.job_id: event.at_seconds for event in seen.finished}
        own, other = (ends.get(job, seen.clock_seconds) - self.began for job in pair)
        trained = sum(entry.seconds for entry in seen.progress if entry.job_id == pair[0])
        lost = max(own - trained, 0.0)
        return min(max(other - lost, 0.0) / (own - lost), 1.0) if own > lost else 1.0

    def _shares_with(self, job_id: int) -> Belief | None:
        """Return the other job on a job's GPUs."""
        gpus = self.leases[job_id]
        others = (job for job, held in self.leases.items() if held == gpus and job != job_id)
        return next((self.beliefs[job] for job in others), None)
