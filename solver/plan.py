"""What a policy is told and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from predictor.forecast import Forecast
from predictor.job import JobSpec
from solver.cluster import Cluster, place
from solver.market import Bid


@dataclass(frozen=True, slots=True)
class ActiveJob:
    """A job that could run in the coming round.

    Attributes:
        spec: What was declared.
        forecast: What it is expected to do.
        gpus: GPUs that it holds now; empty if it does not run.
    """

    spec: JobSpec
    forecast: Forecast
    gpus: tuple[int, ...]


@dataclass(frozen=True)
class Situation:
    """All that a policy may know when it plans.

    Attributes:
        clock_seconds: The run's clock at the round's start.
        cluster: The GPUs.
        round_seconds: Length of a round.
        window: T, rounds to plan ahead.
        jobs: Active jobs, by job id.
        jobs_seen: Jobs that have arrived so far.
    """

    clock_seconds: float
    cluster: Cluster
    round_seconds: float
    window: int
    jobs: tuple[ActiveJob, ...]
    jobs_seen: int


@dataclass(frozen=True, slots=True)
class Turn:
    """The rounds of the window in which a job is to run, 0 the coming one."""

    job_id: int
    rounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SolveReport:
    """How a plan was found and how good it is, as laid out.

    Attributes:
        policy: Who planned.
        backend: Which solver; `none` where there was nothing to solve.
        reason: Why that one.
        status: As of `solver.clearing.Clearing`, or `rule` for policies without a solver.
        objective: Of the plan as laid out.
        bound: Proven upper bound on any plan's objective.
        gap: (bound − objective) / max(|bound|, |objective|), 0 where both are 0.
        price: Objective that one more GPU-round in the window would bring.
    """

    policy: str
    backend: str = "none"
    reason: str = "no market"
    status: str = "rule"
    objective: float = 0.0
    bound: float = 0.0
    gap: float = 0.0
    price: float = 0.0


@dataclass(frozen=True)
class Plan:
    """Who runs when, from the coming round on.

    Attributes:
        turns: Jobs that run in the window, by job id.
        placement: GPUs by job for the coming round.
        bids: What the jobs bid, by job id; empty without a market.
        report: How the plan was found.
    """

    turns: tuple[Turn, ...]
    placement: Mapping[int, tuple[int, ...]]
    bids: tuple[Bid, ...]
    report: SolveReport


class Policy(Protocol):
    """Decides who runs. Pure: the same situation gives the same plan."""

    name: str

    def plan(self, situation: Situation) -> Plan:
        """Plan from the coming round on; at least that one."""
        ...


def next_round(situation: Situation, job_ids: list[int]) -> dict[int, tuple[int, ...]]:
    """Place the jobs of the coming round."""
    jobs = {job.spec.job_id: job for job in situation.jobs}
    return place(
        situation.cluster,
        {job_id: jobs[job_id].spec.scale_factor for job_id in job_ids},
        {job_id: jobs[job_id].gpus for job_id in job_ids if jobs[job_id].gpus},
    )
