"""A log of ten jobs on two GPUs: waits, ρ, weeks and gains, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from flows.campaigns.hindsight import choose_round
from flows.runs.pools import Machines
from flows.runs.settings import SimulationSettings, make_settings
from predictor.errors import InputError
from solver.inventory import Pool
from warehouse.hindsight.gains import Gain, group_by_size, group_by_user, measure_gains
from warehouse.hindsight.inference import infer_pools
from warehouse.hindsight.jobs import NO_START, LoggedJobs, select_jobs
from warehouse.hindsight.schedules import ACTUAL, Schedule, read_actual
from warehouse.workloads.imported import make_workload
from warehouse.workloads.logs.anonymous import anonymize
from warehouse.workloads.logs.log import UNKNOWN, ClusterLog, TableJob
from warehouse.workloads.logs.pai import PAI

BEGIN = 1_000_000_000.0


def job(arrival: float, start: float, seconds: float, gpus: float, user: str) -> TableJob:
    times = {"start_seconds": BEGIN + start, "end_seconds": BEGIN + start + seconds}
    known = {"tenant": f"lab of {user}", "user": user, "name": f"{user}'s", "nodes": 1}
    return TableJob(BEGIN + arrival, seconds, gpus, **(times | known))  # type: ignore[arg-type]


JOBS = (
    # Two gangs of the whole cluster: in the even one both end at 7200.
    job(0, 0, 3600, 2, "ann"),
    job(0, 3600, 3600, 2, "bob"),
    # Two jobs of a GPU: both have theirs.
    job(10_000, 10_000, 1000, 1, "ann"),
    job(10_000, 10_000, 1000, 1, "ann"),
    # Three: each trains at 2/3 of its speed, and ends after 1500.
    job(20_000, 20_000, 1000, 1, "ann"),
    job(20_000, 20_000, 1000, 1, "bob"),
    job(20_000, 21_000, 1000, 1, "cy"),
    # A gang alone for 300, then beside another at 2/3: it ends after 750, the other after 450.
    job(30_000, 30_000, 600, 2, "bob"),
    job(30_300, 30_600, 300, 1, "cy"),
    # In the second week, alone, and yet it waited.
    job(700_000, 700_500, 100, 1, "cy"),
)
WAITS = [0, 3600, 0, 0, 0, 0, 1000, 0, 300, 500]
FAIR = [7200, 7200, 1000, 1000, 1500, 1500, 1500, 750, 450, 100]
ROUND, RESTART = 120, 20


def logged(jobs: tuple[TableJob, ...] = JOBS) -> LoggedJobs:
    log = select_jobs(ClusterLog("hand", jobs, {"steps of jobs": 3}, UNKNOWN))
    machines = Machines(infer_pools(log.jobs))
    settings = make_settings("fifo", machines, SimulationSettings(restart_seconds=RESTART))
    return LoggedJobs(log, make_workload("hand", log.jobs), settings)


def test_waits_and_fairness() -> None:
    actual = read_actual(logged())
    assert actual.waits.tolist() == WAITS
    expected = [
        (wait + job.seconds) / (fair + ROUND + RESTART)
        for wait, job, fair in zip(WAITS, JOBS, FAIR, strict=True)
    ]
    assert actual.rhos == pytest.approx(expected, abs=1e-5)
    figures = actual.summarize()
    assert figures["schedule"] == ACTUAL
    assert figures["mean_wait_s"] == 540
    assert (figures["wait_p50_s"], figures["wait_p95_s"]) == (0, pytest.approx(2430))
    assert figures["mean_jct_s"] == 1860
    assert figures["makespan_s"] == 700_600
    assert figures["worst_rho"] == pytest.approx(600 / 240)
    assert figures["unfair_fraction"] == 0.2  # the third of three, and the last
    assert figures["utilization"] == pytest.approx(21_000 / (2 * 700_600))


def test_weeks() -> None:
    assert read_actual(logged()).measure_weeks() == [30_900, 600]


def test_load_over_time() -> None:
    load = read_actual(logged()).load
    hours = 700_600 / 3600
    assert sum(row["leased"] for row in load) / 400 * hours == pytest.approx(
        21_000 / 7200, rel=0.01
    )
    assert sum(row["queued"] for row in load) / 400 * hours == pytest.approx(5400 / 3600, rel=0.02)


def test_starts_that_stand_for_submissions_are_refused() -> None:
    jobs = tuple(replace(job, arrival_seconds=job.held[0][0]) for job in JOBS)
    assert select_jobs(ClusterLog("idle", jobs, {}, UNKNOWN)).jobs == jobs
    with pytest.raises(InputError, match="says of no job when it was submitted"):
        select_jobs(ClusterLog("pai", jobs, {}, PAI.unknown))


def test_gains() -> None:
    actual = read_actual(logged())
    ends, waits = actual.ends.copy(), actual.waits.copy()
    ends[4], ends[6] = ends[6], ends[4]  # they change places
    waits[4], waits[6] = 1000, 0
    ends[5] += ROUND  # which is no more than a round
    other = Schedule("other", actual.jobs, ends, waits, 0.5, [])
    by_user = measure_gains(group_by_user(actual.jobs), actual, other)
    assert by_user == [
        Gain("ann", "other", 4, 10_200 / 3600, 0, 250, -250, 0, 0.25),
        Gain("bob", "other", 3, 9_400 / 3600, 1200, 1200, -40, 0, 0),
        Gain(
            "cy",
            "other",
            3,
            1_400 / 3600,
            600,
            pytest.approx(800 / 3),
            pytest.approx(1000 / 3),
            pytest.approx(1 / 3),
            0,
        ),
    ]
    sizes = measure_gains(group_by_size(actual.jobs), actual, other)
    assert [(gain.group, gain.jobs) for gain in sizes] == [("2 GPUs", 3), ("1 GPU", 7)]


def test_classes_of_sizes() -> None:
    jobs = tuple(replace(JOBS[0], gpus=gpus) for gpus in (0.25, 1, 2, 3, 4, 5, 8, 9))
    assert group_by_size(logged(jobs)) == [
        *("less than 1 GPU", "1 GPU", "2 GPUs", "3–4 GPUs", "3–4 GPUs", "5–8 GPUs", "5–8 GPUs"),
        "9–16 GPUs",
    ]


def test_a_job_that_was_requeued_waits_between_its_attempts() -> None:
    periods = ((BEGIN + 10, BEGIN + 50), (BEGIN + 150, BEGIN + 210))
    twice = replace(JOBS[0], seconds=100, periods=periods, start_seconds=BEGIN + 10)
    actual = read_actual(logged((twice,)))
    assert (actual.ends.tolist(), actual.waits.tolist()) == ([210], [110])


def test_a_job_arrives_when_it_could_start() -> None:
    held = replace(JOBS[1], eligible_seconds=BEGIN + 3000)
    late = replace(JOBS[6], eligible_seconds=BEGIN + 30_000)  # after its start: not believed
    jobs = select_jobs(ClusterLog("hand", (held, late), {}, ())).jobs
    assert [job.arrival_seconds - BEGIN for job in jobs] == [3000, 20_000]


def test_jobs_without_a_start() -> None:
    bare = TableJob(BEGIN, 60, 1)
    log = select_jobs(ClusterLog("hand", (*JOBS, bare), {"without GPUs": 1}, ()))
    assert len(log.jobs) == len(JOBS)
    assert log.left_out == {"without GPUs": 1, NO_START: 1}
    with pytest.raises(InputError, match="of no job when it started"):
        select_jobs(ClusterLog("hand", (bare,), {}, ()))


def test_the_cluster() -> None:
    assert infer_pools(JOBS) == (Pool("", 2, 2),)
    assert infer_pools([replace(job, nodes=0) for job in JOBS]) == (Pool("", 2, 1),)
    typed = [replace(JOBS[0], gpu_type="V100"), replace(JOBS[1], gpus=12, nodes=3, gpu_type="a100")]
    assert infer_pools(typed) == (Pool("a100", 12, 4), Pool("V100", 2, 2))
    # A job that names no type ran on one of the others, or on what they lacked.
    bare = replace(JOBS[2], start_seconds=BEGIN + 3600)
    assert infer_pools([*typed, bare]) == (Pool("a100", 12, 4), Pool("V100", 2, 2))
    beside = replace(JOBS[2], start_seconds=BEGIN)
    assert infer_pools([*typed, beside, replace(beside, gpus=8)]) == (
        Pool("a100", 24, 8),
        Pool("V100", 2, 2),
    )
    assert infer_pools([*typed, beside, replace(beside, gpus=16)]) == (Pool("", 32, 16),)
    # Its attempts do not overlap with the job that ran between them.
    periods = ((BEGIN, BEGIN + 3600), (BEGIN + 7200, BEGIN + 7300))
    assert infer_pools([replace(JOBS[0], periods=periods), JOBS[1]]) == (Pool("", 2, 2),)


def test_rounds_of_long_logs_are_longer() -> None:
    def choose(seconds: float) -> float:
        last = replace(JOBS[0], arrival_seconds=BEGIN + seconds)
        return choose_round(ClusterLog("hand", (JOBS[0], last), {}, ()))

    day = 86_400
    assert [choose(days * day) for days in (0, 7, 8, 30)] == [120, 120, 180, 540]


def test_anonymous_logs() -> None:
    hand = tuple(
        replace(job, key="7", place="x:1", model="m", state="CANCELLED by 12") for job in JOBS
    )
    log = anonymize(ClusterLog("ann.txt, User=ann", hand, {"without GPUs": 2}, UNKNOWN))
    assert log.source == "a log, 2 lines left out"
    assert [job.user for job in log.jobs[:3]] == ["user-1", "user-2", "user-1"]
    assert [job.tenant for job in log.jobs[:3]] == ["account-1", "account-2", "account-1"]
    assert [job.name for job in log.jobs[:3]] == ["name-1", "name-2", "name-1"]
    assert {(j.key, j.place, j.model, j.state) for j in log.jobs} == {("", "", None, "CANCELLED")}
    assert np.all(read_actual(logged(log.jobs)).waits == WAITS)
