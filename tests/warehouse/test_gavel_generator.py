"""Jobs are drawn as Gavel's generator draws them."""

from statistics import fmean, median

import numpy as np
import pytest

from predictor.errors import InputError
from predictor.throughput import Profile
from tasks.sources import Workload
from warehouse.workloads.gavel_generator import GANGS, generate_from_table

TABLE = Profile(
    {
        ("A", 8, "v100", 1): 2.0,
        ("A", 8, "v100", 2): 3.0,
        ("A", 8, "v100", 4): 5.0,
        ("A", 8, "v100", 8): 9.0,
        ("B", 1, "v100", 1): 0.5,
        ("B", 1, "k80", 1): 0.1,
    }
)


def drawn(
    jobs: int, seed: int = 0, *, gangs: bool = True, types: tuple[str, ...] = ("v100",)
) -> Workload:
    return generate_from_table(
        TABLE,
        jobs,
        rng=np.random.default_rng(seed),
        gpu_types=types,
        mean_interarrival_seconds=900.0,
        scale_factors=GANGS if gangs else {1: 1.0},
    )


def test_the_same_seed_draws_the_same_jobs() -> None:
    first, again, other = (drawn(50, seed).specs for seed in (3, 3, 4))
    assert first == again != other


def test_run_times_on_a_v100_and_arrivals_have_their_distributions() -> None:
    found = drawn(4000, gangs=False)
    minutes = [truth.isolated_seconds / 60.0 for truth in found.truths]
    assert 30.0 < min(minutes) < 33.0
    assert 9_500.0 < max(minutes) < 10_000.0
    assert 225.0 < median(minutes) < 330.0  # 10^(1.5 + 1.5 · 0.5 / 0.8) = 274
    arrivals = [spec.arrival_seconds for spec in found.specs]
    assert arrivals[0] == 0.0
    assert 850.0 < arrivals[-1] / len(arrivals) < 950.0
    assert {spec.demand.least for spec in found.specs} == {1}


def test_gangs_are_of_models_that_can_be_distributed() -> None:
    specs = drawn(1000).specs
    assert {spec.model for spec in specs if spec.demand.least > 1} == {"A"}
    assert 1.8 < fmean(spec.demand.least for spec in specs) < 2.0  # 0.7 + 0.2 + 0.6 + 0.4 = 1.9


def test_jobs_can_run_on_the_types_of_the_cluster() -> None:
    slow = drawn(20, gangs=False, types=("k80",))
    assert {spec.model for spec in slow.specs} == {"B"}
    assert slow.profile.gpu_types == ("k80",)
    said = (
        "scale_factors: jobs with 2 GPUs are to be drawn, and profile has none that can run there; "
        "give weights of those that it has, as in 1=1"
    )
    with pytest.raises(InputError) as caught:
        drawn(20, types=("k80",))
    assert str(caught.value) == said
    with pytest.raises(InputError, match="profile: has no job that can run on the cluster's GPU"):
        drawn(20, types=("p100",))
