"""Tiresias as Pollux is compared with it: two queues by attained GPU time."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from predictor.rows import from_json, to_json
from solver.fidelity import Fidelity
from solver.freest_nodes import place_on_freest
from solver.plan import ActiveJob, Plan, Policy, Situation, SolveReport
from solver.policies.listed import run_list


@dataclass(frozen=True)
class Attained:
    """The policy's memory between plans.

    Attributes:
        clock_seconds: Clock of the last plan.
        seconds: Time for which each job has held GPUs, restarts included, by job id.
        demoted: Jobs in the second queue, in the order of their demotion.
    """

    clock_seconds: float = 0.0
    seconds: Mapping[int, float] = field(default_factory=dict)
    demoted: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tiresias(Policy):
    """Two queues by attained GPU time: discretised 2D-LAS, as in Pollux's simulator.

    Gu et al., Tiresias (NSDI '19), section 3.2, with the rules of Qiao et al., Pollux (OSDI '21),
    section 5.1. A job is demoted when it has held GPUs for `threshold` GPU-seconds, restarts
    included, and never promoted. The first queue is in order of arrival, the second in order of
    demotion; whatever fits runs.

    Attributes:
        threshold: GPU-seconds at which a job leaves the first queue; the default is the published
            simulator's.
        fidelity: `Fidelity.REFERENCE` places jobs on the nodes with the most free GPUs.
    """

    name = "tiresias"
    summary = "least attained GPU time, in two queues"
    source = "Gu et al., Tiresias (NSDI '19), section 3.2; Qiao et al., Pollux (OSDI '21)"
    reads_forecasts = False
    work_conserving = True

    threshold: float = 57_600.0
    fidelity: Fidelity = Fidelity.FAIR

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        attained = self._attain(situation)
        demoted = {job_id: place for place, job_id in enumerate(attained.demoted, start=1)}
        order = sorted(
            situation.jobs,
            key=lambda job: (demoted.get(job.job_id, 0), job.spec.arrival_seconds, job.job_id),
        )
        if self.fidelity is Fidelity.FAIR:
            plan = run_list(self.name, situation, order)
        else:
            plan = self._run_published(situation, order)
        return replace(plan, memory=to_json(attained))

    def _attain(self, situation: Situation) -> Attained:
        """Return the memory with the last round added, without absent jobs.

        A job that returns after a hold has attained its run time.
        """
        before = from_json(Attained, situation.memory)
        elapsed = situation.clock_seconds - before.clock_seconds
        seconds = {
            job.job_id: before.seconds[job.job_id] + elapsed * bool(job.gpus)
            if job.job_id in before.seconds
            else job.belief.run_seconds
            for job in situation.jobs
        }
        new = [
            job.job_id
            for job in situation.jobs
            if job.job_id not in before.demoted and seconds[job.job_id] * job.gang >= self.threshold
        ]
        kept = tuple(job_id for job_id in before.demoted if job_id in seconds)
        return Attained(situation.clock_seconds, seconds, (*kept, *new))

    def _run_published(self, situation: Situation, order: list[ActiveJob]) -> Plan:
        inventory, left = situation.inventory, situation.inventory.gpus
        held: dict[int, tuple[int, ...]] = {}
        wanted = []
        for job in order:
            if job.gang <= left:
                left -= job.gang
                if job.gpus:
                    held[job.job_id] = job.gpus
                else:
                    wanted.append((job.job_id, job.gang))
        return Plan(
            placement=place_on_freest(inventory, held, wanted),
            report=SolveReport(self.name),
            order=tuple(job.job_id for job in order),
        )
