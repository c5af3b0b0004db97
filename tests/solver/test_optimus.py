"""Optimus gives GPUs where they save most; the published placement takes the freest nodes."""

from pathlib import Path

from flows.runs.start import make_start
from solver.fidelity import Fidelity
from solver.freest_nodes import place_on_freest
from solver.inventory import Inventory, Pool
from tasks.record import Settings
from tests.applications import write_applications, write_jobs
from tests.runs import make
from tests.solver.test_policies import job
from tests.solver.test_tiresias import start, turns
from warehouse.workloads.applications import read_application_jobs


def leased(tmp_path: Path, gpus: int, *jobs: str, policy: str = "optimus") -> list[list[int]]:
    """How many GPUs each job has, round by round."""
    path = write_jobs(tmp_path, *jobs)
    workload = read_application_jobs(path, write_applications(tmp_path / "apps"), ("t4",))
    settings = Settings(
        policy,
        (Pool("t4", gpus, 2),),
        fidelity=Fidelity.REFERENCE,
        round_seconds=60.0,
        restart_seconds=30.0,
    )
    return [
        [len(lease.gpus) for lease in sorted(record.leases, key=lambda lease: lease.job_id)]
        for record in make(make_start(workload, settings)).records
    ]


def test_each_gets_one_gpu_then_the_job_with_the_largest_gain_gets_the_next(
    tmp_path: Path,
) -> None:
    # Seconds of a step on 1, 2, 3, 4 GPUs: 4, 2.2, 1.9, 1.5 and 2, 1.2, 1.3, 1; steps after the
    # first epoch: 40 and 70. The second job stays at 2, where a third GPU would slow it down.
    rounds = leased(tmp_path, 6, "a,0,toy,1,40", "b,0,toy,2,20")
    assert rounds[0] == [4, 2]
    assert leased(tmp_path, 4, "a,0,toy,1,40", "b,0,toy,2,20")[0] == [2, 2]
    # In order of arrival, each gets its first while there are any.
    assert leased(tmp_path, 2, "a,0,toy,1,40", "b,0,toy,2,20", "c,0,toy,2,20")[0] == [1, 1]


def test_a_policy_that_chooses_no_sizes_gives_the_tuned_gang(tmp_path: Path) -> None:
    rounds = leased(tmp_path, 6, "a,0,toy,1,40", "b,0,toy,2,20", policy="srtf")
    assert rounds[0] == [1, 2]


def test_a_gang_of_one_size_gets_it_in_order_of_arrival() -> None:
    jobs = job(0, 9, gang=2), job(1, 9, gang=2), job(2, 9, gang=1)
    assert turns("optimus", start(*jobs, gpus=3), 1) == [[0, 2]]


def test_tiresias_demotes_by_the_time_for_which_a_job_held_gpus() -> None:
    jobs = job(0, 50, arrival=0.0), job(1, 50, arrival=10.0)
    # Each leaves the first queue after two rounds of 100 s; the first to leave it goes first then.
    assert turns("tiresias", start(*jobs), 6, threshold=200.0) == [[0], [0], [1], [1], [0], [0]]
    gangs = job(0, 50, gang=2, arrival=0.0), job(1, 50, arrival=10.0)
    assert turns("tiresias", start(*gangs, gpus=2), 2, threshold=200.0) == [[0], [1]]


def test_jobs_are_placed_on_the_nodes_with_most_free_gpus() -> None:
    nodes = Inventory((Pool("t4", 8, 4),), kept=(4,))
    held = {7: (0, 1)}
    assert place_on_freest(nodes, held, [(1, 1), (2, 4)]) == {
        7: (0, 1),
        1: (5,),  # three are free there, two on the first node
        2: (2, 3, 6, 7),
    }
