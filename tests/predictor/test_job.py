from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.image import LONGEST, MOST
from predictor.job import JobKind, JobSpec, Mode, find_named, make_timed_job
from predictor.options import JobOptions, Task
from predictor.rows import from_row, to_row
from tests.strategies import job_specs

LM = JobSpec(
    job_id=7,
    model="LM",
    batch_size=5,
    max_batch_size=80,
    demand=Demand.gang(2),
    mode=Mode.GNS,
    epochs=30,
    samples_per_epoch=59_675,
    arrival_seconds=0.0,
)


def changed(**fields: Any) -> JobSpec:
    return replace(LM, **fields)


@pytest.mark.parametrize(
    ("mode", "sizes"),
    [(Mode.STATIC, (5,)), (Mode.ACCORDION, (5, 80)), (Mode.GNS, (5, 10, 20, 40, 80))],
)
def test_each_mode_visits_its_own_batch_sizes(mode: Mode, sizes: tuple[int, ...]) -> None:
    assert changed(mode=mode).batch_sizes == sizes


def test_a_last_doubling_stops_at_the_largest_batch_size() -> None:
    assert changed(max_batch_size=50).batch_sizes == (5, 10, 20, 40, 50)


@pytest.mark.parametrize("mode", Mode)
def test_a_job_that_starts_at_the_largest_batch_size_stays_there(mode: Mode) -> None:
    assert changed(mode=mode, max_batch_size=5).batch_sizes == (5,)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("batch_size", 0),
        ("epochs", 0),
        ("samples_per_epoch", 0),
        ("budget", 0.0),
        ("budget", float("nan")),
        ("budget", 1e-13),
        ("budget", 1e250),
        ("arrival_seconds", -1.0),
        ("arrival_seconds", float("inf")),
        ("arrival_seconds", float("nan")),
        ("max_batch_size", 4),
    ],
)
def test_a_field_out_of_range_is_named(field: str, value: float) -> None:
    with pytest.raises(InputError) as caught:
        changed(**{field: value})
    assert caught.value.place == f"job 7, {field.removesuffix('_seconds')}"


@given(job_specs())
def test_batch_sizes_ascend_from_the_declared_one_to_at_most_the_largest(spec: JobSpec) -> None:
    sizes = spec.batch_sizes
    assert sizes[0] == spec.batch_size
    assert sizes[-1] <= spec.max_batch_size
    assert list(sizes) == sorted(set(sizes))


def opaque(**fields: Any) -> JobSpec:
    given = {"max_seconds": 90.5, "image": "python:3-slim", **fields}
    return make_timed_job(3, JobKind.OPAQUE, Demand.gang(2), arrival_seconds=0.0, **given)


def test_the_work_of_a_timed_job_is_a_step_for_each_second_of_its_limit() -> None:
    spec = opaque()
    assert (spec.timed, spec.preemptible) == (True, False)
    assert (spec.epochs, spec.total_steps, spec.batch_sizes) == (1, 91, (1,))
    assert spec.model == "python:3-slim"
    checkpointing = replace(spec, kind=JobKind.CHECKPOINTING)
    assert (checkpointing.timed, checkpointing.preemptible) == (True, True)
    assert (LM.timed, LM.preemptible) == (False, True)


def test_what_a_job_runs_is_read_from_its_row() -> None:
    spec = opaque(name="sweep", command=("python", "-c", "print(1)\n"), environment=("A=b=c",))
    row = to_row(spec)
    assert (row["kind"], row["command"]) == ("opaque", ["python", "-c", "print(1)\n"])
    assert from_row(JobSpec, row) == spec
    assert from_row(JobSpec, to_row(LM)) == LM


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_seconds": 0.0}, "max_seconds: is missing, and the job is opaque"),
        ({"opportunistic": True}, "job 3, opportunistic: a job that is opaque keeps its GPUs"),
        ({"name": "a\nb"}, r"name: 'a\\nb' is not a name"),
        ({"image": "-v"}, "image: '-v' is not an image"),
        ({"image": "Python"}, "image: 'Python' is not an image"),
        ({"image": "a" * 300}, "is not an image"),
        ({"command": ("a\0b",)}, "command: 'a.x00b' is too long, or no text"),
        ({"command": ("\ud800",)}, "is too long, or no text"),
        ({"command": ("a" * (LONGEST + 1),)}, "is too long, or no text"),
        ({"command": ("a",) * (MOST + 1)}, "command: has more than 1,000 entries"),
        ({"environment": ("A",)}, "environment: 'A' is not NAME=VALUE"),
        ({"environment": ("1A=b",)}, "environment: '1A=b' is not NAME=VALUE"),
        ({"environment": ("A=b", "A=c")}, "environment: A is there twice"),
        ({"environment": ("NVIDIA_VISIBLE_DEVICES=all",)}, "is set by the scheduler"),
        ({"environment": ("CUDA_VISIBLE_DEVICES=0",)}, "is set by the scheduler"),
        ({"environment": ("SHOCKWAVE_LEASE=x",)}, "is set by the scheduler"),
    ],
)
def test_what_cannot_be_launched_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        opaque(**fields)


@pytest.mark.parametrize(
    "image", ["python", "host:5000/team/train:V1.2", f"a@sha256:{'0' * 64}", f"sha256:{'f' * 64}"]
)
def test_images_are_named_as_docker_names_them(image: str) -> None:
    assert opaque(image=image).image == image


def test_a_timed_job_has_no_epochs_of_its_own() -> None:
    with pytest.raises(InputError, match="job 7, kind: a job that is checkpointing has no epochs"):
        changed(kind=JobKind.CHECKPOINTING, max_seconds=60.0)


def test_an_index_means_a_task_of_an_array_and_no_other_job() -> None:
    alone = changed(name="train")
    tasks = [
        changed(job_id=8 + at, name="sweep", options=JobOptions(task=Task(at, at, 2)))
        for at in range(2)
    ]
    jobs = [alone, *tasks]
    assert [*find_named("train", jobs)] == [alone]
    assert [*find_named("train[0]", jobs)] == []
    assert [*find_named("sweep[0]", jobs)] == tasks[:1]
