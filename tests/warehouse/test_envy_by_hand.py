"""Envy, and the effects of placement and sharing on the figures, worked out by hand."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.runtime import EventKind, Lease
from predictor.throughput import UNTYPED
from solver.inventory import Pool
from tasks.record import Fork, RoundRecord, make_pool
from tests.runs import chained, start_of, write
from tests.warehouse.by_hand import (
    END,
    HEADER,
    WORKLOAD,
    by_job,
    by_round,
    column,
    envies,
    event,
    ran,
    records,
    round_record,
    spec,
    summary,
    warehouse_of,
    with_budgets,
    with_settings,
)
from warehouse.analytics.questions import Analytics

pytestmark = pytest.mark.slow


def test_nobody_envies_who_could_use_less_of_what_others_got(analytics: Analytics) -> None:
    # Job 0 held both GPUs for 115 s; job 1 held one for 200 s, worth 100 s of two.
    # Job 1 held one for 200 s; job 0 one that it could use for 100 s while both were there.
    assert envies(analytics) == [(job, False, 0, None, None) for job in (0, 1, 2)]
    figures = summary(analytics)
    assert (figures["envy_violations"], figures["worst_envy"]) == (0, None)


def test_who_pays_more_is_offered_more(tmp_path: Path) -> None:
    # With twice the money of job 1, job 0 could have bought both GPUs in its 200 s.
    start = with_budgets(4.0, 2.0, 2.0)
    write(tmp_path, start, chained(start, records()))
    analytics = Analytics(tmp_path)
    assert envies(analytics)[0] == (0, True, 1, 1, round(200 / 115.0009, 5))
    figures = summary(analytics)
    assert (figures["envy_violations"], figures["worst_envy"]) == (1, round(200 / 115.0009, 5))


def queue(gap_seconds: float) -> list[RoundRecord]:
    """Job 1 waits until job 0 ends after 200 s, and so does job 2 after both."""
    kind, end = EventKind, 200.0 + gap_seconds
    return [
        round_record(
            0,
            0.0,
            (0, 1),
            arrivals=WORKLOAD.specs[:2],
            leases=(Lease(0, (0, 1)),),
            events=(event(0, kind.STARTED, 0.0, 0, 1),),
        ),
        round_record(
            1,
            200.0,
            (1, 2),
            arrivals=WORKLOAD.specs[2:],
            finished=(event(0, kind.FINISHED, 200.0, 0, 1),),
            progress=(ran(0, 200.0),),
            leases=(Lease(1, (0,)),),
            events=(event(1, kind.STARTED, 200.0, 0),),
        ),
        round_record(
            2,
            end,
            (2,),
            finished=(event(1, kind.FINISHED, end, 0),),
            progress=(ran(1, gap_seconds),),
            leases=(Lease(2, (1,)),),
            events=(event(2, kind.STARTED, end, 1),),
        ),
        round_record(
            3,
            end + 10.0,
            (),
            finished=(event(2, kind.FINISHED, end + 10.0, 1),),
            progress=(ran(2, 10.0),),
        ),
    ]


@pytest.mark.parametrize(
    ("seconds", "envied"),
    [
        (50.0, 200.0 / 50.0),
        (190.0, 200.0 / 190.0),
        (191.0, None),  # 1.04712: within the margin
        (250.0, None),  # it waited for a shorter job than itself
    ],
)
def test_a_job_envies_who_ran_for_longer_while_it_waited(
    tmp_path: Path, seconds: float, envied: float | None
) -> None:
    first, second, third = envies(warehouse_of(tmp_path, queue(seconds)))
    assert first == (0, False, 0, None, None)
    expected = (0, None, None) if envied is None else (1, 0, round(envied, 5))
    assert second == (1, envied is not None, *expected)
    # Job 2 needed 10 s, came at 200 and envies job 1 alone: job 0 had gone.
    assert third == (2, True, 1, 1, seconds / 10)


def test_a_job_under_way_is_envied_but_does_not_envy(tmp_path: Path) -> None:
    analytics = warehouse_of(tmp_path, queue(50.0)[:3])
    assert envies(analytics) == [(0, False, 0, None, None), (1, True, 1, 0, 4.0)]
    assert summary(analytics)["envy_violations"] == 1


@pytest.mark.parametrize(("jobs", "violations"), [(5000, 2), (5001, None)])
def test_envy_is_left_out_in_runs_too_large_for_pairs(
    tmp_path: Path, jobs: int, violations: int | None
) -> None:
    later = tuple(spec(job_id, 1, 1e6, "blue") for job_id in range(3, jobs))
    truth = WORKLOAD.truths[0]
    workload = replace(
        WORKLOAD,
        specs=WORKLOAD.specs + later,
        truths=WORKLOAD.truths + tuple(replace(truth, job_id=job.job_id) for job in later),
    )
    start = start_of(HEADER, workload)
    write(tmp_path, start, chained(start, queue(50.0)))
    assert summary(Analytics(tmp_path))["envy_violations"] == violations


def test_envy_is_unknown_where_nothing_ended(tmp_path: Path) -> None:
    figures = summary(warehouse_of(tmp_path, records()[:2]))
    for name in ("envy_violations", "proportionality_violations", "nash_welfare", "worst_envy"):
        assert figures[name] is None


def test_placement_by_node(tmp_path: Path) -> None:
    # The same run on GPUs 1 and 2 of two nodes with two each: job 0 spans both nodes.
    def moved(gpus: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(gpu + 1 for gpu in gpus)

    rounds = [
        replace(
            record,
            leases=tuple(replace(part, gpus=moved(part.gpus)) for part in record.leases),
            events=tuple(replace(part, gpus=moved(part.gpus)) for part in record.events),
        )
        for record in records()
    ]
    start = with_settings(pools=make_pool(4, 2, UNTYPED))
    write(tmp_path, start, chained(start, rounds))
    analytics = Analytics(tmp_path)
    figures = "(job_id, gpus, nodes, fewest_nodes, spread)"
    assert column(analytics, "leases", figures, "round, job_id") == [
        (0, [1, 2], 2, 1, True),
        (1, [1], 1, 1, False),
        (2, [2], 1, 1, False),
        (0, [1, 2], 2, 1, True),
    ]
    assert by_job(analytics, "spread_seconds") == pytest.approx([115.0009, 0.0, 0.0])
    assert by_round(analytics, "stranded_gpus") == [2, 1, 2, 2, 0]
    total = summary(analytics)
    assert total["spread_share"] == pytest.approx(230.0018 / 510.0018)
    assert total["stranded_share"] == pytest.approx((200 + 100 + 200 + 30.0018) / (4 * END))


def test_inventories_number_gpus_and_nodes_through(tmp_path: Path) -> None:
    pools = (Pool("v100", 2, 1, 2.48), Pool("a100", 4, 2))
    smaller = Fork("other-1", "", 1, (Pool("v100", 1, 1),), "fifo", ())
    run = write(tmp_path, with_settings(pools=pools, forked=(smaller,)), [])
    assert Analytics(tmp_path).query("FROM inventories")[1] == [
        (
            run,
            6,
            [0, 1, 2, 2, 3, 3],
            [1, 1, 2, 2],
            ["v100", "v100", "a100", "a100"],
            [2.48, 2.48, 0.0, 0.0],
            [],
        )
    ]


def test_a_lease_costs_its_gpu_hours_at_the_price_of_its_pool(tmp_path: Path) -> None:
    pools = (Pool("v100", 2, 1, 36.0), Pool("k80", 2, 1, 3.6))
    away = {0: 2, 1: 3}

    def moved(parts: Iterable[Any]) -> tuple[Any, ...]:
        """Job 1 on K80s."""
        return tuple(
            replace(part, gpus=tuple(away[gpu] for gpu in part.gpus)) if part.job_id == 1 else part
            for part in parts
        )

    rounds = [
        replace(
            record,
            leases=moved(record.leases),
            events=moved(record.events),
            finished=moved(record.finished),
        )
        for record in records()
    ]
    start = with_settings(pools=pools)
    write(tmp_path, start, chained(start, rounds))
    asked = "(job_id, gpu_type, scale_factor, seconds, cost)"
    found = column(Analytics(tmp_path), "leases", asked, "round, job_id")
    assert {(job_id, kind) for job_id, kind, *_ in found} == {(0, "v100"), (1, "k80"), (2, "v100")}
    for _, kind, gpus, seconds, cost in found:
        assert cost == pytest.approx(gpus * seconds * {"v100": 0.01, "k80": 0.001}[kind])


def test_with_a_gpu_a_node_placement_changes_nothing(analytics: Analytics) -> None:
    assert column(analytics, "leases", "(nodes, spread)", "round, job_id") == [
        (2, False),
        (1, False),
        (1, False),
        (2, False),
    ]
    assert by_round(analytics, "stranded_gpus") == [0, 0, 0, 0, 0]
    assert (summary(analytics)["spread_share"], summary(analytics)["stranded_share"]) == (0.0, 0.0)


def test_a_gpu_that_two_jobs_share_counts_once(tmp_path: Path) -> None:
    # Job 1 holds GPU 0 for 200 s; in the second hundred job 2 is on it too, for 80 s.
    rounds = records()
    alone = rounds[2].leases[0]
    shared = replace(rounds[2].events[0], gpus=alone.gpus)
    rounds[2] = replace(
        rounds[2], leases=(alone, Lease(2, alone.gpus)), events=(shared,), pairs=((1, 2),)
    )
    ended_there = replace(rounds[3].finished[0], gpus=alone.gpus)
    rounds[3] = replace(rounds[3], finished=(ended_there, *rounds[3].finished[1:]))
    start = with_settings(pools=(Pool(UNTYPED, 2, 1, 36.0),))
    write(tmp_path, start, chained(start, rounds), compact=False)
    analytics = Analytics(tmp_path)
    assert analytics.query("SELECT round, job_id, shared_with, seconds FROM sharing ORDER BY ALL")[
        1
    ] == [(2, 1, 2, 80.0), (2, 2, 1, 80.0)]
    asked = "SELECT job_id, shared_seconds, round(cost, 6) FROM leases WHERE round < 3 ORDER BY ALL"
    assert analytics.query(asked)[1] == [(0, 0.0, 2.0), (1, 80.0, 1.6), (2, 80.0, 0.4)]
    asked = "SELECT held_gpu_seconds, gpu_seconds FROM job_outcomes WHERE job_id > 0 ORDER BY ALL"
    assert analytics.query(asked)[1] == [(40.0, 37.5), (160.0, 144.0)]
    assert column(analytics, "rounds", "busy_gpus", "round")[2] == 1
