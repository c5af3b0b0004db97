from typing import Any

import pytest
from hypothesis import given

from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobSpec, Mode
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
    return JobSpec(**({name: getattr(LM, name) for name in LM.__slots__} | fields))


@pytest.mark.parametrize(
    ("mode", "sizes"),
    [
        (Mode.STATIC, (5,)),
        (Mode.ACCORDION, (5, 80)),
        (Mode.GNS, (5, 10, 20, 40, 80)),
    ],
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
