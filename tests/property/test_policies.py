"""Invariants of every policy on random workloads and clusters."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.runs.start import make_start
from predictor.job import JobSpec
from solver.fidelity import Fidelity
from solver.policies import POLICIES
from tasks.record import Settings, Start, make_pool
from tasks.sources import SourcePosition
from tests.runs import Made, make
from tests.strategies import among, examples
from warehouse.workloads.generator import generate_workload

SHAPES = ((8, 1), (8, 4), (16, 8), (12, 2))


@st.composite
def starts(draw: st.DrawFn, policy: str) -> Start:
    """Starts of runs of a few jobs, some of them to be consolidated."""
    gpus, per_node = draw(st.sampled_from(SHAPES))
    workload = generate_workload(
        draw(st.integers(1, 7)),
        rng=np.random.default_rng(draw(st.integers(0, 10_000))),
        mean_interarrival_seconds=draw(among(60.0, 1_000.0, 20_000.0)),
    )
    strict = draw(st.integers(0, 3))
    workload = replace(
        workload,
        specs=tuple(
            replace(spec, consolidate=strict > 0 and spec.job_id % strict == 0)
            for spec in workload.specs
        ),
    )
    asked = Settings(
        policy,
        make_pool(gpus, per_node),
        fidelity=draw(among(*Fidelity)),
        round_seconds=draw(among(600.0, 1_500.0)),
        window=draw(among(1, 5)),
    )
    return make_start(workload, asked)


def jobs_of(made: Made) -> tuple[JobSpec, ...]:
    """All jobs of a run's workload, admitted or not."""
    return made.run.source.until(float("inf"), SourcePosition()).jobs


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@settings(examples(8), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_policy_serves_every_job_and_gives_no_gpu_twice(
    policy: str, data: st.DataObject
) -> None:
    made = make(data.draw(starts(policy)))
    specs = {spec.job_id: spec for spec in jobs_of(made)}
    gangs = {job_id: spec.demand.least for job_id, spec in specs.items()}
    asked, inventory = made.header.settings, made.header.settings.inventory
    active: set[int] = set()
    trained = dict.fromkeys(specs, 0.0)
    total = dict.fromkeys(specs, 0.0)
    held: dict[int, tuple[int, ...]] = {}
    clock = 0.0
    for record in made.records:
        for entry in record.progress:
            assert entry.job_id in held, "ran without a lease"
            assert entry.seconds <= record.clock_seconds - clock + 1e-6, "longer than the round"
            trained[entry.job_id] += entry.seconds
            total[entry.job_id] = entry.run_seconds
        clock = record.clock_seconds
        active |= {spec.job_id for spec in record.arrivals}
        active -= {event.job_id for event in record.finished}
        held = {lease.job_id: lease.gpus for lease in record.leases}
        used = [gpu for gpus in held.values() for gpu in gpus]
        assert len(used) == len(set(used)), "two jobs share a GPU"
        assert set(used) <= set(range(asked.gpus))
        assert held.keys() <= active, "runs before its arrival or after its end"
        for job_id, gpus in held.items():
            assert len(gpus) == gangs[job_id], "not a whole gang"
            if specs[job_id].consolidate:
                nodes = {inventory.node(gpu) for gpu in gpus}
                assert len(nodes) == inventory.pools[0].fewest_nodes(len(gpus))
        if POLICIES[policy].work_conserving and asked.fidelity is Fidelity.FAIR:
            idle = asked.gpus - len(used)
            waiting = [gangs[job_id] for job_id in active - held.keys()]
            # Gangs and nodes are powers of two: consolidation keeps nobody from running.
            assert all(gpus > idle for gpus in waiting)
    ended = [event.job_id for record in made.records for event in record.finished]
    assert sorted(ended) == sorted(specs), "lost, or ended twice"
    # Attained service sums to the busy time.
    assert trained == pytest.approx(total)
    busy = [trained[job_id] * gangs[job_id] for job_id in ended]
    assert made.states[-1].learning.gpu_seconds == pytest.approx(tuple(busy))


@settings(examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(starts("isolated"))
def test_isolated_jobs_never_begin_a_round_ahead_of_their_share(start: Start) -> None:
    made = make(start)
    gpus = made.header.settings.gpus
    gangs = {spec.job_id: spec.demand.least for spec in jobs_of(made)}
    owed: dict[int, float] = {}
    held: set[int] = set()
    clock = 0.0
    for record in made.records:
        elapsed, clock = record.clock_seconds - clock, record.clock_seconds
        for job_id in owed:
            share = min(1.0, gpus / (len(owed) * gangs[job_id]))
            owed[job_id] += elapsed * (share - (job_id in held))
        for event in record.finished:
            del owed[event.job_id]
        owed |= {spec.job_id: 0.0 for spec in record.arrivals}
        held = {lease.job_id for lease in record.leases}
        ahead = {job_id for job_id in held if owed[job_id] < -1e-3}
        # Somebody has to run, or the clock would stand still.
        assert not ahead or (len(held) == 1 and max(owed.values()) < 1e-3)
        assert not owed or held
