"""Files with jobs whose number of GPUs policies choose, beside gangs."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from flows.runs.start import make_start
from flows.runs.workload_source import Source
from predictor.errors import InputError
from solver.inventory import Pool
from solver.policies import POLICIES
from tasks.record import RuntimeKind, Settings, make_pool
from tasks.sources import Workload
from tests.applications import write_applications
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


def read(
    folder: Path, *types: str, text: str = JOBS, least: Mapping[str, int] | None = None
) -> Workload:
    """The jobs, of a model that was measured on one, two and four GPUs, or on at least some."""
    (trace := folder / "jobs.toml").write_text(text)
    profile = write_table(folder, *types, least=least)
    return Source(trace=trace, format="jobs", throughputs=profile).open(gpu_types=types)


def test_the_example_of_elastic_jobs_runs() -> None:
    examples = Path(__file__).parents[2] / "examples"
    trace, table = examples / "jobs/elastic.toml", examples / "throughputs.csv"
    source = Source(trace=trace, format="jobs", throughputs=table)
    jobs = source.open(gpu_types=("v100",))
    made = make(make_start(jobs, Settings("shockwave", (Pool("v100", 4, 2),))))
    assert [(spec.demand.least, spec.demand.most) for spec in jobs.specs] == [(1, 2)] * 2 + [(2, 2)]
    assert {event.job_id for record in made.records for event in record.finished} == {0, 1, 2}


def write_table(folder: Path, *types: str, least: Mapping[str, int] | None = None) -> Path:
    """Write the model's throughputs."""
    table = {
        kind: {
            f"('net (batch size {size})', {gpus})": {"null": 10.0 * speed * 32 / size / (1 + rank)}
            for size in (32, 64)
            for gpus, speed in SPEEDUP.items()
            if gpus >= (least or {}).get(kind, 1)
        }
        for rank, kind in enumerate(types)
    }
    (profile := folder / "profile.json").write_text(json.dumps(table))
    return profile


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


def test_a_type_on_which_one_gpu_was_not_measured_is_used(tmp_path: Path) -> None:
    workload = read(tmp_path, "v100", "k80", text="".join([JOBS] * 2), least={"k80": 2})
    pools = Pool("v100", 4, 4), Pool("k80", 4, 2)
    made = make(make_start(workload, Settings("shockwave", pools, round_seconds=60.0)))
    check_sound(made)
    held = [gpus for state in made.states for gpus in state.leases.values()]
    assert any(gpus[0] >= 4 for gpus in held)


def test_only_jobs_of_applications_follow_goodput(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mode: goodput is not possible outside measured appl"):
        read(tmp_path, "v100", text=JOBS.replace('"gns"', '"goodput"'))


def test_a_back_end_is_not_ignored(tmp_path: Path) -> None:
    settings = Settings("shockwave", make_pool(4, 4), round_seconds=60.0, backend="highs")
    with pytest.raises(InputError, match="backend: has no effect on elastic jobs"):
        make_start(read(tmp_path, "v100"), settings)


def test_a_public_trace_has_no_place_for_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="job 1: the format has no place for its numbers of GPUs"):
        write_workload(read(tmp_path, "v100"), tmp_path / "out")


APPLIED = """
[[jobs]]
model = "toy"
batch_size = 20
epochs = 2
scale_factor = 2

[[jobs]]
model = "toy"
batch_size = 20
epochs = 2
max_gpus = 4

[[jobs]]
model = "toy"
batch_size = 10
mode = "goodput"
epochs = 2
max_gpus = 4

[[jobs]]
model = "toy"
batch_size = 10
max_batch_size = 20
mode = "goodput"
epochs = 2
scale_factor = 2
"""
"""A gang and a job of many sizes at a fixed batch size, and the same at one that is chosen."""


def read_applied(folder: Path, text: str = APPLIED) -> Workload:
    (trace := folder / "jobs.toml").write_text(text)
    apps = write_applications(folder / "apps")
    return Source(trace=trace, format="jobs", applications=apps).open(gpu_types=("t4",))


@pytest.mark.parametrize("policy", ["shockwave", "sia", "pollux", "optimus", "tiresias"])
def test_jobs_of_applications_are_rigid_strong_scaling_and_adaptive(
    policy: str, tmp_path: Path
) -> None:
    settings = Settings(policy, (Pool("t4", 8, 2),), round_seconds=20.0, restart_seconds=5.0)
    made = make(make_start(read_applied(tmp_path), settings))
    check_sound(made)
    check_stored(tmp_path / "runs", made)
    gpus = {(j, len(held)) for state in made.states for j, held in state.leases.items()}
    sizes = {(r.job_id, r.batch_size) for record in made.records for r in record.reports}
    for job in (0, 1):
        assert {size for number, size in sizes if number == job} == {20}
    assert {size for number, size in sizes if number == 3} <= set(range(10, 21))
    for job in (0, 3):
        assert {held for number, held in gpus if number == job} == {2}
    if POLICIES[policy].elastic:
        assert max(held for number, held in gpus if number == 1) > 1
    if POLICIES[policy].adapts:
        assert max(size for number, size in sizes if number == 2) > 10
    else:
        assert {size for number, size in sizes if number in (2, 3)} == {10}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (("epochs = 2", "epochs = 3"), "epochs: toy was measured for 2; give 2"),
        (('"goodput"', '"gns"'), "mode: gns is not a mode of the measured application toy"),
        (("batch_size = 10", "batch_size = 5"), "batch_size: 5 is not 10 to 40"),
        (("max_batch_size = 20", "max_batch_size = 80"), "max_batch_size: 80 is not 10 to 40"),
        (("max_gpus = 4", "max_gpus = 5"), "max_gpus: 5 GPUs are more than toy can use"),
        (("scale_factor = 2", "scale_factor = 5"), "scale_factor: 5 GPUs are more than toy"),
        (("epochs = 2", "epochs = 2\nsamples_per_epoch = 9"), "samples_per_epoch: toy was meas"),
        (('"toy"', '"tox"'), "model: there are no throughputs of 'tox'"),
    ],
)
def test_what_an_application_cannot_do_is_refused(
    changed: tuple[str, str], told: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        read_applied(tmp_path, APPLIED.replace(*changed, 1))
    assert f"]: {told}" in str(refused.value)


@pytest.mark.parametrize("policy", ["shockwave", "sia", "srtf"])
def test_jobs_of_applications_choose_among_gpu_types(policy: str, tmp_path: Path) -> None:
    (trace := tmp_path / "jobs.toml").write_text(APPLIED)
    apps = write_applications(tmp_path / "apps")
    (apps / "gpu_types.csv").write_text("application,gpu_type,speed\ntoy,t4,1\ntoy,a100,4\n")
    pools = Pool("t4", 4, 2), Pool("a100", 4, 4)  # nodes larger than measured
    source = Source(trace=trace, format="jobs", applications=apps)
    settings = Settings(policy, pools, round_seconds=20.0, restart_seconds=5.0)
    made = make(make_start(source.open(gpu_types=("t4", "a100")), settings))
    check_sound(made)
    check_stored(tmp_path / "runs", made)
    used = {gpu for state in made.states for held in state.leases.values() for gpu in held}
    assert used & set(range(4, 8))  # the fast type


TIMED = """
[[jobs]]
kind = "opaque"
image = "a"
max_seconds = 100
seconds = 50
"""


@pytest.mark.parametrize("policy", ["shockwave", "sia", "pollux", "optimus", "tiresias"])
def test_jobs_of_applications_and_of_a_table_share_a_cluster(policy: str, tmp_path: Path) -> None:
    (trace := tmp_path / "jobs.toml").write_text(JOBS + APPLIED + TIMED)
    apps, table = write_applications(tmp_path / "apps"), write_table(tmp_path, "t4")
    source = Source(trace=trace, format="jobs", applications=apps, throughputs=table)
    settings = Settings(policy, (Pool("t4", 16, 2),), round_seconds=20.0, restart_seconds=5.0)
    made = make(make_start(source.open(gpu_types=("t4",)), settings))
    check_sound(made)
    check_stored(tmp_path / "runs", made)
    grown: dict[int, dict[int, int]] = {}
    for report in (report for record in made.records for report in record.reports):
        sizes = grown.setdefault(report.job_id, {})
        sizes[report.batch_size] = sizes.get(report.batch_size, 0) + report.epochs
    assert (grown[GANG], grown[FIXED], grown[GROWING]) == ({32: 60}, {32: 60}, {32: 30, 64: 30})
    chosen = {size for size in grown[GROWING + 3] if size != 10}
    assert bool(chosen) == POLICIES[policy].adapts


def test_a_model_is_measured_once(tmp_path: Path) -> None:
    (trace := tmp_path / "jobs.toml").write_text(APPLIED)
    (table := tmp_path / "table.json").write_text(
        json.dumps({"t4": {"('toy (batch size 20)', 1)": {"null": 1.0}}})
    )
    source = Source(
        trace=trace,
        format="jobs",
        applications=write_applications(tmp_path / "apps"),
        throughputs=table,
    )
    with pytest.raises(InputError, match="toy is a measured application"):
        source.open(gpu_types=("t4",))
