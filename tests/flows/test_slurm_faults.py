"""Users' Slurm jobs of all kinds end as they should while a service and its Slurm fail."""

import random
from pathlib import Path

import pytest

from harness.slurm import Slurm
from harness.slurm_faults import FAULTS, run

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
