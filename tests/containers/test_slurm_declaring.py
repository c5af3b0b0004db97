"""Users' Slurm jobs as jobs of a run."""

from dataclasses import replace

import pytest

from containers.slurm.declaring import (
    SAVES,
    SLACK_SECONDS,
    SlurmIdentity,
    declare,
    find_demand,
)
from containers.slurm.queue import JobDetails, SlurmJob, read_queue
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobKind
from solver.inventory import Inventory, Pool
from tests.containers.test_slurm_queue import line

INVENTORY = Inventory((Pool("a100", 8, 4), Pool("v100", 16, 8)))


def job(**fields: object) -> SlurmJob:
    return replace(read_queue(line("12"))[0], **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "demand"),
    [
        ({"gpus": 2}, Demand(2, 2)),
        ({"gpus": 2, "gpu_type": "v100"}, Demand(2, 2, ("v100",))),
        ({"gpus": 8}, Demand(8, 8, ("v100",))),  # only there on one node
        ({"gpus": 8, "least_nodes": 2, "most_nodes": 2}, Demand(8, 8, ("a100",))),
        # Slurm may divide three GPUs as it likes: both nodes are taken whole.
        (
            {"gpus": 3, "least_nodes": 2, "most_nodes": 2, "gpu_type": "a100"},
            Demand(8, 8, ("a100",)),
        ),
        ({"gpus": 8, "gpu_type": "a100"}, Demand(8, 8, ("a100",))),  # on two, if Slurm may choose
        ({"gpus": 10, "most_nodes": float("inf"), "gpu_type": "v100"}, Demand(16, 16, ("v100",))),
    ],
)
def test_demands(fields: dict[str, object], demand: Demand) -> None:
    assert find_demand(job(**fields), INVENTORY) == demand


@pytest.mark.parametrize("fields", [{"gpus": 9, "gpu_type": "a100"}, {"gpu_type": "h100"}])
def test_what_no_node_can_run(fields: dict[str, object]) -> None:
    with pytest.raises(InputError, match="Slurm job 12"):
        find_demand(job(**fields), INVENTORY)


def test_a_job_is_opaque_unless_its_owner_says_more() -> None:
    spec = declare(job(), JobDetails("12", "", 0), INVENTORY)
    assert (spec.kind, spec.name, spec.tenant) == (JobKind.OPAQUE, "job-12", "research")
    assert spec.max_seconds == 7 * 86_400 + SLACK_SECONDS
    assert SlurmIdentity.read(spec) == SlurmIdentity.of(job())
    saves = declare(job(), JobDetails("a b/ö", SAVES, 0), INVENTORY)
    assert (saves.kind, saves.name) == (JobKind.CHECKPOINTING, "a-b")


def test_ids_that_come_again_are_other_jobs() -> None:
    known = SlurmIdentity.of(job())
    assert known.is_of(job())
    assert known.is_of(job(restarts=1, submitted=1700000100))
    for other in (
        {"submitted": 1700000100},
        {"user": "bob"},
        {"id": "13"},
        {"restarts": 1, "submitted": 1600000000},
    ):
        assert not known.is_of(job(**other))
