"""Generated workloads follow their stated distributions and run on the virtual cluster."""

import math
import pickle
from collections import Counter
from functools import cache
from itertools import pairwise
from statistics import fmean, median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.runtime import Lease, ResumePoint, Terms
from containers.virtual.truth import GroundTruth
from containers.virtual.virtual_cluster import VirtualFactory
from predictor.errors import InputError
from predictor.job import JobSpec, Mode
from predictor.throughput import UNTYPED, Profile, epoch_seconds
from tasks.sources import Workload
from tests.strategies import examples
from warehouse.workloads.families import FAMILIES, SCALE_FACTORS, generated_profile
from warehouse.workloads.generator import generate_workload
from warehouse.workloads.kinds import Arrivals
from warehouse.workloads.mix import LONGEST_SECONDS, SCALE_FACTOR_WEIGHTS, SHORTEST_SECONDS, Mix

SEEDS = st.integers(0, 2**32 - 1)
JOBS = 3_000


def generate(jobs: int, seed: int, arrivals: Arrivals = Arrivals.POISSON) -> Workload:
    return generate_workload(jobs, rng=np.random.default_rng(seed), arrivals=arrivals)


@cache
def many() -> Workload:
    return generate(JOBS, seed=7)


def pairs(workload: Workload) -> list[tuple[JobSpec, GroundTruth]]:
    return list(zip(workload.specs, workload.truths, strict=True))


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert pickle.dumps(generate(50, seed=3)) == pickle.dumps(generate(50, seed=3))
    assert generate(50, seed=3) != generate(50, seed=4)


@pytest.mark.parametrize("jobs", [1, 2, 9, 10, 100])
def test_every_mode_has_its_share_to_within_one(jobs: int) -> None:
    shares = {Mode.STATIC: 0.7, Mode.GNS: 0.1, Mode.ACCORDION: 0.2}
    workload = generate_workload(jobs, rng=np.random.default_rng(0), mix=Mix(modes=shares))
    counts = Counter(spec.mode for spec in workload.specs)
    if jobs == 100:
        modes = [spec.mode for spec in workload.specs]
        assert len(set(pairwise(modes))) > 4  # in no fixed order
    static = [t for s, t in pairs(workload) if s.mode is Mode.STATIC]
    assert all(len(truth.targets) == 1 for truth in static)
    assert all(abs(counts[mode] - jobs * share) < 1 for mode, share in shares.items())


def test_a_mix_is_followed_and_printed() -> None:
    mix = Mix(60.0, 120.0, {3: 1.0, 16: 1.0})
    workload = generate_workload(200, rng=np.random.default_rng(0), mix=mix)
    assert workload.source == (
        "generated: 200 jobs, poisson, 90 s apart, 60 to 120 s long, scale factors 3=1 16=1"
    )
    assert {spec.demand.least for spec in workload.specs} == {3, 16}
    assert {gpus for _, _, _, gpus in workload.profile.rates} == {3, 16}
    for spec, truth in pairs(workload):
        epoch = epoch_seconds(workload.profile, spec, spec.batch_size)
        assert 60 - epoch < truth.isolated_seconds < 120 + epoch


@pytest.mark.slow
def test_scale_factors_and_families_follow_their_weights() -> None:
    scale_factors = Counter(spec.demand.least for spec in many().specs)
    for scale_factor, weight in SCALE_FACTOR_WEIGHTS.items():
        spread = math.sqrt(weight * (1 - weight) / JOBS)
        assert abs(scale_factors[scale_factor] / JOBS - weight) < 3 * spread
    families = Counter(spec.model for spec in many().specs)
    assert families.keys() == {family.name for family in FAMILIES}
    assert min(families.values()) > 0.17 * JOBS


def test_durations_are_log_uniform_from_a_fifth_of_an_hour_to_five_hours() -> None:
    seconds = [truth.isolated_seconds for truth in many().truths]
    assert min(seconds) > 0.9 * SHORTEST_SECONDS
    assert max(seconds) < 1.01 * LONGEST_SECONDS
    logs = np.log(np.array(seconds) / SHORTEST_SECONDS) / np.log(LONGEST_SECONDS / SHORTEST_SECONDS)
    assert np.quantile(logs, [0.25, 0.5, 0.75]) == pytest.approx([0.25, 0.5, 0.75], abs=0.03)


def test_some_jobs_never_change_and_some_visit_every_batch_size() -> None:
    regimes = Counter(
        (spec.mode, len(truth.targets)) for spec, truth in pairs(many()) if spec.batch_size == 16
    )
    assert {count for mode, count in regimes if mode is Mode.ACCORDION} == {2, 4}
    assert {count for mode, count in regimes if mode is Mode.GNS} == {1, 2, 3, 4, 5}


@pytest.mark.slow
def test_poisson_arrivals_start_at_zero_and_keep_their_mean() -> None:
    workload = generate_workload(JOBS, rng=np.random.default_rng(5), mean_interarrival_seconds=40.0)
    arrivals = [spec.arrival_seconds for spec in workload.specs]
    gaps = np.diff(arrivals)
    assert arrivals[0] == 0.0
    assert gaps.min() >= 0.0
    assert gaps.mean() == pytest.approx(40.0, rel=0.06)
    assert gaps.std() == pytest.approx(40.0, rel=0.1)  # an exponential's equals its mean


def test_the_source_tells_how_the_workload_was_made() -> None:
    assert generate(20, seed=2).source == "generated: 20 jobs, poisson, 90 s apart"
    at_once = generate(20, 2, Arrivals.AT_ONCE)
    assert at_once.source == "generated: 20 jobs, at_once"
    assert {spec.arrival_seconds for spec in at_once.specs} == {0.0}
    named = generate_workload(1, rng=np.random.default_rng(0), source="mine")
    assert named.source == "mine"


def test_by_default_sixty_jobs_contend_for_sixteen_gpus() -> None:
    for seed in range(10):
        workload = generate(60, seed)
        work = sum(s.demand.least * t.isolated_seconds for s, t in pairs(workload))
        assert work / 16 > 3 * workload.specs[-1].arrival_seconds


def test_the_profile_holds_every_combination_and_larger_batches_are_faster() -> None:
    table = generated_profile()
    combinations = [(f, gpus) for f in FAMILIES for gpus in SCALE_FACTORS]
    assert len(table.rates) == sum(len(f.batch_sizes) for f, _ in combinations)
    for family, gpus in combinations:
        rates = [
            size * table.rates[family.name, size, UNTYPED, gpus] for size in family.batch_sizes
        ]
        assert family.batch_sizes[-1] == family.largest
        assert rates == sorted(set(rates))


def test_more_gpus_are_faster_at_every_batch_size() -> None:
    for family in FAMILIES:
        for size in family.batch_sizes:
            rates = [family.steps_per_second(size, gpus) for gpus in SCALE_FACTORS]
            assert rates == sorted(set(rates))


@given(SEEDS, st.integers(1, 12))
def test_isolated_run_times_follow_from_targets_and_profile(seed: int, jobs: int) -> None:
    workload = generate(jobs, seed)
    assert [spec.job_id for spec in workload.specs] == list(range(jobs))
    for spec, truth in pairs(workload):
        sizes = [regime.batch_size for regime in truth.targets]
        isolated = sum(
            r.epochs * epoch_seconds(workload.profile, spec, r.batch_size) for r in truth.targets
        )
        assert truth.job_id == spec.job_id
        assert truth.isolated_seconds == pytest.approx(isolated, rel=1e-12)
        assert sum(regime.epochs for regime in truth.targets) == spec.epochs
        assert all(regime.epochs >= 1 for regime in truth.targets)
        assert sizes[0] == spec.batch_size
        assert set(sizes) <= set(spec.batch_sizes)
        if spec.mode is Mode.GNS:
            assert sizes == sorted(sizes)
        steps = math.ceil(spec.samples_per_epoch / spec.batch_size)
        assert spec.total_steps == spec.epochs * steps


def run_alone(spec: JobSpec, truth: GroundTruth, profile: Profile) -> float:
    """Run time on its own GPUs, round by round."""
    terms = Terms("", 120.0, 20.0, profile)
    cluster = VirtualFactory([truth]).open(terms, ResumePoint(jobs=(spec,)))
    for _ in range(2 + math.ceil(2 * LONGEST_SECONDS / 120.0)):
        cluster.launch(0, [Lease(spec.job_id, tuple(range(spec.demand.least)))])
        cluster.advance(None)
        observation = cluster.observe()
        if observation.finished:
            return observation.progress[0].run_seconds
    raise AssertionError(f"job {spec.job_id} never finishes")


@pytest.mark.slow
def test_jobs_that_run_alone_take_about_their_isolated_run_time() -> None:
    workload = generate(400, seed=11)
    ratios = [
        run_alone(spec, truth, workload.profile) / truth.isolated_seconds
        for spec, truth in pairs(workload)
    ]
    # Late changes, cut-off epochs and the last partial batch make up the difference.
    assert median(ratios) == pytest.approx(1.0, abs=0.02)
    assert fmean(abs(ratio - 1) < 0.05 for ratio in ratios) > 0.85
    assert 0.75 < min(ratios) < max(ratios) < 1.25


@examples(40)
@given(SEEDS)
def test_every_job_can_run_alone_and_finishes(seed: int) -> None:
    workload = generate(4, seed)
    for spec, truth in pairs(workload):
        assert 0.5 < run_alone(spec, truth, workload.profile) / truth.isolated_seconds < 1.5


@pytest.mark.parametrize(
    ("jobs", "gap", "message"),
    [
        (0, 90.0, "jobs: 0 is not positive; give at least 1"),
        (-4, 90.0, "jobs: -4 is not positive; give at least 1"),
        (3, 0.0, "mean_interarrival_seconds: 0.0 is not a positive number of seconds; give the"),
        (3, math.inf, "mean_interarrival_seconds: inf is not a positive number of seconds"),
        (3, math.nan, "mean_interarrival_seconds: nan is not a positive number of seconds"),
    ],
)
def test_a_workload_needs_jobs_and_a_gap_between_them(jobs: int, gap: float, message: str) -> None:
    with pytest.raises(InputError) as caught:
        generate_workload(jobs, rng=np.random.default_rng(0), mean_interarrival_seconds=gap)
    assert str(caught.value).startswith(message)
