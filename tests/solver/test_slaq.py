"""The order of jobs by the expected fall of their loss."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from predictor.errors import InputError
from predictor.job import LARGEST_LOSS, EpochLoss, JobProgress, Regime
from solver.plan import ActiveJob
from solver.policies import make_policy
from solver.policies.slaq import Slaq
from tests.solver.test_policies import job, situation

STEEP, FLAT = [9.0, 6.0, 4.0, 2.7], [9.0, 3.0, 2.9, 2.88, 2.87, 2.87, 2.87]


def trained(active: ActiveJob, losses: Sequence[float], epochs: int = 0) -> ActiveJob:
    """A job that has completed its epochs with these losses."""
    spec, done = active.spec, epochs or len(losses)
    reported = [EpochLoss(spec.job_id, n, loss) for n, loss in enumerate(losses)]
    size = spec.batch_size
    stands = JobProgress(spec.job_id, done, 0.0, size, 1.0, 1.0, spec.steps_after(done, size))
    belief = replace(active.belief, observed=(Regime(size, done),), progress=stands)
    return replace(active, belief=belief.with_losses(reported))


def order(*jobs: ActiveJob) -> tuple[int, ...]:
    return make_policy("slaq").plan(situation(*jobs)).order


def test_a_steep_loss_comes_before_a_flat_one_in_any_unit() -> None:
    flat, steep = trained(job(0, 20), FLAT), trained(job(1, 20), STEEP)
    assert order(flat, steep) == (1, 0)
    assert order(flat, trained(job(1, 20), [loss / 1000.0 + 5.0 for loss in STEEP])) == (1, 0)


def test_a_gang_has_to_be_worth_its_gpus() -> None:
    alone, gang = trained(job(1, 20), STEEP), trained(job(0, 20, gang=4), STEEP)
    assert order(gang, alone) == (1, 0)


def test_what_a_gpu_is_worth_to_a_job_is_the_fall_that_it_brings() -> None:
    gang, steep = trained(job(0, 20, gang=4), STEEP), trained(job(1, 20), STEEP)
    plan = make_policy("slaq").plan(situation(gang, steep, job(2, 20)))
    worth = dict(zip(plan.order, plan.worth, strict=True))
    assert plan.order == (2, 1, 0)
    assert worth[1] == pytest.approx(4.0 * worth[0])
    assert worth[1] == pytest.approx(Slaq().fall(steep, 100.0))


def test_new_jobs_are_tried_first_by_arrival() -> None:
    jobs = trained(job(0, 20), STEEP), job(2, 20, arrival=5.0), trained(job(1, 20), STEEP[:2])
    assert order(*jobs) == (1, 2, 0)


def test_a_job_without_losses_is_taken_to_lose_as_much_in_each_epoch() -> None:
    silent, steep, flat = (
        trained(job(0, 20), [], epochs=5),
        trained(job(1, 20), STEEP),
        trained(job(2, 20), FLAT),
    )
    assert order(flat, steep, silent) == (0, 1, 2)
    assert Slaq().fall(silent, 10.0) == pytest.approx(10.0 * Slaq().fall(silent, 1.0))
    still = trained(job(3, 20), [4.0, 4.0, 4.0])
    assert Slaq().fall(still, 10.0) == 0.0


def test_one_jobs_losses_do_not_stop_the_others() -> None:
    steep, flat = trained(job(0, 20), STEEP), trained(job(1, 20), FLAT)
    settled = trained(job(2, 20), [0.3, 0.30000000000000004, 0.3])
    wild = trained(job(3, 20), [float(LARGEST_LOSS), 1.0, 0.9])
    assert Slaq().fall(settled, 10.0) == 0.0
    assert order(settled, flat, wild, steep)[0] == 0


@pytest.mark.parametrize(
    ("parameter", "value"), [("recency", 0.0), ("recency", 1.5), ("trial", 2.0)]
)
def test_parameters_without_a_curve_are_refused(parameter: str, value: float) -> None:
    with pytest.raises(InputError, match=f"parameters.{parameter}"):
        make_policy("slaq", values={parameter: value})
