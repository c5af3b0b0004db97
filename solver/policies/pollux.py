"""Pollux: GPUs by goodput, as a harmonic mean of speedups."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from predictor.rows import from_json, to_json
from solver.configurations import has_sizes
from solver.fidelity import Fidelity
from solver.genetic import PlacementSearch
from solver.inventory import Inventory
from solver.launches import count_launches
from solver.list_scheduling import Claim, next_round
from solver.plan import ActiveJob, Plan, Policy, Situation, SolveReport

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LEAST_SPEEDUP = 1e-3
"""Added to each speedup, as published: a job without GPUs has a finite reciprocal. Also the least
age, in seconds, so that a job that has just arrived can start."""

GROWTH = 2
"""Largest ratio of a job's GPUs to the most on which it has run, as published."""

KEPT = 10
"""Placements that seed the next search. An engineering bound on records."""

ZERO = ord("0")


@dataclass(frozen=True)
class PolluxMemory:
    """The policy's memory between plans.

    Attributes:
        clock_seconds: Clock of the last plan.
        attained: GPU-seconds that each job has held, by job id.
        launches: How often each job was launched, by job id.
        nodes: Number of nodes of the placements.
        jobs: Jobs of the placements, in their order.
        placements: The best placements of the last search: a character for the GPUs of each job on
            each node, counted from "0".
    """

    clock_seconds: float = 0.0
    attained: Mapping[int, float] = field(default_factory=dict)
    launches: Mapping[int, int] = field(default_factory=dict)
    nodes: int = 0
    jobs: tuple[int, ...] = ()
    placements: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pollux(Policy):
    """Maximum harmonic mean of speedups over a fair share, by models of goodput.

    Qiao et al., Pollux (OSDI '21), section 4.2, with p = -1. A job's speedup is its modelled
    goodput over that on its share of the GPUs. A job that would restart counts less, the more often
    it did: the factor is (age - restarts · cost) / (age + cost). Jobs choose their batch sizes.

    Attributes:
        fidelity: The objective is separable, and solved exactly; `Fidelity.REFERENCE` has the
            genetic search of the published simulator, in which nodes have one job of several nodes;
            gangs and jobs of known speeds are beyond that search.
    """

    name = "pollux"
    summary = "harmonic mean of speedups, by models of goodput"
    source = "Qiao et al., Pollux (OSDI '21), section 4"
    reads_forecasts = False
    elastic = True
    adapts = True

    fidelity: Fidelity = Fidelity.FAIR

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        memory = self._attain(situation)
        jobs = sorted(
            situation.jobs,
            key=lambda job: (memory.attained[job.job_id], job.spec.arrival_seconds, job.job_id),
        )
        penalties = np.array([self._penalize(situation, memory, job) for job in jobs])
        most = np.array([limit_growth(job) for job in jobs], np.int64)
        speedups = make_speedups(jobs, situation.inventory.gpus)
        placements: tuple[str, ...] = ()
        exact = self.fidelity is Fidelity.FAIR
        if exact or any(job.menu[0].gpus > 1 or _knows_sizes(job) for job in jobs):
            placement = _place_exactly(situation, jobs, penalties, most, speedups)
        else:
            found = _search(situation, memory, jobs, penalties, most, speedups)
            placement = assign_gpus(situation.inventory, jobs, found[0])
            placements = tuple(_write(there) for there in found[:KEPT])
        launches = count_launches(memory.launches, situation, placement)
        order = tuple(job.job_id for job in jobs)
        kept = replace(
            memory,
            launches=launches,
            nodes=situation.inventory.nodes,
            jobs=order,
            placements=placements,
        )
        return Plan(placement, SolveReport(self.name), memory=to_json(kept), order=order)

    def _attain(self, situation: Situation) -> PolluxMemory:
        """Return the memory with the last round added, without ended jobs."""
        before = from_json(PolluxMemory, situation.memory)
        elapsed = situation.clock_seconds - before.clock_seconds
        active = {job.job_id: elapsed * len(job.gpus) for job in situation.jobs}
        return replace(
            before,
            clock_seconds=situation.clock_seconds,
            attained={job: before.attained.get(job, 0.0) + more for job, more in active.items()},
        )

    def _penalize(self, situation: Situation, memory: PolluxMemory, job: ActiveJob) -> float:
        """Return the factor on a job's speedup if it restarts."""
        age = situation.clock_seconds - job.spec.arrival_seconds
        cost = situation.restart_seconds
        restarts = max(memory.launches.get(job.job_id, 0) - 1, 0)
        return max(age - restarts * cost, LEAST_SPEEDUP) / max(age + cost, LEAST_SPEEDUP)


def limit_growth(job: ActiveJob) -> int:
    """Return the maximum number of GPUs of a job in the coming round."""
    agent = job.belief.agent
    if agent is None:  # its speeds are known
        return job.menu[-1].gpus
    ran = max((step.gpus for step in agent.steps), default=0)
    return min(max(GROWTH * ran, job.menu[0].gpus), job.menu[-1].gpus)


def _knows_sizes(job: ActiveJob) -> bool:
    """Return whether a job chooses among numbers of GPUs at known speeds."""
    return job.belief.agent is None and has_sizes(job)


def make_speedups(jobs: list[ActiveJob], gpus: int) -> Floats:
    """Return the speedups of jobs over their fair shares.

    The fair share is on one node, as published. A job without a model speeds up linearly; one
    that chooses among known speeds has these.

    Returns:
        Speedups by job, whether it spans several nodes, and number of GPUs up to `gpus`; shape
        (jobs, 2, gpus + 1).
    """
    share = -(-gpus // max(len(jobs), 1))
    counts = np.arange(1, gpus + 1)
    found = np.zeros((len(jobs), 2, gpus + 1))
    for row, job in enumerate(jobs):
        agent = job.belief.agent
        if _knows_sizes(job):
            rates = {entry.gpus: job.rate(entry) for entry in job.menu}
            alone = rates[max((k for k in rates if k <= share), default=job.menu[0].gpus)]
            for count, rate in rates.items():
                found[row, :, count] = rate / alone
            continue
        if agent is None or agent.noise is None or not agent.steps:
            found[row, :, 1:] = counts / share
            continue
        goodputs = agent.find_goodputs(np.repeat((1, 2), gpus), np.tile(counts, 2))
        by_nodes = goodputs.reshape(2, gpus)
        base = by_nodes[0, :share].max() if not by_nodes[0, share - 1] else by_nodes[0, share - 1]
        found[row, :, 1:] = by_nodes / base
    return found


def _place_exactly(
    situation: Situation, jobs: list[ActiveJob], penalties: Floats, most: Ints, speedups: Floats
) -> dict[int, tuple[int, ...]]:
    """Place the jobs by the numbers of GPUs with the greatest harmonic mean."""
    gpus, size = situation.inventory.free[0], situation.inventory.pools[0].gpus_per_node
    costs = np.full((len(jobs), gpus + 1), np.inf)
    for row, (job, penalty) in enumerate(zip(jobs, penalties, strict=True)):
        costs[row, 0] = 1.0 / LEAST_SPEEDUP
        for entry in job.menu:
            if entry.gpus <= min(most[row], gpus):
                factor = 1.0 if entry.gpus == len(job.gpus) else penalty
                scaled = speedups[row, int(entry.nodes > 1), entry.gpus] * factor / size
                costs[row, entry.gpus] = 1.0 / (scaled + LEAST_SPEEDUP)
    chosen = divide_exactly(costs, gpus)
    claims = [
        Claim(job, entry)
        for job, count in zip(jobs, chosen, strict=True)
        for entry in job.menu
        if entry.gpus == count
    ]
    return next_round(situation, sorted(claims, key=lambda claim: -claim.allocation.gpus))


def divide_exactly(costs: Floats, gpus: int) -> list[int]:
    """Divide GPUs among jobs at least total cost; a dynamic programme over jobs.

    Args:
        costs: Cost by job and its number of GPUs, shape (jobs, gpus + 1); infinite if not allowed.
        gpus: Number of GPUs.

    Returns:
        Number of GPUs by job, the fewest of equals.
    """
    best = np.zeros(gpus + 1)
    choices = []
    left = np.arange(gpus + 1)[:, None] - np.arange(gpus + 1)
    for row in costs:
        sums = np.where(left >= 0, best[np.maximum(left, 0)] + row, np.inf)
        choices.append(sums.argmin(axis=1))
        best = sums.min(axis=1)
    counts, free = [], gpus
    for choice in reversed(choices):
        counts.append(int(choice[free]))
        free -= counts[-1]
    return counts[::-1]


def _search(
    situation: Situation,
    memory: PolluxMemory,
    jobs: list[ActiveJob],
    penalties: Floats,
    most: Ints,
    speedups: Floats,
) -> Ints:
    """Return the best placements, best first, shape (placements, jobs, nodes)."""
    inventory = situation.inventory
    nodes, size = inventory.nodes, inventory.pools[0].gpus_per_node
    if not jobs:
        return np.zeros((1, 0, nodes), np.int64)
    held = np.zeros((len(jobs), nodes), np.int64)
    for row, job in enumerate(jobs):
        for gpu in job.gpus:
            held[row, inventory.node(gpu)] += 1
    rows = np.arange(len(jobs))

    def value(population: Ints) -> Floats:
        several = (np.count_nonzero(population, axis=2) > 1).astype(np.int64)
        found = speedups[rows, several, population.sum(axis=2)]
        changed = (population != held).any(axis=2)
        found = np.where(changed, found * penalties, found) / size
        return np.asarray(-np.mean(1.0 / (found + LEAST_SPEEDUP), axis=1))

    kept = inventory.kept
    free = [len([g for g in inventory.gpus_of(node) if g not in kept]) for node in range(nodes)]
    search = PlacementSearch(held, np.array(free, np.int64), most, value)
    place = {job_id: row for row, job_id in enumerate(memory.jobs)}
    seeds = np.zeros((len(memory.placements), len(jobs), nodes), np.int64)
    for number, text in enumerate(memory.placements if memory.nodes == nodes else ()):
        there = _read(text, nodes)
        for row, job in enumerate(jobs):
            if job.job_id in place:
                seeds[number, row] = there[place[job.job_id]]
    rng = np.random.default_rng(round(situation.clock_seconds))
    return search.run(seeds, rng)


def _write(placement: Ints) -> str:
    return "".join(chr(ZERO + count) for count in placement.reshape(-1).tolist())


def _read(text: str, nodes: int) -> Ints:
    return np.array([ord(c) - ZERO for c in text], np.int64).reshape(-1, nodes)


def assign_gpus(
    inventory: Inventory, jobs: list[ActiveJob], placement: Ints
) -> dict[int, tuple[int, ...]]:
    """Return GPU indices by job; a job whose GPUs on each node stay as many keeps them.

    `placement` has the GPUs of each job on each node, shape (jobs, nodes).
    """
    found: dict[int, tuple[int, ...]] = {}
    for row, job in enumerate(jobs):
        held = np.bincount([inventory.node(g) for g in job.gpus], minlength=inventory.nodes)
        if job.gpus and (held == placement[row]).all():
            found[job.job_id] = job.gpus
    taken = {*inventory.kept}.union(*found.values())
    free = [[g for g in inventory.gpus_of(n) if g not in taken] for n in range(inventory.nodes)]
    for row, job in enumerate(jobs):
        if job.job_id not in found and placement[row].any():
            gpus: list[int] = []
            for node, count in enumerate(placement[row].tolist()):
                gpus += free[node][:count]
                del free[node][:count]
            found[job.job_id] = tuple(sorted(gpus))
    return found
