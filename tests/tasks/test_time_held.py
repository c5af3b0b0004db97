"""A job holds GPUs up to its limit, and no longer."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from containers.runtime import EventKind
from flows.explain.sentences import describe_answer
from flows.explain.why import why
from flows.runs.start import make_start
from predictor.errors import InputError
from predictor.job import JobSpec
from tasks.record import RuntimeKind, Settings, make_pool
from tests.runs import Made, check_sound, check_stored, make, tiny
from warehouse.store.reader import Reader


def limited(policy: str, runtime: RuntimeKind, max_seconds: float) -> Made:
    """Jobs of which the first may hold GPUs for so long."""
    workload = tiny().workload
    specs = (replace(workload.specs[0], max_seconds=max_seconds), *workload.specs[1:])
    settings = Settings(policy, make_pool(8), round_seconds=600.0, seed=7, runtime=runtime)
    return make(make_start(replace(workload, specs=specs), settings))


def held(made: Made, job_id: int) -> float:
    """Seconds between the boundaries at which a job had a lease."""
    return sum(
        after.clock_seconds - before.clock_seconds
        for before, after in pairwise(made.records)
        if job_id in {lease.job_id for lease in before.leases}
    )


@pytest.mark.parametrize("runtime", [RuntimeKind.VIRTUAL, RuntimeKind.FAITHFUL])
@pytest.mark.parametrize("policy", ["fifo", "shockwave", "themis"])
@pytest.mark.slow
def test_a_job_ends_at_the_boundary_at_which_its_time_is_over(
    tmp_path: Path, policy: str, runtime: RuntimeKind
) -> None:
    free = make(make_start(tiny().workload, limited(policy, runtime, 0.0).header.settings))
    needs = held(free, 0)
    limit = 0.6 * needs
    made = limited(policy, runtime, limit)
    ends = {event.job_id: event for record in made.records for event in record.finished}
    assert ends[0].kind is EventKind.FAILED
    assert limit <= held(made, 0) < limit + 600.0
    assert {event.kind for job, event in ends.items() if job} == {EventKind.FINISHED}
    check_sound(made)
    assert made.run.state.time_held.seconds == {}
    name = check_stored(tmp_path, made)
    again = Reader(tmp_path).start(name)
    assert [spec.max_seconds for spec in again.workload.specs] == [limit] + [0.0] * 7
    text = list(describe_answer(why(0, tmp_path, name)))[-1]
    assert f"failed on GPU {', '.join(map(str, ends[0].gpus))}" in text.replace("GPUs", "GPU")
    assert text.endswith(f"and its max_seconds are {limit:,.0f}.")


def test_a_job_that_needs_no_more_is_left_alone(tmp_path: Path) -> None:
    free = make(
        make_start(tiny().workload, limited("fifo", RuntimeKind.VIRTUAL, 0.0).header.settings)
    )
    made = limited("fifo", RuntimeKind.VIRTUAL, held(free, 0) + 1.0)
    assert [record.leases for record in made.records] == [record.leases for record in free.records]


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_a_limit_is_a_time(seconds: float) -> None:
    spec: JobSpec = tiny().workload.specs[0]
    with pytest.raises(InputError, match=r"job 0, max_seconds: .* is not a time of 0 or more"):
        replace(spec, max_seconds=seconds)
