"""Optimus: GPUs go where they save most time."""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from predictor.allocation import Allocation
from solver.fidelity import Fidelity
from solver.freest_nodes import place_on_freest
from solver.list_scheduling import Claim, next_round
from solver.plan import ActiveJob, Plan, Policy, Situation, SolveReport


@dataclass(frozen=True)
class Optimus(Policy):
    """Marginal gains of run time, with an oracle of the steps that are left.

    Peng et al., Optimus (EuroSys '18), section 4.1, as Qiao et al., Pollux (OSDI '21), section 5.1,
    compare with it. In order of arrival, each job gets the first entry of its menu while there are
    GPUs. Then the job whose next entry saves most run time per GPU gets it, as long as any saves
    some. Steps left are those of the true schedule, whole epochs after the current one, and batch
    sizes stay as they are.

    Attributes:
        fidelity: `Fidelity.REFERENCE` places jobs on the nodes with the most free GPUs.
    """

    name = "optimus"
    summary = "shortest sum of run times, by marginal gains of GPUs"
    source = "Peng et al., Optimus (EuroSys '18), section 4.1; Qiao et al., Pollux (OSDI '21)"
    reads_forecasts = False
    clairvoyant = True
    work_conserving = True
    elastic = True

    fidelity: Fidelity = Fidelity.FAIR

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        jobs = sorted(situation.jobs, key=lambda job: (job.spec.arrival_seconds, job.job_id))
        chosen = choose_by_gain(jobs, situation.inventory.gpus)
        if self.fidelity is Fidelity.FAIR:
            placement = next_round(
                situation,
                [Claim(job, chosen[job.job_id]) for job in jobs if job.job_id in chosen],
            )
        else:
            placement = self._place_published(situation, jobs, chosen)
        return Plan(
            placement=placement,
            report=SolveReport(self.name),
            order=tuple(job.job_id for job in jobs),
        )

    def _place_published(
        self, situation: Situation, jobs: list[ActiveJob], chosen: Mapping[int, Allocation]
    ) -> dict[int, tuple[int, ...]]:
        """Place jobs by ascending number of GPUs; jobs whose number stays keep theirs."""
        running = [job for job in jobs if job.job_id in chosen]
        gpus = {job.job_id: chosen[job.job_id].gpus for job in running}
        held = {job.job_id: job.gpus for job in running if len(job.gpus) == gpus[job.job_id]}
        wanted = sorted(
            ((job_id, number) for job_id, number in gpus.items() if job_id not in held),
            key=lambda job: job[1],
        )
        return place_on_freest(situation.inventory, held, wanted)


def choose_by_gain(jobs: list[ActiveJob], gpus: int) -> dict[int, Allocation]:
    """Choose an allocation for each job that gets one, by job id.

    Args:
        jobs: By descending priority.
        gpus: Number of GPUs.
    """
    chosen: dict[int, int] = {}
    for place, job in enumerate(jobs):
        if job.menu[0].gpus <= gpus:
            chosen[place] = 0
            gpus -= job.menu[0].gpus
    left = {place: _steps_left(jobs[place]) for place in chosen}
    gains: list[tuple[float, int, int]] = []

    def offer(place: int) -> None:
        job, entry = jobs[place], chosen[place]
        menu, size = job.menu, job.belief.batch_size
        if entry + 1 < len(menu) and job.throughput.can_run(job.spec, size, menu[entry + 1]):
            now, more = menu[entry], menu[entry + 1]
            saved = 1.0 / jobs[place].rate(now) - 1.0 / jobs[place].rate(more)
            gain = saved * left[place] / (more.gpus - now.gpus)
            if gain > 0.0:
                heappush(gains, (-gain, place, more.gpus - now.gpus))

    for place in chosen:
        offer(place)
    while gains and gpus:
        _, place, more = heappop(gains)
        if more <= gpus:
            chosen[place] += 1
            gpus -= more
            offer(place)
    return {jobs[place].job_id: jobs[place].menu[entry] for place, entry in chosen.items()}


def _steps_left(job: ActiveJob) -> float:
    """Return the true steps of the epochs after the current one; at least one."""
    begun = int(sum(regime.epochs for regime in job.belief.observed)) + 1
    seconds = 0.0
    for regime in job.schedule:
        ahead = max(regime.epochs - begun, 0)
        begun = max(begun - regime.epochs, 0)
        seconds += ahead * regime.epoch_seconds
    reference = job.throughput.reference(job.spec)
    steps = seconds * job.throughput.rate(job.spec, job.belief.batch_size, reference)
    # Rounded, so that equal jobs with other tuned gangs tie, and go by arrival as published.
    return max(round(steps, 6), 1.0)
