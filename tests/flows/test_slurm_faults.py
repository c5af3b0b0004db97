"""Users' Slurm jobs, and leases of real training jobs, end as they should while Slurm fails."""

import random
from pathlib import Path

import pytest

from harness.faults import slurm
from harness.faults.jobs import workload
from harness.faults.slurm import Program, SlurmMachinery, find_shared
from harness.faults.trial import trial
from harness.slurm import Slurm
from harness.slurm_faults import FAULTS, run
from harness.waiting import wait_for
from predictor.errors import InputError

FEW = (
    "scheduler killed",
    "controller stopped",
    "answers garbled",
    "held by its owner",
    "requeued by its owner",
)
"""Those after which Slurm itself needs no minutes; `python -m harness.slurm_faults` has all."""


@pytest.mark.process
def test_faults_cost_no_job(lab: Slurm, storage: Path) -> None:
    assert FAULTS.keys() >= {*FEW}
    wrong, jobs = run(lab, storage, FEW, random.Random(1))
    assert wrong == []
    assert jobs > len(FEW)


OF_LEASES = (
    "scheduler at any moment",
    "program killed",
    "slurmstepd killed",
    "answers garbled",
    "telemetry torn",
)
"""Those after which Slurm itself needs no minutes; `python -m harness.faults` has all."""


@pytest.mark.process
def test_leases_train_bit_for_bit_under_faults(lab: Slurm, storage: Path, tmp_path: Path) -> None:
    jobs = workload(0.5, (1, 2, 4), ("a100", "v100"))
    machinery = SlurmMachinery(lab, storage)
    found = trial(machinery, storage, tmp_path, jobs, len(OF_LEASES), 1, OF_LEASES)
    assert found.broken == []
    assert found.injected.keys() == {*OF_LEASES}


@pytest.mark.process
def test_what_meets_no_job_counts_for_no_fault(
    lab: Slurm, storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in ("AWAY_SECONDS", "ROUND_SECONDS"):
        monkeypatch.setattr(slurm, seconds, 0.1)
    machinery = SlurmMachinery(lab, storage)
    faults = machinery.faults(random.Random(1))
    assert [kind for kind, happens in faults.items() if happens()] == []
    with pytest.raises(InputError, match="there is no fault 'nope'"):
        trial(machinery, storage, tmp_path, workload(), 1, 1, ["program killed", "nope"])


@pytest.mark.process
def test_only_what_a_killed_controller_knew_is_cancelled(
    lab: Slurm, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "LEFT_SECONDS", 15.0)
    lease = "shockwave-r-job-1-round-"

    def submit(name: str, *options: str, user: str = "alice") -> str:
        asked = ("--parsable", "--chdir=/", "--output=/dev/null", f"--job-name={name}", *options)
        return lab.run("sbatch", *asked, "--wrap=sleep 8", user=user).strip()

    machinery, known = SlurmMachinery(lab, storage), submit(f"{lease}1")  # it waits for ever
    submit("running", f"--export=ALL,SHOCKWAVE_LEASE={lease}2.0", user="carol")
    lab.saved()
    wait_for(machinery.running)
    assert machinery.faults(random.Random(1))["controller killed"]()
    later = submit(f"{lease}3")
    (left,) = machinery.left("r")
    assert left.startswith(f"Slurm job {lease}3 {later} ")
    assert machinery.cancelled == {f"{known} {lease}1"}


def test_the_watch_of_leases_reports_shared_gpus_and_doubled_jobs() -> None:
    def program(number: int, job: int, round_: int, *gpus: str) -> Program:
        return Program(number, f"shockwave-r-job-{job}-round-{round_}.1", "n1", gpus)

    first, again = program(1, 1, 0, "0"), program(2, 1, 0, "0")
    assert [*find_shared([first, again, program(3, 2, 0, "1")], set())] == []
    shared = [*find_shared([first, program(4, 2, 3, "0")], set())]
    assert shared == [
        "GPU 0 of n1 is in processes of "
        + " and ".join((first.lease, "shockwave-r-job-2-round-3.1"))
    ]
    later = program(5, 1, 7, "2")
    assert len([*find_shared([first, later], set())]) == 1
    assert [*find_shared([first, later], {first.lease})] == []
