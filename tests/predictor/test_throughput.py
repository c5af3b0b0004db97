import dataclasses

import pytest

from predictor.errors import InputError
from predictor.job import JobSpec, Mode
from predictor.profile import Profile

SPEC = JobSpec(
    job_id=0,
    model="ResNet-18",
    batch_size=16,
    max_batch_size=64,
    scale_factor=2,
    mode=Mode.GNS,
    epochs=10,
    samples_per_epoch=48_000,
    arrival_seconds=0.0,
)
PROFILE = Profile(
    {("ResNet-18", 16, 2): 10.0, ("ResNet-18", 32, 2): 0.0, ("ResNet-18", 64, 2): 5.0},
    source="table.json",
)


def test_an_epoch_takes_its_steps_over_the_throughput() -> None:
    assert PROFILE.epoch_seconds(SPEC, 16) == 300.0
    assert PROFILE.epoch_seconds(SPEC, 64) == 150.0


def test_a_zero_entry_cannot_run() -> None:
    assert not PROFILE.can_run("ResNet-18", 32, 2)
    assert PROFILE.reachable_batch_sizes(SPEC) == (16, 64)


def test_a_job_that_nothing_is_known_of_reaches_what_it_declares() -> None:
    unknown = dataclasses.replace(SPEC, scale_factor=8)
    assert PROFILE.reachable_batch_sizes(unknown) == (16,)


def test_an_unknown_model_is_named_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"table\.json: unknown model 'BERT'; known are ResNet-18"):
        PROFILE.throughput("BERT", 16, 2)


def test_an_empty_profile_says_that_it_knows_none() -> None:
    with pytest.raises(InputError, match="known are none"):
        Profile({}).throughput("BERT", 16, 2)


@pytest.mark.parametrize(("batch_size", "gpus"), [(32, 2), (16, 4)])
def test_a_combination_that_cannot_run_is_named(batch_size: int, gpus: int) -> None:
    with pytest.raises(InputError, match=f"with batch size {batch_size} on {gpus} GPUs"):
        PROFILE.throughput("ResNet-18", batch_size, gpus)
