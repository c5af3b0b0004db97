"""A virtual cluster cannot tell when its jobs were admitted."""

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.runtime import Lease, ResumePoint, Runtime, Terms
from containers.virtual.faithful import FaithfulFactory
from containers.virtual.virtual_cluster import VirtualFactory
from predictor.job import JobSpec
from tests.strategies import examples
from warehouse.workloads.generator import generate_workload

JOBS = 4
ROUNDS = st.lists(st.sets(st.integers(0, JOBS - 1)), min_size=1, max_size=30)
"""Which jobs hold a lease, round by round."""


def play(
    runtime: Runtime, specs: tuple[JobSpec, ...], rounds: list[set[int]], *, piecewise: bool
) -> list[object]:
    """All that it reports; admits jobs when they are launched first, and again and again."""
    log: list[object] = []
    held, ended = set[int](), set[int]()
    for number, asked in enumerate(rounds):
        wanted = asked - ended
        if piecewise:
            runtime.admit([specs[job_id] for job_id in sorted(wanted, reverse=True)])
        log += runtime.preempt(dict.fromkeys(sorted(held - wanted), ""))
        leases = [
            Lease(job_id, tuple(range(8 * job_id, 8 * job_id + specs[job_id].demand.least)))
            for job_id in sorted(wanted)
        ]
        log += runtime.launch(number, leases)
        runtime.advance(None)
        seen = runtime.observe()
        runtime.reap(seen.ended)
        log.append(astuple(seen))
        ended |= set(seen.ended)
        held = wanted - ended
    return log


@pytest.mark.parametrize("kind", [VirtualFactory, FaithfulFactory])
@examples(50)
@given(st.integers(0, 1_000), ROUNDS)
def test_admitting_jobs_in_pieces_gives_what_admitting_them_at_once_gives(
    kind: type[VirtualFactory | FaithfulFactory], seed: int, rounds: list[set[int]]
) -> None:
    made = generate_workload(JOBS, rng=np.random.default_rng(seed), mean_interarrival_seconds=90.0)
    terms = Terms("", 3_600.0, 20.0, made.profile)
    place = kind(made.truths)
    at_once = place.open(terms, ResumePoint(jobs=made.specs))
    in_pieces = place.open(terms, ResumePoint())
    assert play(in_pieces, made.specs, rounds, piecewise=True) == play(
        at_once, made.specs, rounds, piecewise=False
    )
