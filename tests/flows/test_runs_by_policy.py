"""Means over the runs of each policy: selection of runs, and warnings."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from tasks.record import Parameter
from tests.flows.conftest import assert_refused
from tests.flows.listed import Ask, rows_of
from tests.runs import POLICIES, ended, start_of, write

pytestmark = pytest.mark.slow


def test_which_policy_is_best_over_runs_of_different_seeds(ask: Ask, warehouse: Path) -> None:
    both = [ended(policy, seed=8) for policy in ("shockwave", "srtf")]
    for other in both:
        write(warehouse, other.start, other.rounds)
    listed = rows_of(ask, "run", "list", "--of-jobs", "job_id > 2", "--limit", 0)
    asked = ("run", "list", "--by-policy", "--of-jobs", "job_id > 2", "--limit", 1, "--where")
    said = ask(*asked, "policy IN ('shockwave', 'srtf')", "--sort", "jct_p99_s")
    assert said.err == ""
    rows = rows_of(ask, *asked, "policy IN ('shockwave', 'srtf')", "--sort", "jct_p99_s DESC")
    assert [row["policy"] for row in rows] == sorted(
        (row["policy"] for row in rows),
        key=lambda policy: -fmean(r["jct_p99_s"] for r in listed if r["policy"] == policy),
    )
    for row in rows:
        of = [found["jct_p99_s"] for found in listed if found["policy"] == row["policy"]]
        assert (row["runs"], row["jct_p99_s"]) == (2, pytest.approx(fmean(of)))
        assert row["jct_p99_s_high"] - row["jct_p99_s"] == pytest.approx(
            12.7062 * stdev(of) / 2**0.5,
            rel=1e-4,  # t(0.975, 1)
        )
    assert "(the policies ran different jobs or GPUs" in ask("run", "list", "--by-policy").err
    refused = ask("run", "list", "--by-policy", "--sort", "mean_jct")
    said = "--sort: 'mean_jct' is not a figure to sort policies by; did you mean mean_jct_s?"
    assert_refused(refused, said)


def test_means_count_identical_runs_once_whatever_they_are_called(ask: Ask) -> None:
    newer = rows_of(ask, "run", "list")[0]["run"]
    older = newer.removesuffix("2") + "1"
    for runs in ([older], [older, newer]):
        for run in runs:
            assert ask("run", "tag", run, "paper").code == 0
        (row,) = rows_of(ask, "run", "list", "--by-policy", "--tag", "paper")
        assert (row["policy"], row["runs"]) == (POLICIES[0], 1)
    (row,) = rows_of(ask, "run", "list", "--by-policy", "--tag", "paper", "--identical")
    assert row["runs"] == 2
    assert len(rows_of(ask, "run", "list", "--tag", "paper")) == 2


def test_means_say_what_is_not_alike(ask: Ask, warehouse: Path) -> None:
    def again(policy: str, **changed: Any) -> None:
        start = ended(policy).start
        settings = replace(start.header.settings, **changed)
        other = start_of(replace(start.header, settings=settings), start.workload)
        write(warehouse, other, ended(policy).rounds)

    def said() -> list[str]:
        asked = ask("run", "list", "--by-policy", "--where", "policy IN ('shockwave', 'srtf')")
        return [line.split(":")[0] for line in asked.err.splitlines()]

    for policy in ("shockwave", "srtf"):
        other = ended(policy, seed=8)
        write(warehouse, other.start, other.rounds)
    assert said() == []
    again("srtf", seed=9)
    assert said() == ["(the policies ran different jobs or GPUs, or in different proportions"]
    again("shockwave", parameters=(Parameter("lam", 7.0),))
    assert said() == ["(runs of shockwave differ in parameters, forecasts or other settings"]
