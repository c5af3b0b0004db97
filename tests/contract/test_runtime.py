"""What every `Runtime` does: two clusters on a virtual clock, and real containers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from containers.runtime import EventKind, Lease, ResumePoint, Terms
from containers.virtual.faithful import FaithfulFactory
from containers.virtual.truth import GroundTruth
from containers.virtual.virtual_cluster import VirtualFactory
from harness.dockerd import COUNTING, PLAIN
from predictor.allocation import Demand
from predictor.job import JobKind, JobSpec, Regime, make_timed_job
from predictor.throughput import UNTYPED, Profile
from tests.containers.driver import ROUND_SECONDS, Driver, driven, job, long

STEPS_PER_SECOND = 25.0
"""On the virtual clock; containers here are some two times as fast."""

Begin = Callable[..., Driver]


def middling(job_id: int) -> JobSpec:
    """A job that takes several rounds of `ROUND_SECONDS`."""
    return job(job_id, epochs=8, samples=512)


@pytest.fixture(params=["virtual", "faithful", pytest.param("docker", marks=pytest.mark.docker)])
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Begin]:
    """Begins a run of these jobs, and of those that a test admits later."""
    with ExitStack() as stack:

        def virtual(
            *specs: JobSpec, later: Sequence[JobSpec] = (), round_seconds: float = ROUND_SECONDS
        ) -> Driver:
            jobs = (*specs, *later)
            profile = Profile.of_type(
                {(spec.model, 32, spec.demand.least): STEPS_PER_SECOND for spec in jobs}
            )
            pairs = {
                (spec.model, 32, other.model, 32, UNTYPED, spec.demand.least): STEPS_PER_SECOND / 2
                for spec in jobs
                for other in jobs
            }
            profile = replace(profile, pairs=pairs)
            regimes = {spec.job_id: (Regime(32, spec.epochs),) for spec in jobs}
            truths = [GroundTruth(i, 1.0, held, held) for i, held in regimes.items()]
            place = (
                VirtualFactory(truths) if request.param == "virtual" else FaithfulFactory(truths)
            )
            terms = Terms("contract", round_seconds, 0.5, profile)
            driver = Driver(
                stack.enter_context(closing(place.open(terms, ResumePoint(jobs=specs))))
            )
            driver.look()
            return driver

        def docker(
            *specs: JobSpec, later: Sequence[JobSpec] = (), round_seconds: float = ROUND_SECONDS
        ) -> Driver:
            from harness.dockerd import cluster

            daemon, storage = map(request.getfixturevalue, ("daemon", "storage"))
            nodes = cluster(daemon, storage, gpus=4, image=COUNTING)
            return stack.enter_context(
                driven(nodes, "contract", specs, round_seconds=round_seconds)
            )

        yield docker if request.param == "docker" else virtual


def check(driver: Driver, specs: list[JobSpec]) -> None:
    """What holds of every run in which all jobs end."""
    clocks = [seen.clock_seconds for seen in driver.seen]
    assert clocks == sorted(clocks)
    for before, after in pairwise(driver.seen):
        for event in after.finished:
            assert before.clock_seconds <= event.at_seconds <= after.clock_seconds
    for spec in specs:
        assert driver.epochs(spec.job_id) == list(range(spec.epochs))
        assert driver.kinds(spec.job_id).count("finished") == 1
        assert driver.kinds(spec.job_id)[0] == "started"
        assert driver.kinds(spec.job_id)[-1] == "finished"
        stood = driver.progress[spec.job_id]
        for earlier, later in pairwise(stood):
            assert (earlier.epochs, earlier.fraction) <= (later.epochs, later.fraction)
            assert earlier.steps_left >= later.steps_left
            assert later.run_seconds == pytest.approx(earlier.run_seconds + later.seconds)
        assert all(0.0 <= entry.fraction <= 1.0 and entry.seconds >= 0.0 for entry in stood)
        assert (stood[-1].epochs, stood[-1].steps_left) == (spec.epochs, 0)
        seconds = [report.seconds for report in driver.reports if report.job_id == spec.job_id]
        assert 0.0 < sum(seconds) == pytest.approx(stood[-1].run_seconds, rel=0.2)
    held: dict[int, int] = {}
    for event in driver.events:  # in order: whoever gets a GPU finds it free
        if event.kind in (EventKind.STARTED, EventKind.RESUMED):
            assert held.keys().isdisjoint(event.gpus), event
            held |= dict.fromkeys(event.gpus, event.job_id)
        elif event.kind is not EventKind.RENEWED:
            assert {held.pop(gpu) for gpu in event.gpus} == {event.job_id}
    assert not held


def test_jobs_start_go_on_are_preempted_resume_elsewhere_and_end(begin: Begin) -> None:
    specs = [middling(0), job(1, gpus=2, epochs=8), job(2)]
    driver = begin(*specs)
    first, gang = driver.dispatch({0: (0,), 1: (1, 2)})
    assert (first.kind, first.gpus) == (EventKind.STARTED, (0,))
    assert (gang.kind, gang.gpus) == (EventKind.STARTED, (1, 2))
    driver.runtime.advance(None)
    assert {entry.job_id for entry in driver.look().progress} == {0, 1}
    driver.until_trained(0)
    (again,) = driver.runtime.launch(driver.number, [Lease(0, (0,))])
    assert (again.kind, again.gpus) == (EventKind.RENEWED, (0,))

    others = {job_id: gpus for job_id, gpus in driver.leases.items() if job_id}
    lost, other = driver.dispatch({**others, 2: (0,)})
    assert (lost.kind, lost.gpus) == (EventKind.PREEMPTED, (0,))
    assert lost.reason.startswith("a test says so")
    assert (other.job_id, other.kind) == (2, EventKind.STARTED)
    driver.runtime.advance(None)
    driver.look()
    (resumed,) = [e for e in driver.dispatch({**driver.leases, 0: (3,)}) if e.job_id == 0]
    assert (resumed.kind, resumed.gpus) == (EventKind.RESUMED, (3,))
    driver.runtime.advance(None)
    driver.look()
    driver.until_over()
    check(driver, specs)
    assert driver.last(0).gpus in ((3,), (0,))
    assert driver.last(1).gpus == (1, 2)


def test_a_round_observed_twice_is_one_round(begin: Begin) -> None:
    specs = [job(0, epochs=8), job(1)]
    driver = begin(*specs, round_seconds=2.0)
    start = driver.seen[-1].clock_seconds
    driver.runtime.advance(start + 0.5)  # idle, until the first job arrives
    seen = driver.look()
    assert (seen.finished, seen.reports, seen.progress, seen.drained) == ((), (), (), ())
    assert seen.clock_seconds == pytest.approx(start + 0.5, abs=0.3)

    driver.dispatch({0: (0,), 1: (3,)})
    twice = driver.runtime.launch(0, [Lease(0, (0,)), Lease(1, (3,))])
    assert [(event.kind, event.gpus) for event in twice] == [
        (EventKind.RENEWED, (0,)),
        (EventKind.RENEWED, (3,)),
    ]
    driver.runtime.advance(None)
    driver.look()
    driver.look()  # at once; what jobs did meanwhile is reported once, as `check` finds
    driver.until_over()
    check(driver, specs)
    ended = [event.at_seconds for event in driver.events if event.kind is EventKind.FINISHED]
    assert driver.seen[-1].clock_seconds - max(ended) < 1.0  # nobody waits on
    driver.runtime.advance(driver.seen[-1].clock_seconds + 0.1)
    after = driver.look()
    assert (after.progress, after.finished) == ((), ())  # all is forgotten


def test_a_lease_of_other_gpus_takes_the_place_of_the_one_before(begin: Begin) -> None:
    specs = [middling(0)]
    driver = begin(*specs)
    driver.play({0: (0,)})
    driver.until_trained(0)
    (moved,) = driver.runtime.launch(driver.number, [Lease(0, (2,))])
    assert moved.kind in (EventKind.RESUMED, EventKind.RENEWED)
    assert moved.gpus == (2,)
    driver.leases = {0: (2,)}
    driver.until_over()
    assert driver.epochs(0) == list(range(specs[0].epochs))
    assert driver.last(0).gpus == (2,)


@pytest.mark.parametrize("begin", ["virtual", "faithful"], indirect=True)
def test_two_jobs_hold_the_same_gpus_and_each_loses_its_lease_alone(begin: Begin) -> None:
    specs = [middling(0), middling(1)]
    driver = begin(*specs)
    assert [event.kind for event in driver.dispatch({0: (1,), 1: (1,)})] == [EventKind.STARTED] * 2
    driver.runtime.advance(None)
    assert {entry.job_id for entry in driver.look().progress} == {0, 1}
    driver.until_trained(1)
    (lost,) = driver.dispatch({1: (1,)})
    assert (lost.job_id, lost.kind, lost.gpus) == (0, EventKind.PREEMPTED, (1,))
    driver.runtime.advance(None)
    assert {entry.job_id for entry in driver.look().progress} == {1}
    (back,) = driver.dispatch({0: (1,), **driver.leases})
    assert (back.job_id, back.kind, back.gpus) == (0, EventKind.RESUMED, (1,))
    driver.runtime.advance(None)
    driver.look()
    driver.until_over()
    for spec in specs:
        assert driver.epochs(spec.job_id) == list(range(spec.epochs))
        assert driver.kinds(spec.job_id).count("finished") == 1


def test_jobs_are_admitted_at_any_boundary_and_only_once(begin: Begin) -> None:
    first, second = middling(0), job(1)
    driver = begin(first, later=[second])
    driver.play({0: (0,)})
    driver.runtime.admit([second])
    driver.play({0: (0,), 1: (1,)})
    driver.runtime.admit([first, second])  # changes nothing
    driver.until_over()
    check(driver, [first, second])


def test_a_withdrawn_job_ends_at_the_next_boundary_and_gives_its_gpus_back(begin: Begin) -> None:
    driver = begin(long(0), long(1), job(2))
    driver.play({0: (0,)})
    for job_id in (0, 1, 99):  # runs, waits, was never here
        driver.runtime.withdraw(job_id)
    seen = driver.play({0: (0,)})
    assert [(event.job_id, event.kind, event.gpus) for event in seen.finished] == [
        (0, EventKind.WITHDRAWN, (0,)),
        (1, EventKind.WITHDRAWN, ()),
    ]
    assert seen.ended == (0, 1)
    assert [entry.job_id for entry in seen.progress] == [0]
    driver.play({2: (0,)})
    driver.until_over()
    assert driver.kinds(0) == ["started", "withdrawn"]
    assert driver.kinds(1) == ["withdrawn"]
    assert (driver.kinds(2)[0], driver.last(2).kind) == ("started", EventKind.FINISHED)


def test_a_job_that_ends_before_the_boundary_is_not_withdrawn(begin: Begin) -> None:
    driver = begin(job(0), round_seconds=60.0)
    driver.dispatch({0: (0,)})
    driver.runtime.withdraw(0)
    driver.runtime.advance(None)
    (ended,) = driver.look().finished
    assert ended.kind is EventKind.FINISHED
    driver.runtime.withdraw(0)  # it is over
    driver.dispatch({})
    driver.runtime.advance(driver.seen[-1].clock_seconds + 0.1)  # nobody waits for the boundary
    assert driver.look().finished == ()


@pytest.mark.parametrize("kind", [JobKind.CHECKPOINTING, JobKind.OPAQUE])
def test_a_timed_job_ends_when_its_program_does(begin: Begin, kind: JobKind) -> None:
    spec = make_timed_job(
        0, kind, Demand.gang(2), 1_000.0, 0.0, image=PLAIN, command=("sleep", "0.5")
    )
    driver = begin(spec, round_seconds=1.0)
    driver.play({0: (1, 2)})
    driver.until_over()
    assert (driver.kinds(0)[0], driver.last(0).kind) == ("started", EventKind.FINISHED)
    assert driver.epochs(0) == [0]
    *going, ended = driver.progress[0]
    assert (ended.epochs, ended.steps_left) == (1, 0)
    assert 0.0 < ended.run_seconds < 1_000.0
    assert all(0 < entry.steps_left <= 1_000 for entry in going), "nobody knows when it ends"


def test_a_job_that_is_given_up_while_it_runs_gives_its_gpus_back(begin: Begin) -> None:
    driver = begin(long(0), job(1))
    driver.play({0: (0,)})
    driver.runtime.reap((0,))
    del driver.leases[0]
    driver.play({1: (0,)})
    assert [entry.job_id for entry in driver.seen[-1].progress] == [1]
    driver.until_over()
    assert (driver.kinds(0), driver.last(1).kind) == (["started"], EventKind.FINISHED)
