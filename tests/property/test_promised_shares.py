"""Under policies that promise a share of time, a gang that fits starts within a bound."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.policies import make_policy
from solver.policies.shares import MOST_OWED
from tests.property.test_postponement import GPUS, Stream
from tests.strategies import examples

MOST = 8
"""Active jobs from which on no others arrive."""

LATER = 3.0
"""Rounds beyond `MOST_OWED`: until shares count, until the other jobs' rounds end, and for jobs
that are owed more."""


@pytest.mark.parametrize("policy", ["gavel", "themis", "gandiva-fair"])
@given(
    st.lists(st.lists(st.integers(1, 4), max_size=5), min_size=10, max_size=60),
)
@examples(20)
def test_small_jobs_do_not_keep_a_gang_of_all_gpus_from_running(
    policy: str, bursts: list[list[int]]
) -> None:
    stream, made, memory = Stream(), make_policy(policy), ""
    gang, promised = None, 0.0
    for number in range(400):
        burst = bursts[number % len(bursts)] if len(stream.active) < MOST else ()
        new = [stream.arrive(1, rounds) for rounds in burst]
        if number == 3:
            gang = stream.arrive(GPUS, 2).job_id
            new.append(stream.active[gang].spec)
        if not stream.active:
            continue
        plan = made.plan(replace(stream.situation(new), memory=memory))
        memory = plan.memory or memory
        if gang is not None:
            promised += 1.0 / len(stream.active)  # an equal share of the GPUs' time, in rounds
            if gang in plan.placement:
                return
            assert promised <= MOST_OWED + LATER, number
        stream.train(plan.placement)
    pytest.fail("the gang never ran")
