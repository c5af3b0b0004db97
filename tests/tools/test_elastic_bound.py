"""The bounds beside the figures of elastic jobs bound every schedule."""

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from benchmarks.elastic import (
    ABLATIONS,
    ABLATIONS_OF_TYPES,
    bound_makespan,
    bound_schedules,
    find_least,
    find_mean_busy_times,
    foresee_noise,
    make_offers,
)
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from solver import elastic
from solver.elastic import Experience, Offers
from solver.inventory import Pool
from solver.plan import Situation
from tasks.record import Settings
from tests.applications import toy_profile, write_applications, write_jobs
from tests.runs import make
from tests.solver.test_pollux import FOUR, start

POOL = Pool("t4", 4, 2)


def test_one_machine_serves_the_present_job_with_the_least_service() -> None:
    busy = find_mean_busy_times(np.array([0.0, 1.0, 9.0]), np.array([4.0, 1.0, 2.0]))
    assert busy == pytest.approx([(1.0 * 0.5 + 3.0 * 3.5) / 4.0, 1.5, 10.0])


def test_the_least_of_an_application_by_hand(tmp_path: Path) -> None:
    """On one GPU a step of 10 samples takes 1 s and makes a step of progress, of 100 an epoch."""
    least = find_least(toy_profile(tmp_path).applications["toy"], POOL)
    assert (least.work <= 100.0 + 1e-9).all()
    assert (least.seconds < least.work).all()
    assert least.seconds.sum() / 2.0 * 0.5 < least.lag < least.seconds.sum()


def test_the_makespan_on_two_types_by_hand(tmp_path: Path) -> None:
    """On one GPU of a type that is four times as fast, and on one of the measured type.

    A job needs 200 GPU-seconds of the measured type (its batch of 10 on one GPU), so two need 400
    at a total speed of 5. One alone takes 50 s on the fast GPU.
    """
    apps = write_applications(tmp_path / "apps")
    (apps / "gpu_types.csv").write_text("application,gpu_type,speed\ntoy,t4,1\ntoy,a100,4\n")
    trace = write_jobs(tmp_path, "a,0,toy,1,10", "b,0,toy,1,10", "c,100,toy,1,10")
    workload = Source(trace=trace, applications=apps).open(gpu_types=("t4", "a100"))
    pools = Pool("t4", 1, 1), Pool("a100", 1, 1)
    (app,) = workload.profile.applications.values()
    work = find_least(app, pools[0]).work.sum()
    assert bound_makespan(workload, pools) == pytest.approx(max(100.0 + work / 4, 3 * work / 5))


@pytest.mark.parametrize("policy", ["shockwave", "sia", "pollux", "optimus"])
def test_no_run_is_below_its_bounds(policy: str, tmp_path: Path) -> None:
    made = make(start(tmp_path, *FOUR, policy=policy))
    workload = made.start.workload
    ends = {e.job_id: e.at_seconds for record in made.records for e in record.finished}
    jct = np.mean([ends[spec.job_id] - spec.arrival_seconds for spec in workload.specs])
    apps = [workload.profile.applications[spec.model] for spec in workload.specs]
    bound = bound_schedules(workload.specs, apps, POOL)
    begun = min(spec.arrival_seconds for spec in workload.specs)
    assert 0.1 * jct < bound["mean_jct_s"] <= jct
    assert 0.1 * (max(ends.values()) - begun) < bound["makespan_s"] <= max(ends.values()) - begun


@pytest.mark.parametrize("changed", [*ABLATIONS])
def test_all_jobs_end_without_a_part_of_the_market(changed: str, tmp_path: Path) -> None:
    with patch.dict(vars(elastic), ABLATIONS[changed]):
        made = make(start(tmp_path, *FOUR, policy="shockwave"))
    assert sorted(e.job_id for record in made.records for e in record.finished) == [0, 1, 2, 3]
    counts = [[len(lease.gpus) for lease in record.leases] for record in made.records]
    if changed == "growth of 2 a round":
        assert max(counts[0]) == 1


@pytest.mark.parametrize("changed", [*ABLATIONS_OF_TYPES])
def test_all_jobs_end_on_several_types_without_a_part(changed: str, tmp_path: Path) -> None:
    apps = write_applications(tmp_path / "apps")
    (apps / "gpu_types.csv").write_text("application,gpu_type,speed\ntoy,t4,1\ntoy,a100,4\n")
    source = Source(trace=write_jobs(tmp_path, *FOUR), applications=apps)
    pools = Pool("t4", 4, 2), Pool("a100", 2, 2)
    settings = Settings("shockwave", pools, round_seconds=60.0, restart_seconds=30.0)
    with patch.dict(vars(elastic), ABLATIONS_OF_TYPES[changed]):
        made = make(make_start(source.open(gpu_types=("t4", "a100")), settings))
    assert sorted(e.job_id for record in made.records for e in record.finished) == [0, 1, 2, 3]


def test_noise_to_come_is_foreseen(tmp_path: Path) -> None:
    """The noise triples in the second epoch, in which larger batches do more good."""
    seen: list[tuple[Situation, Experience]] = []

    def watch(situation: Situation, experience: Experience) -> Offers:
        seen.append((situation, experience))
        return make_offers(situation, experience)

    with patch.dict(vars(elastic), {"make_offers": watch}):
        make(start(tmp_path, "a,0,toy,4,40", policy="shockwave"))
    noises = set()
    for situation, experience in seen:
        agent = situation.jobs[0].belief.agent
        assert agent is not None
        ahead = foresee_noise(situation, experience).left
        now = make_offers(situation, experience).left
        noises.add(agent.noise)
        if agent.noise == (1.0, 3.0):
            assert (ahead <= now * (1.0 + 1e-9)).all()
            assert ahead[-1] < now[-1]
        else:
            assert ahead == pytest.approx(now)
    assert noises == {None, (1.0, 3.0), (1.0, 9.0)}
