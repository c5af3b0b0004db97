"""A policy sees the seconds of an allocation only if it asks for them.

Jobs are elastic, so that their menus hold more than the allocation that policies bid on
today, and their work is uncertain; rates of all that is not asked for are garbage.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictor.allocation import Allocation, Demand
from predictor.forecast import SAMPLES, Forecast
from predictor.job import JobSpec
from predictor.throughput import Profile, Throughput
from solver.configurations import list_configurations, node_sizes
from solver.plan import ActiveJob, Situation
from solver.policies import POLICIES, make_policy
from tests.solver.test_policies import situations

Asked = tuple[int, Allocation]
"""A job and an allocation."""

GARBAGE = (1e-9, 1.0, 1e9, float("nan"), -1.0)


@dataclass(frozen=True)
class Linear:
    """As many times the rate as GPUs; on more nodes, and in pairs, as fast."""

    table: Profile

    placement_matters = False

    @property
    def gpu_types(self) -> tuple[str, ...]:
        return self.table.gpu_types

    def rate(self, job: JobSpec, batch_size: int, allocation: Allocation) -> float:
        reference = self.reference(job)
        return self.table.rate(job, 16, reference) * allocation.gpus / reference.gpus

    def can_run(self, job: JobSpec, batch_size: int, allocation: Allocation) -> bool:
        return True

    def restart(self, allocation: Allocation, otherwise: float) -> float:
        return otherwise

    def shared_rate(
        self,
        job: JobSpec,
        batch_size: int,
        other: JobSpec,
        other_batch_size: int,
        allocation: Allocation,
    ) -> float:
        return 0.6 * self.rate(job, batch_size, allocation)

    def reference(self, job: JobSpec) -> Allocation:
        return self.table.reference(job)


@dataclass(frozen=True)
class Watched:
    """Another's rates for some jobs and allocations, garbage for all else, and a list of both.

    Attributes:
        inner: The other.
        known: For which it answers; None for all.
        garbage: The answer elsewhere; None to refuse.
        asked: All that it was asked.
    """

    inner: Throughput
    known: Collection[Asked] | None = None
    garbage: float | None = None
    asked: set[Asked] = field(default_factory=set)

    placement_matters = False

    @property
    def gpu_types(self) -> tuple[str, ...]:
        return self.inner.gpu_types

    def rate(self, job: JobSpec, batch_size: int, allocation: Allocation) -> float:
        return self._answer(job, allocation, self.inner.rate(job, batch_size, allocation))

    def _answer(self, job: JobSpec, allocation: Allocation, rate: float) -> float:
        self.asked.add((job.job_id, allocation))
        if self.known is None or (job.job_id, allocation) in self.known:
            return rate
        if self.garbage is None:
            raise AssertionError(f"job {job.job_id} has no rate on {allocation}")
        return self.garbage

    def restart(self, allocation: Allocation, otherwise: float) -> float:
        return self.inner.restart(allocation, otherwise)

    def shared_rate(
        self,
        job: JobSpec,
        batch_size: int,
        other: JobSpec,
        other_batch_size: int,
        allocation: Allocation,
    ) -> float:
        rate = self.inner.shared_rate(job, batch_size, other, other_batch_size, allocation)
        return self._answer(job, allocation, rate)

    def can_run(self, job: JobSpec, batch_size: int, allocation: Allocation) -> bool:
        raise AssertionError("menus say what can be had")

    def reference(self, job: JobSpec) -> Allocation:
        raise AssertionError("what a job is measured by is not an allocation of a plan")


def elastic(active: ActiveJob, inputs: Situation, epochs: tuple[float, float]) -> ActiveJob:
    """The job with a menu of up to four allocations, which may come to a second regime."""
    demand = Demand(active.gang, active.gang + 3)
    spec = replace(active.spec, demand=demand)
    short, long = sorted((epochs, (epochs[0], 0.0)), key=sum)
    half = SAMPLES // 2
    trajectories = (short,) * half + (long,) * half
    forecast = Forecast(active.job_id, (16, 32), (0.1, -0.2), long, short, long, trajectories)
    return replace(
        active,
        belief=replace(active.belief, spec=spec),
        forecast=forecast,
        menu=inputs.inventory.menu(demand),
        throughput=Linear(active.throughput),
    )


@st.composite
def crowds(draw: st.DrawFn) -> Situation:
    """Elastic jobs on a small cluster, some of them running."""
    inputs = draw(situations())
    numbers = st.floats(0.25, 10.0)
    return replace(
        inputs,
        jobs=tuple(elastic(job, inputs, draw(st.tuples(numbers, numbers))) for job in inputs.jobs),
    )


def watched(
    inputs: Situation, known: Collection[Asked] | None = None, garbage: float | None = None
) -> tuple[Situation, set[Asked]]:
    """The situation with each job's throughputs watched, and the list of what was asked."""
    asked: set[Asked] = set()
    jobs = [
        replace(job, throughput=Watched(job.throughput, known, garbage, asked))
        for job in inputs.jobs
    ]
    return replace(inputs, jobs=tuple(jobs)), asked


# Optimus reads the true schedule, whose epochs are timed on the reference.
@pytest.mark.parametrize("name", [name for name in POLICIES if name != "optimus"])
@settings(max_examples=25)
@given(inputs=crowds(), garbage=st.sampled_from(GARBAGE))
def test_rates_that_a_policy_does_not_ask_for_change_no_plan(
    name: str, inputs: Situation, garbage: float
) -> None:
    policy = make_policy(name)
    plan = policy.plan(inputs)
    menus = {(job.job_id, allocation) for job in inputs.jobs for allocation in job.menu}
    strict, asked = watched(inputs, known=menus)
    assert policy.plan(strict) == plan, "asked beyond the menus"
    assert asked <= menus
    false, asked_again = watched(inputs, known=asked, garbage=garbage)
    assert policy.plan(false) == plan
    assert asked_again == asked


@settings(max_examples=25)
@given(inputs=crowds())
def test_policies_that_go_by_run_times_do_ask(inputs: Situation) -> None:
    """Else the test above would prove nothing."""
    for name in ("shockwave", "slack", "srtf", "mst", "shockwave-published"):
        looked, asked = watched(inputs)
        make_policy(name).plan(looked)
        sizes = node_sizes(inputs.inventory)
        assert asked == {
            (job.job_id, entry)
            for job in inputs.jobs
            for entry in (list_configurations(job, sizes) if name == "shockwave" else [job.own])
        }


@settings(max_examples=25)
@given(inputs=crowds().filter(lambda inputs: len(inputs.jobs) > 0), data=st.data())
def test_a_run_time_is_of_one_allocation(inputs: Situation, data: st.DataObject) -> None:
    for job in inputs.jobs:
        allocation = data.draw(st.sampled_from(job.menu))
        only = {(job.job_id, allocation)}
        garbage = data.draw(st.sampled_from(GARBAGE))
        false, asked = watched(replace(inputs, jobs=(job,)), known=only, garbage=garbage)
        (blind,) = false.jobs
        others = [other for other in job.menu if other != allocation]
        for other in others:
            blind.rate(other)  # what is asked of others leaves no trace
        assert blind.run_time(allocation) == job.run_time(allocation)
        assert blind.rate(allocation) == job.rate(allocation)
        assert asked == {(job.job_id, other) for other in job.menu}
