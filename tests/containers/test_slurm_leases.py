"""Leases on a Slurm in trouble: its daemons are killed, and others order its jobs about."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from containers.leasing.ends import WAS_KILLED
from containers.runtime import EventKind, Lease, ResumePoint
from containers.slurm.cluster import SlurmCluster
from containers.slurm.slurm_runtime import lock_slurm
from harness.dockerd import COUNTER
from harness.slurm import Slurm
from harness.slurm_files import GPUS
from harness.waiting import wait_for
from predictor.errors import WarehouseBusy
from tests.containers.contract.places import SlurmPlace
from tests.containers.driver import Driver, driven, job, long, open_runtime


def _jobs(lab: Slurm, states: str = "all") -> list[list[str]]:
    """Id, name, state and reason of jobs of leases."""
    shown = lab.run("squeue", "-h", f"--states={states}", "-o", "%A %j %T %r").splitlines()
    return [words for line in shown if (words := line.split())[1].startswith("shockwave-")]


def _cluster(lab: Slurm, storage: Path, **fields: float) -> SlurmCluster:
    nodes = SlurmPlace(lab, storage).nodes(**fields)
    assert isinstance(nodes, SlurmCluster)
    return nodes


def _begin(driver: Driver, lab: Slurm, *job_ids: int) -> dict[int, str]:
    """Start jobs on a GPU each until they train; return the ids of their Slurm jobs."""
    driver.play({job_id: (job_id,) for job_id in job_ids})
    for job_id in job_ids:
        driver.until_trained(job_id)
    names = {int(name.split("-job-")[1].split("-")[0]): i for i, name, *_ in _jobs(lab, "RUNNING")}
    return {job_id: names[job_id] for job_id in job_ids}


def _save(lab: Slurm) -> None:
    """Change a job, without which the controller saves nothing, and wait until it has saved it."""
    lab.run("scontrol", "update", f"JobId={_jobs(lab, 'RUNNING')[0][0]}", "AdminComment=saved")
    lab.saved()


def test_without_a_controller_no_lease_changes(lab: Slurm, storage: Path) -> None:
    with driven(_cluster(lab, storage), "away", [long(0), job(1)]) as driver:
        _begin(driver, lab, 0)
        driver.dispatch({**driver.leases, 1: (1,)})
        wait_for(lambda: len(_jobs(lab, "RUNNING")), lambda number: number == 2)
        folder = storage / "away"
        wait_for((folder / "job-1" / "progress.json").exists)
        _save(lab)
        with ThreadPoolExecutor() as pool:
            with lab.stopped("slurmctld"):
                waiting = pool.submit(driver.play, driver.leases)
                # A job ends meanwhile, and the other one runs on.
                wait_for(lambda: '"epoch": 3' in (folder / "job-1" / "progress.json").read_text())
                telemetry = folder / "job-0" / "telemetry.jsonl"
                before = telemetry.stat().st_size
                wait_for(lambda: telemetry.stat().st_size > before)
                assert not waiting.done()
            assert waiting.result().drained == ()
        while 1 in driver.leases:
            driver.play(driver.leases)
        driver.dispatch({})
        driver.look()
        assert driver.kinds(0) == ["started", "preempted"]
        assert driver.kinds(1) == ["started", "finished"]
        assert driver.epochs(0) == list(range(len(driver.epochs(0))))


def test_a_killed_controller_that_forgot_a_job_does_not_run_it_twice(
    lab: Slurm, storage: Path
) -> None:
    with driven(_cluster(lab, storage), "forgotten", [job(0, epochs=40)]) as driver:
        driver.dispatch({0: (0,)})
        wait_for((storage / "forgotten" / "job-0" / "progress.json").exists)
        with lab.stopped("slurmctld"):
            pass
        # It may know nothing of the job, or that it waits, whose program it has killed.
        while driver.leases:
            driver.play(driver.leases)
        if driver.kinds(0)[-1] != "finished":
            assert driver.last(0).kind in (EventKind.LOST, EventKind.STOPPED)
            driver.dispatch({0: (4,)})
            driver.until_over()
        assert driver.kinds(0)[-1] == "finished"
        assert driver.epochs(0) == list(range(40))


def test_orders_of_others_end_leases_in_words(lab: Slurm, storage: Path) -> None:
    with driven(_cluster(lab, storage), "orders", [long(i) for i in range(3)]) as driver:
        ids = _begin(driver, lab, 0, 1, 2)
        lab.run("scancel", ids[0])
        lab.run("scontrol", "update", f"JobId={ids[1]}", "Requeue=1")
        lab.run("scontrol", "requeue", ids[1])
        lab.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=a fan is broken")
        while {0, 1} & driver.leases.keys():
            driver.play(driver.leases)
        assert (driver.last(0).kind, driver.last(1).kind) == (EventKind.STOPPED, EventKind.LOST)
        assert driver.last(0).reason.startswith("stopped without being asked to from here")
        assert driver.last(1).reason == "Slurm requeued it"
        assert driver.leases.keys() == {2}
        (problem,) = driver.seen[-1].problems
        assert (problem.node, problem.problem) == (0, "Slurm says drain: a fan is broken")
        driver.dispatch(driver.leases)
        assert [words[0] for words in _jobs(lab, "RUNNING,PENDING")] == [ids[2]]


def test_what_others_hold_is_out_of_service(lab: Slurm, storage: Path) -> None:
    silent = ("--parsable", "--chdir=/", "--output=/dev/null", "--wrap=sleep 600")
    nodes = _cluster(lab, storage, start_seconds=5.0)
    with driven(nodes, "foreign", [long(0), long(1, gpus=2)]) as driver:
        driver.play({0: (0,)})
        assert driver.seen[-1].drained == ()
        other = lab.run("sbatch", *silent, "--gpus=3", "--nodelist=n2", user="carol").strip()
        seen = wait_for(driver.look, lambda seen: bool(seen.problems))
        (problem,) = seen.problems
        assert problem.problem == f"others hold 3 of the {GPUS} GPUs of node n2"
        driver.dispatch({**driver.leases, 1: (4, 5)})  # all the same
        while 1 in driver.leases:
            driver.play(driver.leases)
        assert driver.last(1).kind is EventKind.LOST
        assert driver.last(1).reason.startswith("Slurm did not start it in 5 s: Resources")
        lab.run("scancel", other, user="carol")
        wait_for(driver.look, lambda seen: not seen.drained)
        driver.play({0: (0,), 1: (4, 5)})
        driver.until_trained(1)


def test_a_node_that_fails_loses_its_leases(lab: Slurm, storage: Path) -> None:
    with driven(_cluster(lab, storage), "failed", [long(0)]) as driver:
        _begin(driver, lab, 0)
        _save(lab)
        with lab.stopped("n1"):
            lab.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=it burns")
            while driver.leases:
                driver.play(driver.leases)
            assert driver.last(0).kind is EventKind.LOST
            assert driver.last(0).reason == "its node failed"
            (problem,) = driver.look().problems
            assert problem.problem.startswith("Slurm says down")
            assert problem.problem.endswith(": it burns")
            before = driver.epochs(0)
            driver.dispatch({0: (4,)})
            driver.until_trained(0, before)
        assert driver.epochs(0) == list(range(len(driver.epochs(0))))


def _kill_part(lab: Slurm, *, keeper: bool) -> None:
    """Kill the second part of a gang over nodes, or else the `slurmstepd` that keeps it."""

    def of_part() -> list[int]:
        return [
            number
            for number in lab.processes(str(COUNTER))
            if b"NODE_RANK=1\0" in lab.read(number, "environ")
        ]

    (program,) = wait_for(of_part)
    if keeper:
        shell = int(lab.read(program, "stat").rpartition(b")")[2].split()[1])
        program = int(lab.read(shell, "stat").rpartition(b")")[2].split()[1])
        assert b"slurmstepd" in lab.read(program, "cmdline")
    lab.call("kill", "-KILL", str(program))


@pytest.mark.parametrize("keeper", [False, True])
def test_the_end_of_a_part_of_a_gang_is_seen_at_once(
    lab: Slurm, storage: Path, keeper: bool
) -> None:
    """Slurm says nothing of it as long as another part runs, and never if it lost the keeper."""
    spec = job(0, gpus=2, epochs=20) if keeper else long(0, gpus=2)
    with driven(_cluster(lab, storage), f"part-{keeper}", [spec]) as driver:
        driver.play({0: (0, 4)})
        driver.until_trained(0)
        _kill_part(lab, keeper=keeper)
        driver.until_over()
        end = driver.last(0)
        if keeper:  # the program itself went on to its end
            assert (end.kind, end.reason) == (EventKind.FINISHED, "")
        else:
            assert (end.kind, end.reason) == (EventKind.STOPPED, WAS_KILLED)
            assert _jobs(lab, "RUNNING")
            before = driver.epochs(0)
            driver.play({0: (0, 1)})
            driver.until_trained(0, before)
        assert driver.epochs(0) == list(range(len(driver.epochs(0))))


def test_a_lease_runs_once_even_if_submitted_again(lab: Slurm, storage: Path) -> None:
    with driven(_cluster(lab, storage), "once", [long(0)]) as driver:
        (number,) = _begin(driver, lab, 0).values()
        folder = storage / "once" / "job-0"
        script = lab.run("scontrol", "write", "batch_script", number, "-")
        path = storage / "again.sh"
        path.write_text(script)
        attempt = (folder / "begun").read_text()
        log = storage / "again.log"
        again = ("sbatch", "--wait", "--gres=gpu:1", f"--output={log}", str(path))
        lab.run(*again, check=False)
        assert "--- " not in log.read_text()
        assert (folder / "begun").read_text() == attempt
        (folder / "lease").write_text("a later one")
        (folder / "begun").unlink()
        lab.run(*again, check=False)
        assert not (folder / "begun").exists()
        (folder / "lease").write_text(attempt.strip())


def test_accounting_knows_ends_that_the_controller_has_forgotten(lab: Slurm, storage: Path) -> None:
    nodes, spec = _cluster(lab, storage), job(0)
    with closing(open_runtime(nodes, "ended", ResumePoint(jobs=(spec,)))) as first:
        first.launch(0, [Lease(0, (0,))])
        name = "shockwave-ended-job-0-round-0"
        wait_for(
            lambda: lab.run("sacct", "-X", "-n", "-o", "State", f"--name={name}"),
            lambda state: "COMPLETED" in state,
        )
    forgetful = storage / "bin"
    forgetful.mkdir()
    for command in lab.commands().iterdir():
        (forgetful / command.name).symlink_to(command)
    (forgetful / "squeue").unlink()
    (forgetful / "squeue").write_text("#!/bin/sh\n")  # it has no jobs
    (forgetful / "squeue").chmod(0o755)
    later = replace(nodes, site=replace(nodes.site, commands=forgetful))
    point = ResumePoint(jobs=(spec,), leases={0: (0,)}, started=frozenset({0}))
    with closing(open_runtime(later, "ended", point)) as second:
        (event,) = second.observe().finished
        assert event.kind is EventKind.FINISHED


def test_one_scheduler_at_a_time(lab: Slurm, storage: Path) -> None:
    nodes = _cluster(lab, storage)
    other = replace(nodes, site=replace(nodes.site, storage=storage / "other"))
    with lock_slurm(nodes, "first"):
        with (
            pytest.raises(WarehouseBusy, match="another scheduler uses it"),
            lock_slurm(nodes, "second"),
        ):
            pass
        with driven(nodes, "first", [long(0)]) as driver:
            driver.play({0: (0,)})
            with (
                pytest.raises(WarehouseBusy, match="slurm: runs jobs of run first"),
                lock_slurm(other, "second"),
            ):
                pass
    with lock_slurm(other, "second"):
        pass
