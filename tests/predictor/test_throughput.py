import dataclasses

import pytest

from predictor.allocation import Allocation, Demand
from predictor.errors import InputError
from predictor.job import JobKind, JobSpec, Mode, make_timed_job
from predictor.throughput import UNTYPED, Profile, epoch_seconds, reachable_batch_sizes, runs_on

SPEC = JobSpec(
    job_id=0,
    model="ResNet-18",
    batch_size=16,
    max_batch_size=64,
    demand=Demand.gang(2),
    mode=Mode.GNS,
    epochs=10,
    samples_per_epoch=48_000,
    arrival_seconds=0.0,
)
PROFILE = Profile.of_type(
    {("ResNet-18", 16, 2): 10.0, ("ResNet-18", 32, 2): 0.0, ("ResNet-18", 64, 2): 5.0},
    source="table.json",
)
PAIR = Allocation(UNTYPED, 2)
TYPED = Profile(
    {
        ("ResNet-18", 16, "v100", 2): 40.0,
        ("ResNet-18", 16, "k80", 2): 10.0,
        ("ResNet-18", 32, "k80", 2): 8.0,
        ("ResNet-18", 16, "k80", 4): 15.0,
    }
)


def test_an_epoch_takes_as_long_as_its_allocation_makes_it() -> None:
    assert epoch_seconds(PROFILE, SPEC, 64) == 150.0
    assert epoch_seconds(TYPED, SPEC, 16) == 75.0  # on its reference, v100
    assert epoch_seconds(TYPED, SPEC, 16, Allocation("k80", 2, nodes=2)) == 300.0
    assert epoch_seconds(TYPED, SPEC, 16, Allocation("k80", 2)) == 300.0
    assert epoch_seconds(TYPED, SPEC, 16, Allocation("k80", 4)) == 200.0


def test_a_zero_entry_cannot_run() -> None:
    assert not PROFILE.can_run(SPEC, 32, PAIR)
    assert reachable_batch_sizes(PROFILE, SPEC) == (16, 64)


def test_a_job_is_measured_by_its_least_gpus_of_the_type_on_which_it_is_fastest() -> None:
    assert TYPED.gpu_types == ("k80", "v100")
    for demand, reference in (
        (Demand.gang(2), Allocation("v100", 2)),
        (Demand(4, 8), Allocation("k80", 4)),  # the other is not known
        (Demand(1, 4), Allocation("k80", 1)),  # neither is: the first by name
        (Demand(2, 2, ("k80",)), Allocation("k80", 2)),
        (Demand(2, 2, ("a100",)), Allocation(UNTYPED, 2)),
    ):
        job = dataclasses.replace(SPEC, demand=demand)
        assert TYPED.reference(job) == reference
        assert TYPED.reference(job) == reference  # as before
    assert Profile({}).reference(SPEC) == PAIR


def test_batch_sizes_are_reached_on_the_reference() -> None:
    slow = dataclasses.replace(SPEC, demand=Demand(2, 2, ("k80",)))
    assert reachable_batch_sizes(TYPED, SPEC) == (16,)
    assert reachable_batch_sizes(TYPED, slow) == (16, 32)
    unknown = dataclasses.replace(SPEC, demand=Demand.gang(8))
    assert reachable_batch_sizes(PROFILE, unknown) == (16,)


def test_a_job_runs_on_what_has_all_its_batch_sizes() -> None:
    slow = dataclasses.replace(SPEC, demand=Demand(2, 4, ("k80",)))
    assert runs_on(TYPED, slow, Allocation("k80", 2))
    assert not runs_on(TYPED, slow, Allocation("k80", 4))
    assert not runs_on(TYPED, slow, Allocation("v100", 2))


def test_an_unknown_model_is_named_with_the_known_ones() -> None:
    bert = dataclasses.replace(SPEC, model="BERT")
    with pytest.raises(
        InputError, match=r"table\.json: unknown model 'BERT'; choose from ResNet-18"
    ):
        PROFILE.rate(bert, 16, PAIR)
    with pytest.raises(InputError, match="add its measurements"):
        Profile({}).rate(SPEC, 16, PAIR)


@pytest.mark.parametrize(("batch_size", "gpus"), [(32, 2), (16, 4)])
def test_a_combination_that_cannot_run_is_named(batch_size: int, gpus: int) -> None:
    with pytest.raises(InputError, match=f"with batch size {batch_size} on {gpus} GPUs; add"):
        PROFILE.rate(SPEC, batch_size, Allocation(UNTYPED, gpus))


def test_a_gpu_type_on_which_a_job_cannot_run_is_named() -> None:
    with pytest.raises(InputError, match="with batch size 32 on 2 GPUs of type v100"):
        TYPED.rate(SPEC, 32, Allocation("v100", 2))


def test_a_timed_job_makes_a_step_a_second_on_what_it_asked_for() -> None:
    spec = make_timed_job(1, JobKind.OPAQUE, Demand(2, 2, ("a", "b")), 60.0, 0.0)
    for profile in (Profile({}), TYPED):
        for kind in ("a", "b"):
            assert profile.can_run(spec, 1, Allocation(kind, 2, 2))
            assert profile.rate(spec, 1, Allocation(kind, 2, 2)) == 1.0
        for other in (Allocation("c", 2), Allocation("a", 1), Allocation("a", 4)):
            assert not profile.can_run(spec, 1, other)
            with pytest.raises(InputError, match="unknown model 'opaque'"):
                profile.rate(spec, 1, other)
