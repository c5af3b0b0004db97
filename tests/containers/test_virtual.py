"""Runs on a virtual cluster: 120 s rounds, 20 s restarts, and one step a second."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.runtime import Lease, ResumePoint, Terms
from containers.virtual.truth import GroundTruth
from containers.virtual.virtual_cluster import VirtualCluster, VirtualFactory
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import TABLE_MODES, EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.throughput import Profile
from solver.inventory import Inventory, Pool
from tests.strategies import examples

SIZES = (10, 20, 40)
ONE_STEP_A_SECOND = Profile.of_type({("toy", size, 1): 1.0 for size in SIZES})

Job = tuple[JobSpec, GroundTruth]


def job(
    job_id: int,
    steps: int,
    *,
    mode: Mode = Mode.STATIC,
    samples: int = 1_000,
    targets: Sequence[tuple[int, int]] = ((10, 1),),
) -> Job:
    """A job that starts with batches of 10, so that 1,000 samples are 100 steps."""
    spec = JobSpec(
        job_id=job_id,
        model="toy",
        batch_size=10,
        max_batch_size=40,
        demand=Demand.gang(1),
        mode=mode,
        epochs=math.ceil(steps / math.ceil(samples / 10)),
        samples_per_epoch=samples,
        arrival_seconds=0.0,
        total_steps=steps,
    )
    regimes = tuple(Regime(*run) for run in targets)
    return spec, GroundTruth(job_id, float(steps), regimes, regimes)


def cluster(
    jobs: Iterable[Job],
    profile: Profile = ONE_STEP_A_SECOND,
    *,
    round_seconds: float = 120.0,
    restart_seconds: float = 20.0,
) -> VirtualCluster:
    specs, truths = zip(*jobs, strict=True)
    terms = Terms("", round_seconds, restart_seconds, profile)
    return VirtualFactory(truths).open(terms, ResumePoint(jobs=specs))


@dataclass
class Driver:
    """Plays rounds and keeps everything that the cluster reports."""

    cluster: VirtualCluster
    log: list[tuple[float, str, int]] = field(default_factory=list)
    reports: list[EpochReport] = field(default_factory=list)
    progress: list[JobProgress] = field(default_factory=list)
    clocks: list[float] = field(default_factory=list)
    held: set[int] = field(default_factory=set)

    def play(self, *rounds: Sequence[int], idle_until: float | None = None) -> "Driver":
        """Run these jobs in each round; leases of other jobs are taken back."""
        for wanted in rounds:
            events = [*self.cluster.preempt(dict.fromkeys(sorted(self.held - set(wanted)), ""))]
            events += self.cluster.launch(len(self.clocks), [Lease(i, (i,)) for i in wanted])
            self.cluster.advance(idle_until)
            seen = self.cluster.observe()
            finished = [event.job_id for event in seen.finished]
            self.cluster.reap(finished)
            self.held = set(wanted) - set(finished)
            self.log += [(e.at_seconds, str(e.kind), e.job_id) for e in (*events, *seen.finished)]
            self.reports += seen.reports
            self.progress += seen.progress
            self.clocks.append(seen.clock_seconds)
        return self


def rows(reports: Iterable[EpochReport]) -> list[tuple[int, int, int, float]]:
    return [(r.epoch, r.epochs, r.batch_size, r.seconds) for r in reports]


def test_a_job_finishes_inside_a_round_and_the_round_ends_with_it() -> None:
    driver = Driver(cluster([job(0, 150)])).play([0], [0])
    assert driver.log == [(0.0, "started", 0), (120.0, "renewed", 0), (150.0, "finished", 0)]
    assert driver.clocks == [120.0, 150.0]


def test_a_round_lasts_as_long_as_its_longest_job() -> None:
    driver = Driver(cluster([job(0, 30), job(1, 200), job(2, 10)])).play([0, 1, 2], [1])
    assert driver.log == [
        (0.0, "started", 0),
        (0.0, "started", 1),
        (0.0, "started", 2),
        (10.0, "finished", 2),
        (30.0, "finished", 0),
        (120.0, "renewed", 1),
        (200.0, "finished", 1),
    ]


def test_a_preempted_job_resumes_and_pays_for_its_restart() -> None:
    driver = Driver(cluster([job(0, 300), job(1, 300)])).play([0], [1], [0], [0])
    assert driver.log == [
        (0.0, "started", 0),
        (120.0, "preempted", 0),
        (120.0, "started", 1),
        (240.0, "preempted", 1),
        (240.0, "resumed", 0),
        (360.0, "renewed", 0),
        (440.0, "finished", 0),
    ]
    assert [(p.job_id, p.run_seconds) for p in driver.progress] == [
        (0, 120.0),  # nothing is charged in the first round
        (1, 100.0),
        (0, 220.0),
        (0, 300.0),
    ]


def test_the_first_round_is_free_even_after_waiting_for_an_arrival() -> None:
    driver = Driver(cluster([job(0, 150)])).play([], idle_until=500.0).play([0], [0])
    assert driver.clocks == [500.0, 620.0, 650.0]
    assert driver.progress[0].run_seconds == 120.0


def test_a_restart_costs_nothing_when_the_run_ends_within_115_seconds() -> None:
    driver = Driver(cluster([job(0, 120), job(1, 115)])).play([0], [1])
    assert driver.log[-1] == (235.0, "finished", 1)
    assert driver.progress[-1].run_seconds == 115.0


def test_a_restart_costs_20_seconds_when_the_run_ends_later() -> None:
    driver = Driver(cluster([job(0, 120), job(1, 116)])).play([0], [1], [1])
    assert driver.clocks == [120.0, 236.0, 256.0]
    assert [p.run_seconds for p in driver.progress] == [120.0, 96.0, 116.0]
    assert driver.log[-1] == (256.0, "finished", 1)


def test_a_restart_that_takes_no_time_costs_no_step() -> None:
    slow = Profile.of_type({("toy", 10, 1): 0.526})  # 189 · t / t is below 189 for t = 189 / 0.526
    waits = cluster([job(0, 189), job(1, 189)], slow, round_seconds=360.0, restart_seconds=0.0)
    assert [
        job_id for _, kind, job_id in Driver(waits).play([0], [1]).log if kind == "finished"
    ] == [0, 1]


def test_a_round_does_whole_steps_only() -> None:
    driver = Driver(cluster([job(0, 7)], Profile.of_type({("toy", 10, 1): 0.04}))).play([0], [0])
    assert driver.clocks == [100.0, 175.0]


def test_an_idle_clock_goes_to_the_given_time_but_never_back() -> None:
    driver = Driver(cluster([job(0, 150)])).play([], idle_until=70.0)
    driver.play([], idle_until=None).play([], idle_until=30.0).play([], idle_until=90.0)
    assert driver.clocks == [70.0, 70.0, 70.0, 90.0]
    assert driver.log == []


def test_epochs_are_reported_when_they_are_complete() -> None:
    driver = Driver(cluster([job(0, 350)])).play([0], [0], [0])
    assert rows(driver.reports) == [(0, 1, 10, 100.0), (1, 1, 10, 100.0), (2, 2, 10, 150.0)]
    assert [(p.epochs, p.fraction) for p in driver.progress] == [(1, 0.2), (2, 0.4), (4, 0.0)]


def test_gns_doubles_one_at_a_time_and_a_round_after_it_is_due() -> None:
    gns = job(0, 1_000, mode=Mode.GNS, targets=[(10, 2), (40, 1)])
    driver = Driver(cluster([gns])).play([0], [0], [0], [0])
    assert [(p.epochs, p.batch_size) for p in driver.progress] == [
        (1, 10),  # in its second epoch: a doubling is due
        (3, 20),  # after 240 of 300 steps the third epoch counts as done
        (6, 40),  # 150 + 120 steps of 50 an epoch: the sixth is cut short as well
        (10, 40),
    ]
    assert rows(driver.reports) == [
        (0, 1, 10, 100.0),
        (1, 1, 10, 100.0),
        (2, 1, 10, 40.0),
        (3, 2, 20, 100.0),
        (5, 1, 20, 20.0),
        (6, 4, 40, 100.0),
    ]
    assert driver.log[-1] == (460.0, "finished", 0)


def test_a_change_rounds_the_remaining_steps_up() -> None:
    gns = job(0, 355, mode=Mode.GNS, targets=[(10, 2), (20, 1)])
    driver = Driver(cluster([gns])).play([0], [0], [0])
    assert driver.log[-1] == (268.0, "finished", 0)  # 150 of ⌈177.5⌉ steps were done at 240 s


def test_accordion_jumps_to_the_largest_and_back() -> None:
    accordion = job(0, 1_400, mode=Mode.ACCORDION, targets=[(10, 2), (40, 6), (10, 1)])
    driver = Driver(cluster([accordion])).play([0], [0], [0], [0], [0])
    assert [(p.epochs, p.batch_size) for p in driver.progress] == [
        (1, 10),  # in its second epoch: the change to 40 is due
        (3, 40),
        (7, 40),  # 75 + 120 steps of 25 an epoch, so in its eighth: the change to 10 is due
        (13, 10),
        (14, 10),
    ]
    assert driver.log[-1] == (580.0, "finished", 0)


def test_a_job_may_finish_before_a_change_that_is_due() -> None:
    accordion = job(0, 1_200, mode=Mode.ACCORDION, targets=[(10, 2), (40, 6), (10, 1)])
    driver = Driver(cluster([accordion])).play([0], [0], [0], [0])
    assert rows(driver.reports)[-1] == (7, 5, 40, 125.0)
    assert driver.log[-1] == (465.0, "finished", 0)


def test_a_change_of_batch_size_waits_for_the_next_round_in_which_the_job_runs() -> None:
    gns = job(0, 1_000, mode=Mode.GNS, targets=[(10, 2), (20, 1)])
    driver = Driver(cluster([gns, job(1, 500)])).play([0], [1], [1], [0])
    assert [(p.job_id, p.batch_size) for p in driver.progress] == [
        (0, 10),
        (1, 10),
        (1, 10),
        (0, 20),
    ]


def test_a_job_whose_change_took_its_last_steps_leaves_after_its_fifth_empty_round() -> None:
    overshooting = job(0, 250, mode=Mode.GNS, targets=[(10, 2), (20, 1)])
    driver = Driver(cluster([overshooting, job(1, 1_000)])).play(*[[0, 1]] * 7)
    assert driver.log[-1] == (720.0, "finished", 0)  # when its fifth empty round began
    assert driver.clocks == [120.0, 240.0, 360.0, 480.0, 600.0, 720.0, 840.0]
    reports = [report for report in driver.reports if report.job_id == 0]
    assert rows(reports) == [(0, 1, 10, 100.0), (1, 1, 10, 100.0), (2, 1, 10, 40.0)]


def test_a_job_without_a_step_left_restarts_for_nothing_even_in_rounds_of_4_seconds() -> None:
    overshooting = job(0, 250, mode=Mode.GNS, targets=[(10, 3), (20, 1)])
    driver = Driver(cluster([overshooting], round_seconds=4.0, restart_seconds=3.0))
    driver.play(*[[0]] * 52, *[[], [0]] * 5)  # 208 steps are done when the batch size doubles
    assert driver.log[-1] == (208.0, "finished", 0)
    assert driver.progress[-1].run_seconds == 208.0


@pytest.mark.parametrize(
    ("made", "rates", "problem"),
    [
        (
            job(0, 500, mode=Mode.GNS, targets=[(10, 2), (40, 1)]),
            {10: 1.0, 40: 1.0},
            "profile: no throughput for toy with batch size 20 on 1 GPU; "
            "add the measurement to the profile or change the job",
        ),
        (
            job(3, 500),
            {10: 0.008},
            "job 3: cannot finish a training step in a round of 120 s; give longer rounds",
        ),
    ],
)
def test_jobs_that_cannot_run_are_refused(made: Job, rates: dict[int, float], problem: str) -> None:
    profile = Profile.of_type({("toy", size, 1): rate for size, rate in rates.items()})
    with pytest.raises(InputError) as caught:
        cluster([made], profile)
    assert str(caught.value) == problem
    with pytest.raises(InputError, match=r"has no ground truth; give one truth per job"):
        VirtualFactory([]).check(Terms("", 120.0, 20.0, ONE_STEP_A_SECOND), [made[0]])


def test_a_job_too_slow_on_one_type_is_refused_with_that_type() -> None:
    rates = {("toy", 10, kind, 1): rate for kind, rate in (("v100", 1.0), ("k80", 0.008))}
    spec, truth = job(3, 500)
    inventory = Inventory((Pool("v100", 1), Pool("k80", 1)))
    with pytest.raises(InputError) as caught:
        VirtualFactory([truth]).check(
            Terms("", 120.0, 20.0, Profile(rates), inventory=inventory), [spec]
        )
    assert str(caught.value) == (
        "job 3: cannot finish a training step with batch size 10 on k80 in a round of 120 s; "
        "give longer rounds, or 0 as the throughput of toy there, where it is not to run"
    )


@st.composite
def jobs(draw: st.DrawFn, job_id: int) -> Job:
    mode = draw(st.sampled_from(TABLE_MODES))
    allowed = {Mode.STATIC: [10], Mode.GNS: [10, 20, 40], Mode.ACCORDION: [10, 40]}[mode]
    lengths = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    return job(
        job_id,
        draw(st.integers(1, 1_500)),
        mode=mode,
        samples=draw(st.integers(40, 1_000)),
        targets=[(draw(st.sampled_from(allowed)), length) for length in lengths],
    )


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    rate = st.floats(0.2, 9.0)
    return Profile.of_type({("toy", size, 1): draw(rate) for size in SIZES})


ROUNDS = st.lists(st.sets(st.sampled_from([0, 1, 2])), max_size=30)


@examples(50)
@given(jobs(0), jobs(1), jobs(2), profiles(), ROUNDS)
def test_reports_account_for_every_epoch_and_every_second(
    a: Job, b: Job, c: Job, profile: Profile, rounds: list[set[int]]
) -> None:
    driver = Driver(cluster([a, b, c], profile))
    finished: set[int] = set()
    while len(finished) < 3:
        wanted = rounds.pop() if rounds else {0, 1, 2}
        driver.play(sorted(wanted - finished))
        finished = {job_id for _, kind, job_id in driver.log if kind == "finished"}
    assert driver.clocks == sorted(driver.clocks)
    for spec, _ in (a, b, c):
        reports = [report for report in driver.reports if report.job_id == spec.job_id]
        progress = [point for point in driver.progress if point.job_id == spec.job_id]
        epochs = [e for r in reports for e in range(r.epoch, r.epoch + r.epochs)]
        assert epochs == list(range(spec.epochs))
        assert {r.batch_size for r in reports} <= set(spec.batch_sizes)
        assert all(0 <= point.fraction < 1 for point in progress)
        run_seconds = [point.run_seconds for point in progress]
        assert run_seconds == sorted(run_seconds)
        # A restart takes whole steps, so up to one of each charged round goes missing.
        slack = len(progress) / min(profile.rates.values())
        unreported = run_seconds[-1] - sum(report.seconds for report in reports)
        assert -1e-6 < unreported < slack
