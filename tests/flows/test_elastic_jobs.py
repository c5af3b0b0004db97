"""Files with jobs whose number of GPUs policies choose, beside gangs."""

import json
from pathlib import Path

import pytest

from flows.runs.start import make_start
from flows.runs.workload_source import Source
from predictor.errors import InputError
from solver.inventory import Pool
from solver.policies import POLICIES
from tasks.record import RuntimeKind, Settings, make_pool
from tasks.sources import Workload
from tests.runs import check_sound, check_stored, make
from warehouse.workloads.trace_writer import write_workload

JOBS = """
[[jobs]]
model = "net"
batch_size = 32
epochs = 60
samples_per_epoch = 3200
scale_factor = 2

[[jobs]]
model = "net"
batch_size = 32
epochs = 60
samples_per_epoch = 3200
min_gpus = 1
max_gpus = 4

[[jobs]]
model = "net"
batch_size = 32
mode = "gns"
epochs = 60
samples_per_epoch = 3200
regimes = [[32, 30], [64, 30]]
scale_factor = 2
min_gpus = 1
max_gpus = 4
arrival_seconds = 300
"""
GANG, FIXED, GROWING = range(3)

SPEEDUP = {1: 1.0, 2: 1.8, 4: 3.2}


def read(folder: Path, *types: str) -> Workload:
    """The jobs, of a model that was measured on one, two and four GPUs."""
    (trace := folder / "jobs.toml").write_text(JOBS)
    table = {
        kind: {
            f"('net (batch size {size})', {gpus})": {"null": 10.0 * speed * 32 / size / (1 + rank)}
            for size in (32, 64)
            for gpus, speed in SPEEDUP.items()
        }
        for rank, kind in enumerate(types)
    }
    (profile := folder / "profile.json").write_text(json.dumps(table))
    return Source(trace=trace, format="jobs", throughputs=profile).open(gpu_types=types)


@pytest.mark.parametrize("runtime", [RuntimeKind.VIRTUAL, RuntimeKind.FAITHFUL])
@pytest.mark.parametrize("policy", ["shockwave", "sia", "pollux", "optimus"])
def test_gangs_and_elastic_jobs_share_a_cluster(
    policy: str, runtime: RuntimeKind, tmp_path: Path
) -> None:
    settings = Settings(
        policy, make_pool(4, 4), round_seconds=60.0, restart_seconds=5.0, runtime=runtime
    )
    made = make(make_start(read(tmp_path, "v100"), settings))
    check_sound(made)
    check_stored(tmp_path / "runs", made)
    held = {
        job: {len(gpus) for state in made.states for j, gpus in state.leases.items() if j == job}
        for job in (GANG, FIXED, GROWING)
    }
    assert held[GANG] == {2}
    sizes = held[FIXED] | held[GROWING]
    assert {2, 4} <= sizes <= SPEEDUP.keys()  # three GPUs were not measured


def test_other_policies_give_elastic_jobs_their_tuned_number(tmp_path: Path) -> None:
    workload = read(tmp_path, "v100")
    for policy in sorted(name for name, kind in POLICIES.items() if not kind.elastic):
        made = make(make_start(workload, Settings(policy, make_pool(4, 4), round_seconds=60.0)))
        sizes = {(job, len(gpus)) for state in made.states for job, gpus in state.leases.items()}
        assert sizes == {(GANG, 2), (FIXED, 1), (GROWING, 2)}, policy


@pytest.mark.parametrize("policy", ["shockwave", "sia"])
def test_elastic_jobs_choose_among_gpu_types(policy: str, tmp_path: Path) -> None:
    pools = Pool("v100", 4, 4), Pool("k80", 4, 2)
    settings = Settings(policy, pools, round_seconds=60.0, restart_seconds=5.0)
    made = make(make_start(read(tmp_path, "v100", "k80"), settings))
    check_sound(made)
    inventory = settings.inventory
    held = {
        (len(gpus), inventory.gpu_type(gpus[0]))
        for state in made.states
        for job, gpus in state.leases.items()
        if job != GANG
    }
    assert len({gpus for gpus, _ in held}) > 1
    assert (4, "v100") in held


def test_a_back_end_is_not_ignored(tmp_path: Path) -> None:
    settings = Settings("shockwave", make_pool(4, 4), round_seconds=60.0, backend="highs")
    with pytest.raises(InputError, match="backend: has no effect on elastic jobs"):
        make_start(read(tmp_path, "v100"), settings)


def test_a_public_trace_has_no_place_for_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="job 1: the format has no place for its numbers of GPUs"):
        write_workload(read(tmp_path, "v100"), tmp_path / "out")
