"""Tiresias job lists give static jobs that run for their duration; errors name the place."""

from pathlib import Path

import pytest

from predictor.errors import InputError
from predictor.job import Mode
from tests.warehouse.test_generator import run_alone
from warehouse.workloads.tiresias import ClusterShape, read_cluster, read_tiresias

HEADER = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs.csv"


def refusal(path: Path, *lines: str) -> str:
    path.write_text("\n".join([HEADER, *lines]))
    with pytest.raises(InputError) as caught:
        read_tiresias(path)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_the_public_list(data: Path) -> None:
    path = data.parent / "tiresias" / "60_job.csv"
    if not path.is_file():
        pytest.skip(f"no {path}")
    rows = [dict(zip(HEADER.split(","), line.split(","), strict=True)) for line in lines_of(path)]
    workload = read_tiresias(path)
    assert len(workload.specs) == 60
    for spec, truth in zip(workload.specs, workload.truths, strict=True):
        row = rows[spec.job_id]
        assert (spec.model, spec.mode) == (row["model_name"], Mode.STATIC)
        assert (spec.demand.least, spec.arrival_seconds) == (
            int(row["num_gpu"]),
            float(row["submit_time"]),
        )
        assert truth.isolated_seconds == float(row["duration"])
        assert run_alone(spec, truth, workload.profile) == pytest.approx(truth.isolated_seconds)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:]


def test_a_duration_counts_to_the_step_that_ends_it(jobs: Path) -> None:
    jobs.write_text(f"{HEADER}\n0,2,0,10,vgg19,3.25,1\n")
    ((spec,), (truth,)) = (workload := read_tiresias(jobs)).specs, workload.truths
    assert (spec.total_steps, truth.isolated_seconds) == (4, 4.0)


def test_models_of_one_large_tensor_are_consolidated(jobs: Path) -> None:
    models = ["vgg19", "AlexNet", "resnet50"]
    lines = [f"{i},2,0,10,{model},3,1" for i, model in enumerate(models)]
    jobs.write_text("\n".join([HEADER, *lines]))
    assert [spec.consolidate for spec in read_tiresias(jobs).specs] == [True, True, False]


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        (["7", "3"], [7, 3]),
        (["7", "7"], [0, 1]),
        (["a", "3"], [0, 1]),
        (["-1", "3"], [0, 1]),
        (["9" * 30, "3"], [0, 1]),
    ],
)
def test_ids_of_the_file_are_kept_if_they_are_such(
    jobs: Path, ids: list[str], kept: list[int]
) -> None:
    lines = [f"{job_id},1,{at},10,vgg,5,1" for at, job_id in enumerate(ids)]
    jobs.write_text("\n".join([HEADER, *lines]))
    assert [spec.job_id for spec in read_tiresias(jobs).specs] == kept


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0,0,0,10,vgg,5,1", ", num_gpu: 0 is not positive; give a positive number"),
        ("0,1.5,0,10,vgg,5,1", ", num_gpu: '1.5' is not a whole number; correct the field"),
        ("0,1,-4,10,vgg,5,1", ", submit_time: -4.0 is not a time of 0 or more; give seconds since"),
        ("0,1,soon,10,vgg,5,1", ", submit_time: 'soon' is not a number; correct the field"),
        ("0,1,0,10,vgg,0,1", ", duration: 0.0 is not positive; give a positive number"),
        ("0,1,0,10,vgg,inf,1", ", duration: inf is not finite; give a positive number"),
        ("0,1,0,10,vgg,2e9,1", ", duration: 2e+09 s are too large; correct the field"),
        ("0,1,0,10,,5,1", ", model_name: '' is not a name; give printable text"),
        ("0,1,0", ": 3 fields instead of 7; the header has job_id, num_gpu, submit_time, "),
    ],
)
def test_a_wrong_line_is_named(jobs: Path, line: str, message: str) -> None:
    assert refusal(jobs, "5,1,0,10,vgg,5,1", line).startswith(f"jobs.csv:3{message}")


def test_a_list_without_jobs(jobs: Path) -> None:
    assert refusal(jobs) == "jobs.csv: holds no jobs; give a list with at least one line"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2,4,8\n2,4,8", ": holds 2 clusters; give one line"),
        ("", ": holds 0 clusters; give one line"),
        ("2,0,8", ":2, num_node_p_switch: 0 is not positive; give a positive number"),
    ],
)
def test_a_wrong_cluster(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.csv"
    path.write_text(f"num_switch,num_node_p_switch,num_gpu_p_node\n{text}\n")
    with pytest.raises(InputError) as caught:
        read_cluster(path)
    assert str(caught.value) == f"{path}{message}"


def test_switches_times_nodes(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("num_switch,num_node_p_switch,num_gpu_p_node\n2,4,8\n")
    assert read_cluster(path) == ClusterShape(8, 8)
