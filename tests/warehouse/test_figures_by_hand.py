"""Every metric of jobs, tenants and runs, worked out by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.runtime import EventKind, Lease
from predictor.throughput import UNTYPED
from solver.inventory import Pool
from solver.market import Price
from tasks.measured import Measurement
from tasks.record import Fork, make_pool
from tests.runs import chained, start_of, write
from tests.warehouse.by_hand import (
    CLEARED,
    END,
    by_job,
    by_round,
    column,
    event,
    lease_figures,
    records,
    summary,
    tenants,
    warehouse_of,
    with_budgets,
    with_deadlines,
    with_settings,
)
from warehouse.analytics.questions import Analytics

pytestmark = pytest.mark.slow


def test_jct_runs_from_arrival_to_finish(analytics: Analytics) -> None:
    assert by_job(analytics, "finish_seconds") == [END, 300.0, 280.0]
    assert by_job(analytics, "jct_seconds") == [END, 300.0, 280.0 - 150.0]
    assert summary(analytics)["mean_jct_s"] == pytest.approx((END + 300 + 130) / 3)


def test_makespan_runs_to_the_closing_record(analytics: Analytics) -> None:
    assert summary(analytics)["makespan_s"] == END


def test_no_schedule_ends_before_the_work_that_arrives_is_done(analytics: Analytics) -> None:
    # From 0 on 2 × 200 + 150 + 100 GPU-seconds arrive for two GPUs, from 150 on only 100.
    assert summary(analytics)["makespan_bound_s"] == 325.0


def test_no_schedule_ends_before_the_last_job_could_alone(tmp_path: Path) -> None:
    start = with_settings(pools=make_pool(8))
    write(tmp_path, start, chained(start, records()))
    assert summary(Analytics(tmp_path))["makespan_bound_s"] == 250.0


def test_no_bound_is_known_of_a_run_that_had_several_types(tmp_path: Path) -> None:
    slower = Fork("other-1", "", 1, make_pool(2, gpu_type="k80"), "fifo", ())
    for start in (
        with_settings(pools=(Pool(UNTYPED, 2), Pool("k80", 2))),
        with_settings(forked=(slower,)),
    ):
        write(tmp_path, start, chained(start, records()))
    assert column(Analytics(tmp_path), "run_summary", "makespan_bound_s") == [None, None]


def test_queueing_runs_from_arrival_to_the_first_launch(analytics: Analytics) -> None:
    assert by_job(analytics, "admitted_seconds") == [0.0, 0.0, 200.0]
    assert by_job(analytics, "start_seconds") == [0.0, 100.0, 200.0]
    assert by_job(analytics, "queueing_seconds") == [0.0, 100.0, 50.0]


def test_rho_is_jct_over_the_time_in_the_even_cluster(analytics: Analytics) -> None:
    # A round and a restart, 120 s, come on top of 180, 105 and 30 s; job 2's last entry counts.
    assert by_job(analytics, "fair_finish_seconds") == [180.0, 105.0, 180.0]
    assert by_job(analytics, "rho") == [1.05, 1.33333, 0.86667]
    assert summary(analytics)["worst_rho"] == 1.33333


def test_published_fairness_is_jct_over_isolated_time_times_jobs_per_gpu(
    analytics: Analytics,
) -> None:
    # Three jobs on two GPUs: contention 1.5, so the yardsticks are 300, 225 and 150 s.
    assert by_job(analytics, "ftf_published") == [1.05, 1.33333, 0.86667]
    figures = summary(analytics)
    assert figures["worst_ftf_published"] == 1.33333
    assert figures["unfair_fraction_published"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("end", "rho", "unfair"),
    [
        (315.0, 1.05, False),
        (315.0009, 1.05, False),  # 1.050003: above, but not after rounding
        (315.0021, 1.05001, True),  # 1.050007
    ],
)
def test_unfair_is_above_1_05_after_rounding_to_five_decimals(
    tmp_path: Path, end: float, rho: float, unfair: bool
) -> None:
    analytics = warehouse_of(tmp_path, records(end))
    assert by_job(analytics, "rho")[0] == rho
    assert by_job(analytics, "unfair") == [unfair, True, False]
    assert summary(analytics)["unfair_fraction"] == pytest.approx((1 + unfair) / 3)


def test_fewer_jobs_than_gpus_do_not_lower_the_contention_below_one(tmp_path: Path) -> None:
    start = with_settings(pools=make_pool(6, gpu_type=UNTYPED))
    write(tmp_path, start, chained(start, records()))
    assert by_job(Analytics(tmp_path), "ftf_published") == [round(END / 200, 5), 2.0, 1.3]


def test_utilization_counts_training_only(analytics: Analytics) -> None:
    assert by_job(analytics, "run_seconds") == [95.0, 180.0, 75.0]
    assert by_job(analytics, "gpu_seconds") == [190.0, 180.0, 75.0]
    assert summary(analytics)["utilization"] == pytest.approx(445 / (2 * END))


def test_jct_has_quantiles(analytics: Analytics) -> None:
    # 130, 300 and 315.0009 s: the quantiles lie at positions 1, 1.9 and 1.98.
    figures = summary(analytics)
    assert figures["jct_p50_s"] == 300.0
    assert figures["jct_p95_s"] == pytest.approx(300 + 0.9 * 15.0009)
    assert figures["jct_p99_s"] == pytest.approx(300 + 0.98 * 15.0009)


def test_rho_has_quantiles(analytics: Analytics) -> None:
    # 0.86667, 1.05 and 1.33333
    figures = summary(analytics)
    assert figures["rho_p50"] == 1.05
    assert figures["rho_p90"] == pytest.approx(1.05 + 0.8 * (1.33333 - 1.05))
    assert figures["rho_p95"] == pytest.approx(1.05 + 0.9 * (1.33333 - 1.05))
    assert figures["rho_p99"] == pytest.approx(1.05 + 0.98 * (1.33333 - 1.05))


def test_distributions_tell_the_share_of_jobs_up_to_a_value(analytics: Analytics) -> None:
    def points(metric: str) -> list[Any]:
        return column(
            analytics, f"distributions WHERE metric = '{metric}'", "(value, share)", "share"
        )

    assert points("rho") == [(0.86667, 1 / 3), (1.05, 2 / 3), (1.33333, 1.0)]
    assert points("jct_seconds") == [(130.0, 1 / 3), (300.0, 2 / 3), (END, 1.0)]
    assert points("queueing_seconds") == [(0.0, 1 / 3), (50.0, 2 / 3), (100.0, 1.0)]


def test_waiting_is_all_time_without_a_lease(analytics: Analytics) -> None:
    assert by_job(analytics, "held_seconds") == pytest.approx([115.0009, 200.0, 80.0])
    assert by_job(analytics, "waiting_seconds") == pytest.approx([200.0, 100.0, 50.0])
    figures = summary(analytics)
    assert figures["mean_queueing_s"] == 50.0
    assert figures["mean_waiting_s"] == pytest.approx(350 / 3)


def test_who_ended_without_a_lease_waited_all_the_time(tmp_path: Path) -> None:
    rounds = records()
    rounds[2] = replace(rounds[2], leases=(Lease(1, (0,)),), events=())
    analytics = warehouse_of(tmp_path, rounds)
    assert by_job(analytics, "held_seconds")[2] == 0.0
    assert by_job(analytics, "waiting_seconds")[2] == by_job(analytics, "jct_seconds")[2] == 130.0


def test_gpu_hours_are_leased_or_trained(analytics: Analytics) -> None:
    figures = summary(analytics)
    assert figures["gpu_hours"] == pytest.approx((2 * 115.0009 + 200 + 80) / 3600)
    assert figures["gpu_hours_trained"] == pytest.approx((2 * 95 + 180 + 75) / 3600)


def test_a_lease_was_trained_restarted_or_idled_away(analytics: Analytics) -> None:
    # Job 1 trains 90 s in each of its rounds: the first loses 10 s to the start, the other idles.
    assert lease_figures(analytics) == [
        (0, 0, "started", "preempted", 100.0, 80.0, 20.0, 0.0),
        (1, 1, "started", "finished", 200.0, 180.0, 10.0, 10.0),
        (2, 2, "started", "finished", 80.0, 75.0, 5.0, 0.0),
        (3, 0, "resumed", "finished", 15.0009, 15.0, 0.0009, 0.0),
    ]
    assert by_job(analytics, "restart_seconds") == pytest.approx([20.0009, 10.0, 5.0])
    assert by_job(analytics, "idle_seconds") == pytest.approx([0.0, 10.0, 0.0])
    assert by_job(analytics, "launches") == [2, 1, 1]
    figures = summary(analytics)
    assert figures["restart_s"] == pytest.approx(35.0009)
    assert figures["idle_s"] == pytest.approx(10.0)
    assert figures["launches"] == 4
    assert figures["restart_share"] == pytest.approx((2 * 20.0009 + 10 + 5) / 510.0018)


def test_a_restart_costs_no_more_than_the_run_charges(tmp_path: Path) -> None:
    start = with_settings(restart_seconds=8.0)
    write(tmp_path, start, chained(start, records()))
    assert by_job(Analytics(tmp_path), "restart_seconds") == pytest.approx([8.0009, 8.0, 5.0])
    assert by_job(Analytics(tmp_path), "idle_seconds") == pytest.approx([12.0, 12.0, 0.0])


def test_a_restart_costs_no_more_than_it_is_charged_where_the_lease_is(tmp_path: Path) -> None:
    found = [
        Measurement("net", 16, UNTYPED, gpus, 1.0, took) for gpus, took in ((1, 8.0), (2, 12.0))
    ]
    plain = with_settings()
    start = start_of(replace(plain.header, profile=(*found,)), plain.workload)
    write(tmp_path, start, chained(start, records()))
    assert by_job(Analytics(tmp_path), "restart_seconds") == pytest.approx([12.0009, 8.0, 5.0])


def test_a_lease_that_is_moved_begins_anew_without_a_restart(tmp_path: Path) -> None:
    rounds = records()
    moved = event(1, EventKind.RENEWED, 200.0, 1)
    rounds[2] = replace(
        rounds[2],
        leases=(Lease(1, (1,)), Lease(2, (0,))),
        events=(moved, event(2, EventKind.STARTED, 200.0, 0)),
    )
    analytics = warehouse_of(tmp_path, rounds)
    assert [row for row in lease_figures(analytics) if row[1] == 1] == [
        (1, 1, "started", "moved", 100.0, 90.0, 10.0, 0.0),
        (2, 1, "renewed", "finished", 100.0, 90.0, 0.0, 10.0),
    ]
    assert by_job(analytics, "launches") == [2, 1, 1]
    assert by_job(analytics, "run_seconds") == [95.0, 180.0, 75.0]


def test_a_lease_under_way_lasts_up_to_the_last_round_recorded(tmp_path: Path) -> None:
    assert lease_figures(warehouse_of(tmp_path, records()[:3])) == [
        (0, 0, "started", "preempted", 100.0, 80.0, 20.0, 0.0),
        (1, 1, "started", None, 100.0, 90.0, 10.0, 0.0),
        (2, 2, "started", None, 0.0, 0.0, 0.0, 0.0),
    ]


def test_nash_welfare_is_the_mean_utility_geometric_and_by_budget(
    analytics: Analytics, tmp_path: Path
) -> None:
    assert by_job(analytics, "utility") == [1 / 1.05, 1 / 1.33333, 1 / 0.86667]
    even = (1.05 * 1.33333 * 0.86667) ** (-1 / 3)
    assert summary(analytics)["nash_welfare"] == pytest.approx(even)
    start = with_budgets(1.0, 1.0, 3.0)
    write(tmp_path, start, chained(start, records()))
    weighted = (1.05 * 1.33333 * 0.86667**3) ** (-1 / 5)
    assert summary(Analytics(tmp_path))["nash_welfare"] == pytest.approx(weighted)


def test_nash_welfare_is_of_the_jobs_that_have_ended(tmp_path: Path) -> None:
    analytics = warehouse_of(tmp_path, records()[:4])
    # Job 2's fair finish is not corrected yet: 20 s after its arrival, so ρ is 130 s over 140 s.
    assert summary(analytics)["nash_welfare"] == pytest.approx((1.33333 * 0.92857) ** (-1 / 2))


def priced(shared: bool) -> list[Any]:
    """The run with markets in rounds 1 to 3; job 2 on the GPU of job 1, or on its own."""
    rounds = [
        record if price is None else replace(record, solve=replace(CLEARED, prices=(price,)))
        for record, price in zip(
            records(), [None, *(Price(UNTYPED, p) for p in (0.5, 0.25, 2.0)), None], strict=True
        )
    ]
    if shared:
        gpus = (0,)
        leases = (Lease(1, gpus), Lease(2, gpus))
        events = (replace(rounds[2].events[0], gpus=gpus),)
        rounds[2] = replace(rounds[2], leases=leases, events=events, pairs=((1, 2),))
        ended = replace(rounds[3].finished[0], gpus=gpus)
        rounds[3] = replace(rounds[3], finished=(ended, *rounds[3].finished[1:]))
    return rounds


@pytest.mark.parametrize(("shared", "first", "second"), [(False, 0.75, 0.2), (True, 0.65, 0.1)])
def test_gpu_rounds_cost_what_each_market_says(
    tmp_path: Path, shared: bool, first: float, second: float
) -> None:
    # Rounds of 100 s. Job 0 holds 2 GPUs in round 0, which has no market, and for 15.0009 s at 2.
    # Job 1 holds a GPU at 0.5, then at 0.25; job 2 for 80 s at 0.25, alone or on that of job 1.
    rounds = priced(shared)
    start = with_settings(pools=(Pool(UNTYPED, 2, 1, 36.0),))
    write(tmp_path, start, chained(start, rounds), compact=False)
    analytics = Analytics(tmp_path)
    late = 2 * 15.0009 / 100 * 2.0
    assert column(analytics, "leases", "market_cost", "round, job_id") == [
        None,
        *(pytest.approx(cost) for cost in (first, second, late)),
    ]
    assert by_job(analytics, "market_cost") == pytest.approx([late, first, second])
    tariff = [2.3 + 0.000018, 1.6, 0.4] if shared else [2.300018, 2.0, 0.8]
    assert by_job(analytics, "cost") == pytest.approx(tariff)
    blue, red = tenants(analytics)
    assert (blue["cost"], red["cost"]) == pytest.approx((tariff[1] + tariff[2], tariff[0]))
    assert (blue["market_cost"], red["market_cost"]) == pytest.approx((first + second, late))
    (whole,) = column(analytics, "run_summary", "(cost, market_cost)")
    assert whole == pytest.approx((sum(tariff), late + first + second))
    found = analytics.recipe("costs")
    rows = [dict(zip(found[0], row, strict=True)) for row in found[1]]
    assert sum(row["market_share"] for row in rows) == pytest.approx(1.0)


def test_without_a_market_nothing_has_a_market_cost(tmp_path: Path) -> None:
    analytics = warehouse_of(tmp_path, [replace(r, solve=records()[0].solve) for r in records()])
    assert by_job(analytics, "market_cost") == [None, None, None]
    assert [row["market_cost"] for row in tenants(analytics)] == [None, None]
    assert column(analytics, "run_summary", "market_cost") == [None]


def test_a_job_is_proportional_up_to_a_rho_of_one(analytics: Analytics, tmp_path: Path) -> None:
    assert by_job(analytics, "proportional") == [False, False, True]
    assert summary(analytics)["proportionality_violations"] == 2
    exact = warehouse_of(tmp_path, records(300.0))
    assert by_job(exact, "rho")[0] == 1.0
    assert summary(exact)["proportionality_violations"] == 1


def test_a_job_is_in_time_up_to_its_deadline(analytics: Analytics, tmp_path: Path) -> None:
    assert by_job(analytics, "in_time") == [None, None, None]
    start = with_deadlines(0.0, 300.0, 129.0)
    write(tmp_path, start, chained(start, records()))
    assert by_job(Analytics(tmp_path), "in_time") == [None, True, False]  # after 300 s and 130 s
    assert column(Analytics(tmp_path), "jobs", "deadline_seconds", "job_id") == [None, 300.0, 129.0]


def test_tenants_have_their_own_figures(analytics: Analytics) -> None:
    blue, red = tenants(analytics)
    assert (blue["tenant"], blue["jobs"], blue["finished"]) == ("blue", 2, 2)
    assert (blue["mean_jct_s"], blue["jct_p50_s"], blue["mean_queueing_s"]) == (215.0, 215.0, 75.0)
    assert (blue["worst_rho"], blue["unfair_fraction"]) == (1.33333, 0.5)
    assert blue["nash_welfare"] == pytest.approx((1.33333 * 0.86667) ** (-1 / 2))
    assert (blue["proportionality_violations"], red["proportionality_violations"]) == (1, 1)
    assert (blue["preemptions"], red["preemptions"]) == (0, 1)
    assert (blue["restart_s"], red["restart_s"]) == pytest.approx((15.0, 20.0009))
    assert blue["gpu_share"] == pytest.approx(280 / 510.0018)
    assert red["gpu_share"] == pytest.approx(230.0018 / 510.0018)
    assert (blue["budget_share"], red["budget_share"]) == pytest.approx((2 / 3, 1 / 3))


def test_budget_shares_weigh_jobs_by_their_money(tmp_path: Path) -> None:
    start = with_budgets(6.0, 1.0, 1.0)
    write(tmp_path, start, chained(start, records()))
    assert [row["budget_share"] for row in tenants(Analytics(tmp_path))] == [0.25, 0.75]


def test_rounds_and_preemptions_are_counted(analytics: Analytics) -> None:
    assert summary(analytics)["rounds"] == 5
    assert summary(analytics)["preemptions"] == 1
    assert by_job(analytics, "preemptions") == [1, 0, 0]
    assert by_round(analytics, "preemptions") == [0, 1, 0, 0, 0]
