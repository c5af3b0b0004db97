"""Jobs are drawn as Gavel's generator draws them."""

from statistics import fmean, median

from benchmarks.gavel_jobs import drawn
from predictor.throughput import Profile

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


def test_the_same_seed_draws_the_same_jobs() -> None:
    first, again, other = (drawn(TABLE, 50, seed, gangs=True).specs for seed in (3, 3, 4))
    assert first == again != other


def test_run_times_on_a_v100_and_arrivals_have_their_distributions() -> None:
    found = drawn(TABLE, 4000, 0, gangs=False, per_hour=4.0)
    minutes = [truth.isolated_seconds / 60.0 for truth in found.truths]
    assert 30.0 < min(minutes) < 33.0
    assert 9_500.0 < max(minutes) < 10_000.0
    assert 225.0 < median(minutes) < 330.0  # 10^(1.5 + 1.5 · 0.5 / 0.8) = 274
    arrivals = [spec.arrival_seconds for spec in found.specs]
    assert arrivals[0] == 0.0
    assert 850.0 < arrivals[-1] / len(arrivals) < 950.0
    assert {spec.demand.least for spec in found.specs} == {1}


def test_gangs_are_of_models_that_can_be_distributed() -> None:
    specs = drawn(TABLE, 1000, 0, gangs=True).specs
    assert {spec.model for spec in specs if spec.demand.least > 1} == {"A"}
    assert 1.8 < fmean(spec.demand.least for spec in specs) < 2.0  # 0.7 + 0.2 + 0.6 + 0.4 = 1.9
