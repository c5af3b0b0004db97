"""Tiresias' public job list on 4 nodes of 4 GPUs, against its published simulator.

That simulator counts GPUs only, so nothing need be consolidated here, and preempts for
free. It moves from event to event; rounds of 2 s (5 s
with the long durations) come near enough. Its run times are
whole seconds, and so are ours.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from containers.virtual import GroundTruth
from flows.simulation import make_header
from predictor.job import Regime
from tests.runs import Made, make
from warehouse.record import Parameter, Settings
from warehouse.tiresias import read_tiresias
from warehouse.workload import Workload


class Figures(NamedTuple):
    mean_jct: float
    makespan: float


def workload(data: Path, times: int) -> Workload:
    """The list with all durations so many times as long."""
    read = read_tiresias(data.parent / "tiresias" / "60_job.csv")
    specs = [
        replace(
            spec,
            epochs=spec.epochs * times,
            total_steps=spec.total_steps * times,
            consolidate=False,
        )
        for spec in read.specs
    ]
    truths = []
    for truth in read.truths:
        (only,) = truth.profiled
        regimes = (Regime(only.batch_size, only.epochs * times),)
        truths.append(GroundTruth(truth.job_id, truth.isolated_seconds * times, regimes, regimes))
    return replace(read, specs=tuple(specs), truths=tuple(truths))


def run(data: Path, times: int, policy: str, **parameters: float) -> tuple[Figures, Made]:
    settings = Settings(
        policy,
        gpus=16,
        gpus_per_node=4,
        parameters=tuple(Parameter(name, value) for name, value in parameters.items()),
        round_seconds=2.0 if times == 1 else 5.0,
        restart_seconds=0.0,
    )
    made = make(make_header(workload(data, times), settings))
    arrival = {spec.job_id: spec.arrival_seconds for spec in made.header.specs}
    ends = [event for record in made.records for event in record.finished]
    jcts = [event.at_seconds - arrival[event.job_id] for event in ends]
    return Figures(sum(jcts) / len(jcts), made.records[-1].clock_seconds), made


# The published code's fifo waits behind a job that does not fit. Its sjf sorts by the
# number of GPUs alone and preempts; ours, by GPU time and without preemption as its
# description says, gets the same figures.
PUBLISHED = [
    (1, "fifo", {"backfill": 0.0}, Figures(200.8, 3_335)),
    (1, "sjf", {}, Figures(198.2, 3_271)),
    (1, "srtf", {}, Figures(192.1, 3_271)),
    (1, "srtf-gpu", {}, Figures(195.9, 3_315)),
    (1, "tiresias-las", {}, Figures(190.7, 3_271)),
    (20, "fifo", {"backfill": 0.0}, Figures(18_271, 63_690)),
    (20, "srtf", {}, Figures(11_794, 57_839)),
    (20, "srtf-gpu", {}, Figures(10_549, 52_968)),
    (20, "tiresias-las", {}, Figures(16_242, 50_513)),
]


@pytest.mark.parametrize(("times", "policy", "parameters", "published"), PUBLISHED)
def test_policies_get_what_was_published(
    data: Path, times: int, policy: str, parameters: dict[str, float], published: Figures
) -> None:
    here, _ = run(data, times, policy, **parameters)
    assert here.mean_jct == pytest.approx(published.mean_jct, rel=0.05)
    assert here.makespan == pytest.approx(published.makespan, rel=0.05)


def test_promotion_is_less_late_than_published(data: Path) -> None:
    # Published: mean JCT 14,712 s, makespan 56,384 s, 98 promotions, 114 preemptions. There,
    # a queue's threshold in GPU-seconds is held against a run time in seconds to find when
    # a job must next be looked at, so gangs are demoted late, and long ones keep ahead of
    # those that were promoted. With looks as late as those this workload gets 14,677 s and
    # 56,121 s here; on time, the mean JCT is a tenth shorter and the makespan the same.
    here, made = run(data, 20, "tiresias-las", promote=1.0)
    assert 0.85 < here.mean_jct / 14_712 < 1.0
    assert here.makespan == pytest.approx(56_384, rel=0.05)
    preemptions = sum(e.kind == "preempted" for record in made.records for e in record.events)
    never, plain = run(data, 20, "tiresias-las")
    assert here.mean_jct < 0.95 * never.mean_jct
    assert preemptions > sum(e.kind == "preempted" for r in plain.records for e in r.events)


def test_the_index_of_gittins_needs_no_more_than_what_ended(data: Path) -> None:
    # Published: 219.1 s and 3,271 s, with an average of whole sizes in place of what is left
    # of them. No job of the short list reaches the first queue's end, so the paper's index
    # hardly tells them apart, and the figures come out alike.
    here, _ = run(data, 1, "tiresias-gittins")
    assert here.mean_jct == pytest.approx(219.1, rel=0.05)
    assert here.makespan == pytest.approx(3_271, rel=0.05)
    # On the long list it knows better than attained service alone which job ends soon.
    learnt, _ = run(data, 20, "tiresias-gittins")
    assert learnt.makespan < 1.05 * 50_513
