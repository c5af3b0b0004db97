"""What the runtime of users' Slurm jobs orders, and what it makes of Slurm's answers."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.runtime import EventKind, Lease
from containers.slurm.declaring import SAVES, declare
from containers.slurm.hand_over import FIRST, find_first_nice, find_nice
from containers.slurm.queue import JobDetails, read_queue
from predictor.job import JobSpec
from tasks.reports import Reports
from tests.containers.slurm_scripts import INVENTORY, Scripts
from tests.containers.test_slurm_queue import line

pytestmark = pytest.mark.process

DENIED = "slurm_load_jobs error: Invalid job id specified"
RUNS = {"QOS": "run", "State": "RUNNING", "Reason": "None", "NodeList": "n1", "ReqNodes": "n1"}


def declared(job_id: str, number: int, comment: str = SAVES) -> JobSpec:
    (row,) = read_queue(line(job_id))
    return replace(declare(row, JobDetails("x", comment, 0), INVENTORY), job_id=number)


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    made = Scripts(tmp_path)
    made.say(squeue=line("12"))
    return made


def test_only_what_has_not_ended_is_requeued(scripts: Scripts) -> None:
    brain = scripts.brain(declared("12", 1), declared("13", 2))
    brain.launch(0, [Lease(1, (0, 1)), Lease(2, (4, 5))])
    ending = line("13", **RUNS | {"State": "COMPLETING"})
    scripts.say(squeue=line("12", **RUNS) + ending)
    brain.look()
    scripts.orders()
    # Slurm is away from here on, and job 12 may have ended.
    scripts.fail(squeue="Unable to contact slurm controller (connect failure)")
    brain.preempt({1: "", 2: ""})
    requeues = [order for order in scripts.orders() if "requeue" in order]
    assert requeues == ["scontrol requeue Incomplete 12"]


@pytest.mark.parametrize("hers", [0, 70, -70])
def test_a_job_that_is_started_is_the_first_of_the_queue(scripts: Scripts, hers: int) -> None:
    """Slurm looks at a hundred jobs at once; when it is held again, its owner's `Nice` holds."""
    scripts.say(squeue=line("12", Nice=f"{hers}"))
    brain = scripts.brain(declared("12", 1))
    brain.launch(0, [Lease(1, (0, 1))])
    change = "scontrol update JobId=12 QOS=run ReqNodeList=n1,n1 StartTime=now"
    assert f"{change} Nice={hers - FIRST}" in scripts.orders()
    scripts.say(squeue=line("12", QOS="run", Nice=f"{hers - FIRST}"))
    brain.observe()
    assert f"scontrol update JobId=12 QOS=wait ReqNodeList= Nice={hers}" in scripts.orders()


@given(st.integers(-FIRST // 2 + 1, 2**31 - 4))
def test_an_owners_nice_comes_back(hers: int) -> None:
    (job,) = read_queue(line("12", Nice=f"{hers}"))
    started = replace(job, nice=find_first_nice(job))
    assert find_nice(started) == min(hers, 499_999_999)
    assert find_first_nice(started) == started.nice  # it waited again


def test_a_job_that_ends_while_it_is_preempted_has_finished(scripts: Scripts) -> None:
    brain = scripts.brain(declared("12", 1))
    brain.launch(0, [Lease(1, (0, 1))])
    scripts.say(squeue=line("12", **RUNS))
    brain.look()
    scripts.say(squeue=line("12", **RUNS | {"State": "COMPLETED"}))
    scripts.fail(scontrol="Job has already finished")
    brain.preempt({1: "for a test"})
    seen = brain.observe()
    assert [(end.kind, end.gpus) for end in seen.finished] == [(EventKind.FINISHED, ())]
    assert [*Reports(active={1: declared("12", 1)}).check(seen)] == []


def test_a_cancellation_is_repeated_until_the_job_is_gone(scripts: Scripts) -> None:
    brain = scripts.brain(declared("12", 1))
    brain.withdraw(1, "by its owner")
    scripts.fail(scancel="Unable to contact slurm controller")
    assert [event.kind for event in brain.observe().finished] == [EventKind.WITHDRAWN]
    brain.reap([1])
    assert brain.list_known() == {"12"}  # it is not taken in again
    scripts.say(scancel="")
    scripts.orders()
    brain.observe()
    assert "scancel 12" in scripts.orders()
    scripts.say(squeue=line("12", State="CANCELLED"))
    brain.observe()
    assert "scancel 12" not in scripts.orders()


def test_a_job_is_gone_only_where_slurm_does_not_know_it(scripts: Scripts) -> None:
    brain = scripts.brain(declared("12", 1))
    scripts.say(squeue="", sacct="")
    scripts.fail(scontrol="slurm_load_jobs error: Access/permission denied")
    assert brain.observe().finished == ()
    scripts.fail(scontrol=DENIED, sacct="sacct: error: Connection refused")
    assert brain.observe().finished == ()  # the accounting may know its end
    scripts.say(sacct="")
    (event,) = brain.observe().finished
    assert event.kind is EventKind.WITHDRAWN


@pytest.mark.parametrize(
    ("state", "code", "kind"),
    [
        ("COMPLETED", "0:0", EventKind.FINISHED),
        ("FAILED", "3:0", EventKind.FAILED),
        ("CANCELLED by 1000", "0:15", EventKind.WITHDRAWN),
    ],
)
def test_the_end_of_a_forgotten_job_is_that_of_the_accounting(
    scripts: Scripts, state: str, code: str, kind: EventKind
) -> None:
    brain = scripts.brain(declared("12", 1))

    def row(user: str, submitted: int, state: str) -> str:
        return "\x1f".join(("12", "12", user, str(submitted), state, code, "x")) + "\n"

    past = (
        ("alice", 1700000000, "REQUEUED"),
        ("alice", 1700000100, state),
        ("bob", 1700000000, "FAILED"),
        ("alice", 1600000000, "TIMEOUT"),
        ("alice", 1700000200, "NODE_FAIL"),  # another job of hers, with the same id
    )
    scripts.say(squeue="", sacct="".join(row(*each) for each in past))
    scripts.fail(scontrol=DENIED)
    assert [event.kind for event in brain.observe().finished] == [kind]


def test_a_job_that_was_moved_elsewhere_is_withdrawn(scripts: Scripts) -> None:
    brain = scripts.brain(declared("12", 1))
    shown = "JobId=12 JobName=x UserId=alice(1) Partition={} AllocNode:Sid=h:1 StdErr=/a \n"
    scripts.say(squeue="", scontrol=shown.format("gpu,cpu"))
    assert brain.observe().finished == ()
    scripts.say(scontrol=shown.format("cpu"))
    (event,) = brain.observe().finished
    assert (event.kind, event.reason) == (EventKind.WITHDRAWN, "was moved to partition cpu")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"Reason": "JobHeldUser"}, "is held in Slurm, or waits for other jobs there"),
        (
            {"Dependency": "afterok:9(unfulfilled)"},
            "is held in Slurm, or waits for other jobs there",
        ),
        ({"TimeLimit": "10:00"}, "was changed in Slurm"),
        ({"tres_alloc": "cpu=1,gres/gpu=3"}, "was changed in Slurm"),
    ],
)
def test_a_job_that_is_no_more_what_was_declared_does_not_start(
    scripts: Scripts, change: dict[str, str], reason: str
) -> None:
    brain = scripts.brain(declared("12", 1))
    scripts.say(squeue=line("12", **change))
    brain.launch(0, [Lease(1, (0, 1))])
    assert scripts.orders() == []
    (event,) = brain.observe().finished
    assert (event.kind, event.reason) == (EventKind.WITHDRAWN, reason)


def test_a_job_that_runs_again_has_left_its_former_nodes(scripts: Scripts) -> None:
    brain = scripts.brain(declared("12", 1))
    brain.launch(0, [Lease(1, (0, 1))])
    again = {"RestartCnt": "1", "SubmitTime": "1700000100"}
    scripts.say(squeue=line("12", **again))
    assert [event.kind for event in brain.observe().finished] == [EventKind.LOST]
    assert brain._jobs[1].left_on == ("n1",)
    scripts.say(squeue=line("12", **again | RUNS | {"NodeList": "n2"}))
    brain.launch(1, [Lease(1, (4, 5))])
    brain.observe()
    assert brain._jobs[1].left_on == ()
