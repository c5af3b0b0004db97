"""Sia: configurations by goodput, on several GPU types."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from predictor.allocation import Allocation
from predictor.rows import from_json, to_json
from solver.backends import RELATIVE_GAP
from solver.backends.choice import relative_gap
from solver.backends.configurations import choose_configurations
from solver.configurations import describe, list_configurations, node_sizes
from solver.launches import count_launches
from solver.list_scheduling import Claim, next_round
from solver.plan import ActiveJob, Plan, Policy, Situation, SolveReport
from solver.policies.pollux import limit_growth

POWER = -0.5
"""p, the power of normalised goodputs, as published: it weighs fairness against throughput."""

LEFT_OUT = 1.1
"""λ, the cost of a job without GPUs, as published."""

DECIMALS = 2
"""Decimals of a configuration's cost, as published."""


@dataclass(frozen=True)
class SiaMemory:
    """The policy's memory between plans: how often each job was launched, by job id."""

    launches: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sia(Policy):
    """Least sum of powers of goodputs over configurations, as an integer program.

    Jayaram Subramanya et al., Sia (SOSP '23), section 3.4. A configuration is a GPU type with a
    power of two of GPUs on a node, or whole nodes. A job's goodputs are divided by the least one.
    Configurations that need a restart count less: the factor is (age - restarts · cost) /
    (age + cost). A job that has no model yet runs on its first configuration of a type.
    """

    name = "sia"
    summary = "powers of goodputs over configurations of GPUs"
    source = "Jayaram Subramanya et al., Sia (SOSP '23), section 3"
    reads_forecasts = False
    several_pools = True
    elastic = True
    adapts = True

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        memory = from_json(SiaMemory, situation.memory)
        jobs = sorted(situation.jobs, key=lambda job: (job.spec.arrival_seconds, job.job_id))
        sizes = node_sizes(situation.inventory)
        values = [self._value(situation, memory, job, sizes) for job in jobs]
        chosen, bound = choose_configurations(values, situation.inventory.capacities)
        pairs = zip(values, chosen, strict=True)
        objective = sum(table[found] for table, found in pairs if found is not None)
        bound = max(bound, objective)
        gap = relative_gap(bound, objective)
        claims = [
            Claim(job, found) for job, found in zip(jobs, chosen, strict=True) if found is not None
        ]
        claims.sort(key=lambda claim: -claim.allocation.gpus)
        placement = next_round(situation, claims)
        launches = count_launches(memory.launches, situation, placement)
        return Plan(
            placement,
            SolveReport(
                self.name,
                backend="highs",
                reason="an integer program",
                status="optimal" if gap <= RELATIVE_GAP else "work_limit",
                objective=objective,
                bound=bound,
                gap=gap,
            ),
            memory=to_json(SiaMemory(launches)),
            order=tuple(job.job_id for job in jobs),
        )

    def _value(
        self, situation: Situation, memory: SiaMemory, job: ActiveJob, sizes: Mapping[str, int]
    ) -> dict[Allocation, float]:
        """Return what each configuration saves of the cost of leaving the job out."""
        goodputs = find_normalized_goodputs(job, sizes)
        age = situation.clock_seconds - job.spec.arrival_seconds
        cost = situation.restart_seconds
        restarts = max(memory.launches.get(job.job_id, 0) - 1, 0)
        factor = max(age - restarts * cost, 0.0) / (age + cost) if age > cost else 1.0
        values = {}
        for found, goodput in goodputs.items():
            stays = job.held is None or job.held.same_but_for_nodes(found)
            scaled = goodput if stays else goodput * factor
            if scaled > 0.0:
                values[found] = LEFT_OUT - round(scaled**POWER, DECIMALS)
        return values


def find_normalized_goodputs(job: ActiveJob, sizes: Mapping[str, int]) -> dict[Allocation, float]:
    """Return a job's goodputs over the least one, times its least number of GPUs.

    A job of a measured application has modelled goodputs, on its first configuration only until it
    ran; other jobs have their rates.
    """
    most, least = limit_growth(job), job.menu[0].gpus
    there = [found for found in list_configurations(job, sizes) if found.gpus <= most]
    agent = job.belief.agent
    if agent is not None and agent.noise is not None and agent.steps:
        nodes, gpus, speeds = describe(job, agent.app, there)
        goodputs = agent.find_goodputs(nodes, gpus) * speeds
        found = dict(zip(there, goodputs.tolist(), strict=True))
    else:
        found = {allocation: job.rate(allocation) for allocation in there}
    lowest = min((goodput for goodput in found.values() if goodput > 0.0), default=1.0)
    return {allocation: goodput / lowest * least for allocation, goodput in found.items()}
