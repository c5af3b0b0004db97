"""Written workloads read back the same, whatever their source; writes are atomic."""

import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import InputError
from predictor.job import TABLE_MODES
from tasks.sources import Workload
from tests.flows.conftest import tree
from warehouse.workloads.generator import generate_workload
from warehouse.workloads.imported import draw_workload, make_workload
from warehouse.workloads.kinds import Arrivals
from warehouse.workloads.logs.declared import DeclaredTable
from warehouse.workloads.logs.log import ReadOptions, read_log
from warehouse.workloads.mix import Mix
from warehouse.workloads.tiresias import read_tiresias
from warehouse.workloads.trace import read_workload
from warehouse.workloads.trace_writer import Files, write_workload

SEEDS = st.integers(0, 2**32 - 1)
WEIGHTS = st.floats(0.01, 10.0)


def generate(jobs: int = 5, seed: int = 0) -> Workload:
    return generate_workload(jobs, rng=np.random.default_rng(seed))


def assert_reads_back(workload: Workload, folder: Path) -> None:
    back = read_workload(*write_workload(workload, folder, overwrite=True))
    assert back.source == "jobs.trace"
    assert replace(back, source=workload.source) == workload


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("written")


@st.composite
def mixes(draw: st.DrawFn) -> Mix:
    shortest = draw(st.floats(1.0, 10_000.0))
    return Mix(
        shortest_seconds=shortest,
        longest_seconds=shortest * draw(st.floats(1.0, 50.0)),
        scale_factors=draw(st.dictionaries(st.integers(1, 100), WEIGHTS, min_size=1, max_size=4)),
        modes=draw(st.dictionaries(st.sampled_from(TABLE_MODES), WEIGHTS, min_size=1)),
    )


@given(
    seed=SEEDS, jobs=st.integers(1, 8), mix=mixes(), arrivals=st.sampled_from(Arrivals), gap=WEIGHTS
)
def test_a_generated_workload(
    folder: Path, seed: int, jobs: int, mix: Mix, arrivals: Arrivals, gap: float
) -> None:
    workload = generate_workload(
        jobs,
        rng=np.random.default_rng(seed),
        arrivals=arrivals,
        mean_interarrival_seconds=gap,
        mix=mix,
    )
    assert_reads_back(workload, folder)


NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)


@given(seed=SEEDS, tenants=st.lists(NAMES, min_size=1, max_size=5))
def test_a_table_with_tenants_out_of_order(folder: Path, seed: int, tenants: list[str]) -> None:
    rng = np.random.default_rng(seed)
    table = folder / "table.csv"
    quoted = ['"' + tenant.replace('"', '""') + '"' for tenant in tenants]
    lines = [f"{rng.integers(100)},{rng.integers(1, 9_999)},3,{tenant}" for tenant in quoted]
    table.write_text("\n".join(["at,took,n,who", *lines]), encoding="utf-8")
    columns = {"arrival": "at", "duration": "took", "gpus": "n", "tenant": "who"}
    log = read_log(DeclaredTable(columns), table, ReadOptions())
    assert_reads_back(draw_workload(log.source, log.jobs, rng), folder)
    assert_reads_back(make_workload(log.source, log.jobs), folder)


@given(st.lists(st.tuples(st.integers(0, 99), NAMES, st.floats(0.1, 1e4)), min_size=1, max_size=5))
def test_a_tiresias_list_with_ids_of_its_own(
    folder: Path, jobs: list[tuple[int, str, float]]
) -> None:
    header = "job_id,num_gpu,submit_time,model_name,duration"
    lines = [
        f'{9 * job_id},{job_id + 1},{99 - job_id},"{model.replace(chr(34), "")}x",{seconds}'
        for job_id, model, seconds in jobs
    ]
    (folder / "list.csv").write_text("\n".join([header, *lines]), encoding="utf-8")
    assert_reads_back(read_tiresias(folder / "list.csv"), folder)


@pytest.mark.parametrize("regimes", [True, False])
@pytest.mark.parametrize(
    ("trace", "profile"),
    [
        ("jobs120_gpus32.trace", "tacc_throughputs.json"),
        ("jobs220_gpus64.trace", "wisr_throughputs.json"),
    ],
)
def test_a_public_trace(
    data: Path, tmp_path: Path, trace: str, profile: str, regimes: bool
) -> None:
    table = data / "gns_regimes.csv" if regimes else None
    assert_reads_back(read_workload(data / trace, data / profile, table), tmp_path)


def test_the_columns_of_the_public_format_say_all_they_can(tmp_path: Path) -> None:
    workload = generate(1)
    (spec,), (truth,) = workload.specs, workload.truths
    line = write_workload(workload, tmp_path).trace.read_text()
    fields = line.removesuffix("\n").split("\t")
    assert fields[0] == f"{spec.model} (batch size {spec.batch_size})"
    assert fields[5:] == [
        str(spec.total_steps),
        str(spec.demand.least),
        "gns",
        "1.0",
        "-1",
        str(round(truth.isolated_seconds)),
        "0.0",
    ]


def test_what_a_measured_table_says_beside_rates_is_kept(tmp_path: Path) -> None:
    workload = generate()
    rates = workload.profile.rates
    (one, size, kind, gpus), (other, other_size, _, _) = [key for key in rates if key[3] == 1][:2]
    profile = replace(
        workload.profile,
        pairs={
            (one, size, other, other_size, kind, gpus): 0.5,
            (other, other_size, one, size, kind, gpus): 0.25,
            (one, size, one, size, kind, gpus): 0.125,
        },
        losses={one: (3.0, 2.5)},
        restarts={(kind, gpus): 12.5},
    )
    files = write_workload(replace(workload, profile=profile), tmp_path)
    assert read_workload(*files).profile == profile


def test_a_folder_is_made(tmp_path: Path) -> None:
    files = write_workload(generate(), tmp_path / "a" / "b")
    assert files == Files.within(tmp_path / "a" / "b")
    assert sorted(tree(tmp_path / "a" / "b")) == ["jobs.trace", "regimes.csv", "throughputs.json"]


def test_no_folder_stays_where_nothing_could_be_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(InputError, match="there/a/b: cannot be written"):
            write_workload(generate(), tmp_path / "there" / "a" / "b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [*tmp_path.rglob("*")] == [tmp_path / "there"]


@pytest.mark.parametrize("name", ["jobs.trace", "throughputs.json", "regimes.csv"])
def test_what_is_there_stays_unless_it_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError) as caught:
        write_workload(generate(), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / name}: is there already; give another folder or set overwrite"
    )
    assert tree(tmp_path) == {name: b"mine"}
    write_workload(generate(), tmp_path, overwrite=True)
    assert len(tree(tmp_path)) == 3


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ("out", "{out}: cannot be written (File exists); give another folder"),
        (
            "out/regimes.csv/",
            "{out}/regimes.csv: is a folder where a file is written; give another output folder",
        ),
    ],
)
def test_what_is_in_the_way_stays(tmp_path: Path, there: str, message: str) -> None:
    out = tmp_path / "out"
    if there.endswith("/"):
        (tmp_path / there).mkdir(parents=True)
    else:
        out.write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(InputError) as caught:
        write_workload(generate(), out, overwrite=True)
    assert str(caught.value) == message.format(out=out)
    assert tree(tmp_path) == before


def test_nothing_is_left_of_a_write_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text = Path.write_text

    def full(path: Path, text: str, **more: str) -> int:
        if "regimes" in path.name:
            raise OSError(28, "No space left on device")
        return write_text(path, text, **more)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(InputError) as caught:
        write_workload(generate(), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: cannot be written (No space left on device); give another folder"
    )
    assert tree(tmp_path) == {}
