"""The order in which Shockwave would start the jobs of a partition that Slurm itself schedules.

Nothing but the queue is known, so that jobs that run count as just begun.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from containers.leasing.engine import Refused
from containers.runtime import Observation
from containers.slurm.commands import Commands
from containers.slurm.declaring import declare
from containers.slurm.hand_over import update_jobs
from containers.slurm.inventory import SlurmNode, find_foreign
from containers.slurm.parsing import SlurmAway, read_number
from containers.slurm.queue import JobDetails, SlurmJob, get_details, list_queue, sort_jobs
from flows.runs.queue_run import read_partition
from flows.runs.simulation import prepare
from predictor.errors import InputError
from predictor.job import JobSpec
from solver.inventory import Inventory
from tasks.record import Start
from tasks.replay import Comparison, Recording
from tasks.rollouts import forecast_times
from tasks.round import Collected, predict, solve_round
from tasks.run import Run

PRIORITY = {"JobArrayID": 40, "PriorityLong": 24, "Nice": 16}
"""Columns of `squeue`, with their widths."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A waiting job of a partition.

    Attributes:
        slurm: Its place in Slurm's order, by priority, from 1.
        shockwave: Its place in the order of the policy.
        start_s: Seconds until the policy would start it, expected; infinite if it never would.
        nice: The `Nice` that brings it to that place.
    """

    job: str
    user: str
    account: str
    gpus: int
    slurm: int
    shockwave: int
    start_s: float
    nice: int


def advise(
    commands: Commands, partition: str, start: Start, now: float
) -> tuple[list[Advice], list[str]]:
    """Return advice on the waiting jobs in the policy's order, and the jobs that would give way.

    Jobs that are not eligible, name nodes or fit no node are left out. `start` is that of a service
    of the partition; `now` is in Unix seconds.

    Raises:
        InputError: Slurm does not answer.
    """
    try:
        queue = sort_jobs(list_queue(commands, partition))
        priorities = _read_priorities(commands, partition)
        nodes = read_partition(partition, commands)
        inventory = start.header.settings.inventory
        waiting = [job for job in queue if job.may_start(now) and job.id in priorities]
        waiting = [job for job in waiting if job.gpus and not job.names_nodes]
        running = [job for job in queue if job.gpus_by_node]
        first = min((job.submitted for job in queue), default=0)
        specs, by_id = list[JobSpec](), dict[int, SlurmJob]()
        for job in (*running, *waiting):
            details = get_details(commands, job.id) if job in running else JobDetails("", "", 0)
            try:
                spec = declare(job, details, inventory)
            except InputError:
                continue
            number, at = len(specs) + 1, float(job.submitted - first)
            specs.append(replace(spec, job_id=number, arrival_seconds=at))
            by_id[number] = job
    except (SlurmAway, Refused) as error:
        raise InputError("partition", str(error), "compare scontrol ping, squeue") from None
    leases = _place(by_id, nodes, inventory)
    run = prepare(start).on(Recording(()), Comparison(()))
    drained = _find_drained(nodes, [by_id[job] for job in leases])
    clock = max(now - first, 0.0)
    order, losing = _order(run, specs, leases, Observation(clock, (), (), (), drained))
    advice = _set_places({by_id[job]: at for job, at in order.items()}, priorities)
    return advice, [by_id[job].id for job in losing]


def _read_priorities(commands: Commands, partition: str) -> dict[str, tuple[int, int]]:
    """Return priority and `Nice` of a partition's waiting jobs, by id."""
    asked = ("--array", "--states=PENDING", f"--partition={partition}")
    found = {}
    for row in commands.table("squeue", PRIORITY, *asked):
        priority, nice = (
            read_number("squeue", "PriorityLong", row["PriorityLong"]),
            int(row["Nice"]),
        )
        # It is 1 at least, as on a Slurm without weights, where a job has what it was given.
        found[row["JobArrayID"]] = (priority if priority > 1 else -nice, nice)
    return found


def _place(
    by_id: Mapping[int, SlurmJob], nodes: Sequence[SlurmNode], inventory: Inventory
) -> dict[int, tuple[int, ...]]:
    """Return GPUs of running jobs, by job: Slurm tells their numbers only, by node."""
    free = {node.name: [*inventory.gpus_of(place)] for place, node in enumerate(nodes)}
    leases = {}
    for number, job in by_id.items():
        held = [g for node, n in job.gpus_by_node.items() for g in free.get(node, [])[:n]]
        if held:
            leases[number] = tuple(sorted(held))
        for node, n in job.gpus_by_node.items():
            del free.get(node, [])[:n]
    return leases


def _find_drained(nodes: Sequence[SlurmNode], running: Sequence[SlurmJob]) -> tuple[int, ...]:
    """Return the nodes that take no jobs; those with jobs that run stay."""
    own: dict[str, int] = {}
    for job in running:
        for node, gpus in job.gpus_by_node.items():
            own[node] = own.get(node, 0) + gpus
    foreign = find_foreign(nodes, own)
    places = enumerate(nodes)
    return tuple(
        p for p, node in places if (node.problem or node.name in foreign) and node.name not in own
    )


def _order(
    run: Run,
    specs: Sequence[JobSpec],
    leases: Mapping[int, tuple[int, ...]],
    seen: Observation,
) -> tuple[dict[int, float], list[int]]:
    """Return when waiting jobs would start, in that order, and the jobs that would give way."""
    collected = Collected(seen, tuple(specs), (), (), (), 0.0)
    state = predict(run, collected).state
    run.state = replace(state, leases=leases, lease_rounds=dict.fromkeys(leases, 1))
    this = solve_round(run, predict(run, Collected(seen, (), (), (), (), 0.0)))
    waiting = {spec.job_id for spec in specs} - leases.keys()
    times = forecast_times(run, this, waiting)
    starts = dict.fromkeys(waiting, math.inf)
    starts |= {job: at.start.median - seen.clock_seconds for job, at in times.items()}
    starts |= dict.fromkeys(waiting & this.plan.placement.keys(), 0.0)
    places = {job: place for place, job in enumerate(this.plan.order)}
    ordered = sorted(waiting, key=lambda job: (starts[job], places.get(job, job), job))
    losing = sorted(leases.keys() - this.plan.placement.keys())
    return {job: starts[job] for job in ordered}, losing


def _set_places(
    starts: Mapping[SlurmJob, float], priorities: Mapping[str, tuple[int, int]]
) -> list[Advice]:
    """Number jobs in both orders, and find the `Nice` that leads from one to the other.

    Priorities are handed on as they are; equal ones become different.
    """
    ordered = [*starts]
    by_priority = sorted(sort_jobs(ordered), key=lambda job: -priorities[job.id][0])
    slurm = dict(zip((job.id for job in by_priority), count(1), strict=False))
    due = [priorities[job.id][0] for job in by_priority]
    due[-1:] = [max(1, last) for last in due[-1:]]
    for place in range(len(due) - 2, -1, -1):
        due[place] = max(due[place], due[place + 1] + 1)
    return [
        Advice(
            *(job.id, job.user, job.account, job.gpus, slurm[job.id], place + 1),
            start_s=starts[job],
            nice=priorities[job.id][1] + priorities[job.id][0] - due[place],
        )
        for place, job in enumerate(ordered)
    ]


def set_nice(commands: Commands, advice: Sequence[Advice]) -> dict[str, str]:
    """Set the `Nice` of jobs; returns Slurm's refusals by job.

    Raises:
        InputError: Slurm does not answer; some may have been set.
    """
    refusals = dict[str, str]()
    try:
        for one in advice:
            refusals |= update_jobs(commands, [one.job], (f"Nice={one.nice}",))
    except SlurmAway as error:
        raise InputError("partition", str(error), "repeat the command") from None
    return refusals
