"""Postponement is bounded: whatever arrives, an overdue job waits for overdue jobs only."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Allocation, Demand
from predictor.belief import Belief
from predictor.job import JobProgress, JobSpec, Mode
from predictor.throughput import UNTYPED, Profile
from solver.even_cluster import Arrival, ClusterChange, EvenCluster
from solver.plan import ActiveJob, Situation
from solver.policies import make_policy
from tests.strategies import certain, cluster, examples

ROUND_SECONDS = 100.0
GPUS = 4
GANGS = (1, 2, 4)
PROFILE = Profile.of_type({("cnn", 16, gang): 0.01 for gang in GANGS})
"""A step a round: a job's epochs are the rounds that it trains."""


class Stream:
    """Jobs that keep arriving, under a policy, with exact forecasts and no restarts."""

    def __init__(self) -> None:
        self.clock, self.seen = 0.0, 0
        self.even = EvenCluster(gpus=GPUS)
        self.fair: dict[int, float] = {}
        self.active: dict[int, ActiveJob] = {}

    def arrive(self, gang: int, rounds: int) -> JobSpec:
        """A new job."""
        spec = JobSpec(
            self.seen, "cnn", 16, 16, Demand.gang(gang), Mode.STATIC, rounds, 16, self.clock
        )
        self.active[spec.job_id] = ActiveJob(
            Belief(spec),
            certain(spec.job_id, float(rounds)),
            (),
            0,
            (Allocation(UNTYPED, gang),),
            PROFILE,
        )
        self.seen += 1
        return spec

    def situation(self, arrivals: list[JobSpec]) -> Situation:
        """Policy input of the coming round."""
        came = tuple(
            Arrival(spec.job_id, spec.arrival_seconds, spec.demand.least) for spec in arrivals
        )
        seconds = {spec.job_id: spec.epochs * ROUND_SECONDS for spec in arrivals}
        self.even, ends = self.even.after([ClusterChange(self.clock, came, GPUS)], seconds)
        self.fair |= ends | self.even.project()
        jobs = tuple(self.active.values())
        return Situation(self.clock, cluster(GPUS), ROUND_SECONDS, 1, jobs, {**self.fair})

    def train(self, placement: dict[int, tuple[int, ...]]) -> None:
        """A round passes."""
        self.clock += ROUND_SECONDS
        for job_id, job in list(self.active.items()):
            gpus = placement.get(job_id, ())
            run = job.belief.run_seconds + ROUND_SECONDS * bool(gpus)
            done = round(run / ROUND_SECONDS)
            if done == job.spec.epochs:
                del self.active[job_id]
                continue
            left = job.spec.epochs - done
            progress = JobProgress(job_id, done, 0.0, 16, ROUND_SECONDS, run, left)
            self.active[job_id] = replace(
                job,
                belief=Belief(job.spec, (), progress if run else None),
                forecast=certain(job_id, float(left)),
                gpus=gpus,
                lease_rounds=job.lease_rounds + 1 if gpus and gpus == job.gpus else int(bool(gpus)),
            )


BURSTS = st.lists(
    st.lists(st.tuples(st.sampled_from(GANGS), st.integers(1, 3)), max_size=4),
    min_size=10,
    max_size=40,
)


def overdue(situation: Situation, times: float) -> dict[int, float]:
    """Seconds since each job became overdue, by job id."""
    late = {}
    for job in situation.jobs:
        arrival = job.spec.arrival_seconds
        unfair = 1.05 * (situation.fair_finishes[job.job_id] - arrival + ROUND_SECONDS)
        late[job.job_id] = situation.clock_seconds - arrival - times * unfair
    return {job_id: seconds for job_id, seconds in late.items() if seconds > 1e-6}


def check_who_waits(
    situation: Situation, placement: Mapping[int, tuple[int, ...]], late: dict[int, float]
) -> None:
    """A job that is overdue waits for those only that were overdue before it."""
    for job in situation.jobs:
        if job.job_id in late and job.job_id not in placement:
            before = [other for other in placement if late.get(other, 0) >= late[job.job_id]]
            assert sum(len(placement[other]) for other in before) > GPUS - job.gang


@examples(30)
@given(gangs=st.lists(st.sampled_from(GANGS), min_size=4, max_size=6), bursts=BURSTS)
def test_an_overdue_job_waits_for_jobs_that_were_overdue_before_it_only(
    gangs: list[int], bursts: list[list[tuple[int, int]]]
) -> None:
    policy, stream = make_policy("shockwave", values={"overdue": 0.5}), Stream()
    for burst in [[(gang, 6) for gang in gangs], *bursts]:
        situation = stream.situation([stream.arrive(*job) for job in burst])
        placement = dict(policy.plan(situation).placement)
        check_who_waits(situation, placement, overdue(situation, 0.5))
        stream.train(placement)


@examples(15)
@given(gangs=st.lists(st.sampled_from(GANGS), min_size=4, max_size=6), bursts=BURSTS)
def test_a_job_is_overdue_by_the_reported_time_unless_others_arrive(
    gangs: list[int], bursts: list[list[tuple[int, int]]]
) -> None:
    policy, stream = make_policy("shockwave", values={"overdue": 0.5}), Stream()
    coming, reported = [[(gang, 6) for gang in gangs], *bursts], dict[int, float]()
    while coming or stream.active:
        burst = coming.pop(0) if coming else []
        situation = stream.situation([stream.arrive(*job) for job in burst])
        plan, late = policy.placed(situation), overdue(situation, 0.5)
        reported = {} if burst else reported
        assert {*plan.order} == stream.active.keys()
        for job_id, seconds in zip(plan.order, plan.first_by, strict=True):
            before = reported.setdefault(job_id, stream.clock + seconds)
            if job_id in late:
                assert seconds == 0.0
            else:
                assert math.isclose(stream.clock + seconds, before)
                assert stream.clock <= before + 1e-3
        check_who_waits(situation, plan.placement, late)
        stream.train(dict(plan.placement))


@pytest.mark.slow
def test_an_endless_stream_of_short_jobs_does_not_keep_a_long_gang_waiting_for_ever() -> None:
    policy, stream = make_policy("shockwave"), Stream()
    gang = stream.arrive(4, 4)
    arrivals = [gang]
    while gang.job_id in stream.active:
        arrivals += [stream.arrive(1, 1) for _ in range(5)]
        situation = stream.situation(arrivals)
        arrivals = []
        bound = policy.overdue * 1.05 * (stream.fair[gang.job_id] + ROUND_SECONDS)
        assert stream.clock <= bound + 4 * ROUND_SECONDS
        stream.train(dict(policy.plan(situation).placement))
