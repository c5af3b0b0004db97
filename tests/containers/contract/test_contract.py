"""What every engine of leases does; each test runs on Docker and on Slurm."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from containers.leasing.ends import WAS_KILLED
from containers.leasing.folder import describe_job, make_folder, replace_file
from containers.runtime import EventKind, Lease, ResumePoint
from harness.dockerd import python
from harness.waiting import wait_for
from predictor.allocation import Demand
from predictor.job import JobKind, make_timed_job
from tests.containers.contract.places import GPUS, Place, place
from tests.containers.driver import driven, job, long, open_engine, open_runtime

__all__ = ["place"]


def test_a_lease_that_two_processes_start_is_one_job(place: Place) -> None:
    nodes, spec, lease = place.nodes(), long(0, gpus=2), Lease(0, (0, 1))
    folder = nodes.folder("twice", 0)
    with (
        closing(open_engine(nodes, "twice")) as one,
        closing(open_engine(nodes, "twice")) as two,
        ThreadPoolExecutor() as pool,
    ):
        attempts = [engine.prepare(0, lease, spec, shared=False) for engine in (one, two)]
        make_folder(folder)
        replace_file(folder / "job.json", json.dumps(describe_job(spec, spec.demand.size)))
        replace_file(folder / "lease", attempts[0].name)
        nodes.hand_over(folder)
        for done in [*map(lambda e, a: pool.submit(e.start, a), (one, two), attempts)]:
            done.result()
        two.start(attempts[1])
        (found,) = wait_for(lambda: one.look(again=True), lambda found: found[0].running)
        assert (found.job_id, found.round, found.gpus) == (0, 0, (0, 1))
        wait_for((folder / "progress.json").exists)
        assert [gpus for _, gpus in place.running("twice").values()] == [{"n1": 2}]
        assert two.end(two.look(again=True), 10.0) == ({}, [])
        assert not any(entry.running for entry in one.look(again=True))
    assert place.running("twice") == {}
    assert json.loads((folder / "progress.json").read_bytes())["attempt"] == 1


def test_jobs_get_the_gpus_of_the_nodes_that_they_lease(place: Place) -> None:
    wide = (0, 1, GPUS, GPUS + 1)
    with driven(place.nodes(), "placed", [long(0), long(1, gpus=4)]) as driver:
        driver.dispatch({0: (3,), 1: wide})
        held = wait_for(lambda: place.running("placed"), lambda found: len(found) == 2)
        assert held[0][1] == {"n1": 1}
        assert held[1][1] == {"n1": 2, "n2": 2}
        driver.until_trained(1)
        driver.play({1: (0, GPUS + 1, GPUS + 2, GPUS + 3)})
        _, gpus = wait_for(
            lambda: place.running("placed").get(1, ("", {})),
            lambda held: sum(held[1].values()) == 4,
        )
        assert gpus.keys() == {"n1", "n2"}  # a Slurm divides uneven gangs by itself
        assert driver.look().drained == ()


def test_sigterm_comes_first_and_gpus_are_free_afterwards(place: Place) -> None:
    deaf = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); open('deaf', 'w'); time.sleep(999)"
    )
    nodes = place.nodes(grace_seconds=2.0)
    within = 'cd "$SHOCKWAVE_JOB_FOLDER" && exec "$@"'
    stubborn = place.commanded(long(1), "sh", "-c", within, "sh", python(), "-c", deaf)
    with driven(nodes, "grace", [long(0), stubborn, long(2)]) as driver:
        driver.play({0: (0,), 1: (1,)})
        wait_for((nodes.folder("grace", 1) / "deaf").exists)
        driver.until_trained(0)
        events = driver.dispatch({2: (0,)})
        assert [event.kind for event in events[:2]] == [EventKind.PREEMPTED] * 2
        assert events[0].reason == "a test says so"
        assert events[1].reason == "a test says so; killed, as SIGTERM did not end it in 2 s"
        assert (nodes.folder("grace", 0) / "checkpoint.json").exists()
        assert place.running("grace").keys() <= {2}


ENDS = {
    "exit 0": (EventKind.FINISHED, ""),
    "echo no such data >&2; exit 1": (EventKind.CRASHED, "exited with code 1: no such data"),
    "echo no room; exit 74": (EventKind.STOPPED, "could not write to its folder: no room"),
    "exit 75": (EventKind.STOPPED, "stopped without being asked to from here (exit code 75)"),
    "kill -9 $$": (EventKind.STOPPED, WAS_KILLED),
    "kill -15 $$": (EventKind.STOPPED, "stopped without being asked to from here (exit code 143)"),
}
"""Kinds and reasons of ends, by what a shell runs."""


def test_ends_have_their_kinds_and_reasons(place: Place) -> None:
    specs = []
    for number, script in enumerate(ENDS):
        timed = make_timed_job(number, JobKind.OPAQUE, Demand.gang(1), 600.0, 0.0)
        # Signals would not reach the first process of a container.
        specs.append(place.commanded(timed, "sh", "-c", f"sh -c '{script}'; exit $?"))
    with driven(place.nodes(), "ends", specs) as driver:
        driver.dispatch({spec.job_id: (spec.job_id,) for spec in specs})
        driver.until_over()
        ends = [(driver.last(spec.job_id).kind, driver.last(spec.job_id).reason) for spec in specs]
    assert ends == [*ENDS.values()]


def test_a_scheduler_that_died_finds_its_jobs_again(place: Place) -> None:
    nodes, run = place.nodes(), "crash"
    specs = (long(0), long(1, gpus=2), long(2), job(3))
    with closing(open_runtime(nodes, run, ResumePoint(jobs=specs))) as first:
        first.launch(0, [Lease(0, (0,)), Lease(2, (3,)), Lease(3, (GPUS,))])
        # Then round 1 is dispatched, and not recorded.
        first.preempt({2: "its GPUs go to job 1"})
        first.launch(1, [Lease(1, (2, 3))])
        before = wait_for(lambda: place.running(run), lambda found: {0, 1} <= found.keys())
        wait_for(lambda: place.running(run), lambda found: 3 not in found)
    leases = {0: (0,), 2: (3,), 3: (GPUS,)}
    recorded = ResumePoint(jobs=specs, leases=leases, started=frozenset(leases))
    with closing(open_runtime(nodes, run, recorded)) as second:
        assert place.running(run) == {0: before[0]}
        ends = {event.job_id: event for event in second.observe().finished}
        assert ends[3].kind is EventKind.FINISHED
        assert ends[2].kind in (EventKind.LOST, EventKind.STOPPED)
        second.reap([3])
        started = second.launch(1, [Lease(1, (1, 2)), Lease(2, (3,))])
        assert [event.kind for event in started] == [EventKind.STARTED, EventKind.RESUMED]
        now = wait_for(lambda: place.running(run), lambda found: found.keys() == {0, 1, 2})
        assert now[0] == before[0]
        second.observe()
    leases = {0: (0,), 1: (1, 2), 2: (3,)}
    recorded = ResumePoint(jobs=specs[:3], leases=leases, started=frozenset(leases))
    with closing(open_runtime(nodes, run, recorded)) as third:  # round 1 is dispatched once more
        again = third.launch(1, [Lease(1, (1, 2)), Lease(2, (3,))])
        assert {event.kind for event in again} == {EventKind.RENEWED}
        assert place.running(run) == now
        assert third.observe().finished == ()
        third.preempt(dict.fromkeys(range(3), "the test is over"))
    assert place.running(run) == {}


def test_a_node_out_of_service_gets_no_leases_until_it_is_back(place: Place) -> None:
    with driven(place.nodes(), "broken", [job(0, epochs=4)]) as driver:
        assert driver.seen[-1].drained == ()
        with place.broken():
            seen = driver.look()
            assert 0 in seen.drained
            assert all(entry.problem for entry in seen.problems)
        assert driver.look().drained == ()
        driver.dispatch({0: (0,)})
        driver.until_over()
        assert driver.kinds(0) == ["started", "finished"]


def test_a_gang_starts_on_all_its_nodes_or_is_lost(place: Place) -> None:
    spread = (2, 3, GPUS, GPUS + 1)
    with driven(place.nodes(start_seconds=2.0), "gang", [job(0, gpus=4, epochs=4)]) as driver:
        with place.broken():
            driver.dispatch({0: spread})
            while driver.leases:
                driver.runtime.advance(None)
                driver.look()
            assert driver.last(0).kind is EventKind.LOST
            driver.dispatch({})
        wait_for(lambda: place.running("gang"), lambda found: not found)
        assert driver.look().drained == ()
    both = {"n1": 2, "n2": 2}
    with driven(place.nodes(), "whole", [long(0, gpus=4)]) as driver:
        driver.dispatch({0: spread})
        wait_for(lambda: place.running("whole").get(0, ("", {}))[1], lambda held: held == both)
        driver.until_trained(0)


def test_a_job_that_is_killed_again_and_again_counts_each_epoch_once(place: Place) -> None:
    nodes = place.nodes()
    with driven(nodes, "killed", [long(0)]) as driver:
        for gpu in (0, GPUS, 1):
            before = driver.epochs(0)
            driver.play({0: (gpu,)})
            driver.until_trained(0, before)
            place.kill("killed", 0)
            while 0 in driver.leases:
                driver.play(driver.leases)
            assert driver.last(0).kind is EventKind.STOPPED
        driver.play({0: (0,)})
        driver.until_trained(0, driver.epochs(0))
        assert driver.epochs(0) == list(range(len(driver.epochs(0))))


def test_a_withdrawn_job_is_ended_with_a_checkpoint(place: Place) -> None:
    nodes = place.nodes()
    with driven(nodes, "withdrawn", [long(0), job(1, epochs=8)]) as driver:
        driver.play({0: (0,), 1: (1,)})
        driver.until_trained(0)
        driver.runtime.withdraw(0)
        assert 0 in driver.play(driver.leases).ended
        assert driver.last(0).kind is EventKind.WITHDRAWN
        driver.dispatch(driver.leases)
        assert 0 not in place.running("withdrawn")
        assert (nodes.folder("withdrawn", 0) / "checkpoint.json").exists()
        driver.until_over()
        assert driver.epochs(1) == list(range(8))
