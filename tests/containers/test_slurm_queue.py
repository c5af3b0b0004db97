"""The jobs of a partition, read from text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.slurm.parsing import SEPARATOR, SlurmAway
from containers.slurm.queue import COLUMNS, JobDetails, read_details, read_limit, read_queue


def line(job_id: str, **fields: str) -> str:
    """A row of `squeue`; fields have underscores in place of dashes."""
    row = {
        "JobID": job_id.partition("_")[0],
        "JobArrayID": job_id,
        "SubmitTime": "1700000000",
        "RestartCnt": "0",
        "UserName": "alice",
        "Account": "research",
        "QOS": "wait",
        "State": "PENDING",
        "Reason": "QOSGrpJobsLimit",
        "tres-alloc": "cpu=1,mem=100M,node=1,billing=1,gres/gpu=2",
        "NodeList": "",
        "NumNodes": "1",
        "MaxNodes": "1",
        "ReqNodes": "",
        "TimeLimit": "7-00:00:00",
        "Dependency": "(null)",
        "EligibleTime": "1700000000",
        "exit_code": "0",
        "Nice": "0",
    } | {
        name.replace("_", "-") if name == "tres_alloc" else name: at for name, at in fields.items()
    }
    return "".join(row[name].ljust(width) + SEPARATOR for name, width in COLUMNS.items()) + "\n"


RUNNING = {
    "QOS": "run",
    "State": "RUNNING",
    "Reason": "None",
    "tres_alloc": "cpu=2,node=2,gres/gpu=7,gres/gpu:v100=7",
    "NodeList": "n[3-4]",
    "NumNodes": "2",
    "MaxNodes": "0",
    "ReqNodes": "n[3-4]",
    "TimeLimit": "10:00",
}
SQUEUE = line("12") + line("4_1", **RUNNING) + line("9", State="FAILED", exit_code="19200")


def test_a_waiting_and_a_running_and_an_ended_job() -> None:
    waiting, running, ended = read_queue(SQUEUE)
    assert (waiting.id, waiting.array, waiting.submitted) == ("12", "", 1700000000)
    assert (waiting.gpus, waiting.gpu_type, waiting.gpus_by_node) == (2, "", {})
    assert (waiting.limit_seconds, waiting.least_nodes, waiting.most_nodes) == (604800.0, 1, 1)
    assert (waiting.waits, waiting.holds_gpus) == (True, False)
    assert waiting.may_start(1700000000.0)

    assert (running.id, running.array) == ("4_1", "4")
    assert (running.gpu_type, running.gpus_by_node) == ("v100", {"n3": 4, "n4": 3})
    assert (running.limit_seconds, running.most_nodes) == (600.0, math.inf)
    assert (running.waits, running.holds_gpus) == (False, True)

    assert (ended.waits, ended.holds_gpus) == (False, False)
    assert (ended.exit_code, ended.gpus_by_node) == (75, {})


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({"Reason": "JobHeldUser"}, False),
        ({"Reason": "JobHeldAdmin"}, False),
        ({"Dependency": "afterok:1(unfulfilled)"}, False),
        ({"EligibleTime": "1700000001"}, False),
        ({"EligibleTime": "1700000001", "RestartCnt": "1"}, True),  # Slurm's own delay
        ({"EligibleTime": "N/A"}, True),  # a task of an array that was never looked at
    ],
)
def test_what_keeps_a_job_from_starting(fields: dict[str, str], may: bool) -> None:
    (job,) = read_queue(line("1", **fields))
    assert job.may_start(1700000000.0) is may


def test_long_reasons_are_cut_and_other_columns_may_not_be() -> None:
    (job,) = read_queue(line("1", Reason="ReqNodeNotAvail, UnavailableNodes:n3"[:40]))
    assert job.reason.startswith("ReqNodeNotAvail")
    with pytest.raises(SlurmAway, match="squeue cut off QOS"):
        read_queue(line("1", QOS="q" * 64))


@given(st.integers(1, len(SQUEUE) - 1))
def test_a_queue_that_was_cut_off_is_refused(end: int) -> None:
    text = SQUEUE[:end]
    if text.endswith("\n"):
        assert len(read_queue(text)) < 3
    else:
        with pytest.raises(SlurmAway, match="squeue"):
            read_queue(text)


def test_limits() -> None:
    assert read_limit("UNLIMITED") == math.inf
    texts = "1-02:03:04", "02:03:04", "03:04"
    assert [read_limit(text) for text in texts] == [93784.0, 7384.0, 184.0]
    for text in ("", "10", "x", "-1:00", "INVALID"):
        with pytest.raises(SlurmAway, match="time limit"):
            read_limit(text)


def test_details_are_free_text_of_one_job() -> None:
    text = (
        "JobId=5 ArrayJobId=4 ArrayTaskId=1 ArrayTaskThrottle=2 JobName=a b=c\nJobId=6 UserId=al(1)"
        " WorkDir=/ Comment=shockwave:checkpointing  StdErr=/dev/null Power= \n"
    )
    assert read_details(text) == JobDetails("a b=c JobId=6", "shockwave:checkpointing", 2)
    assert read_details("JobId=5 JobName=x UserId=al(1) WorkDir=/ StdErr=/a ") == JobDetails(
        "x", "", 0
    )
    with pytest.raises(SlurmAway, match="no job"):
        read_details("")


def test_what_a_user_asks_for_does_not_hide_the_queue() -> None:
    long = ",".join(f"node{number}" for number in range(500))
    first, second = read_queue(line("1", ReqNodes=long[: COLUMNS["ReqNodes"]]) + line("2"))
    assert (first.names_nodes, second.names_nodes) == (True, False)
    (odd,) = read_queue(line("1", ReqNodes="n[[3"))
    assert odd.names_nodes
