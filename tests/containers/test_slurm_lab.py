"""The private Slurm of the tests."""

import pytest

from harness.slurm import Slurm
from harness.slurm_files import GPUS, TYPES
from harness.waiting import wait_for


def _submit(lab: Slurm, *options: str, user: str) -> str:
    silent = ("--parsable", "--chdir=/", "--output=/dev/null")
    return lab.run("sbatch", *silent, *options, "--wrap", "sleep 600", user=user).strip()


def _state(lab: Slurm, job: str) -> str:
    return lab.run("squeue", "-h", "-j", job, "-o", "%T %r").strip()


def test_it_has_gpus_of_two_types(lab: Slurm) -> None:
    shown = [f"{node} gpu:{kind}:{GPUS} idle" for node, kind in TYPES.items()]
    # A busy machine lets Slurm mark nodes with * at times, for want of an answer.
    assert wait_for(lambda: lab.run("sinfo", "-h", "-N", "-o", "%N %G %T").splitlines() == shown)


def test_jobs_wait_for_an_operator(lab: Slurm) -> None:
    job = _submit(lab, "--gpus=a100:2", user="alice")
    wait_for(lambda: _state(lab, job), lambda state: state == "PENDING QOSGrpJobsLimit")
    with pytest.raises(RuntimeError, match="Invalid qos"):
        lab.run("scontrol", "update", f"JobId={job}", "QOS=run", user="alice")
    lab.run("scontrol", "update", f"JobId={job}", "QOS=run", "ReqNodeList=n2", user="operator")
    wait_for(lambda: _state(lab, job), lambda state: state == "RUNNING None")
    assert lab.run("squeue", "-h", "-j", job, "-o", "%u %N").split() == ["alice", "n2"]


def test_jobs_outlive_their_daemons(lab: Slurm) -> None:
    job = _submit(lab, "--gpus=1", user="carol")
    wait_for(lambda: _state(lab, job), lambda state: state == "RUNNING None")
    lab.saved()
    for daemon in ("slurmctld", "n1", "slurmdbd"):
        with lab.stopped(daemon):
            assert not lab.process(daemon)
    assert _state(lab, job) == "RUNNING None"
