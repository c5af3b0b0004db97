"""Workloads of measured applications from the command line."""

from pathlib import Path

import pytest

from tests.applications import write_applications, write_jobs
from tests.flows.conftest import Command, assert_refused


def asked(folder: Path) -> tuple[str | Path, ...]:
    return (
        *("--trace", write_jobs(folder, "a,0,toy,1,40")),
        *("--applications", write_applications(folder / "apps"), "--pools", "t4:2x2"),
    )


def test_figures_count_the_gpus_that_a_job_held(here: Command, tmp_path: Path) -> None:
    ran = here(
        *("simulate", *asked(tmp_path), "--policy", "optimus", "--fidelity", "reference"),
        *("--round-seconds", 60, "--restart-seconds", 30, "--warehouse", tmp_path, "--json"),
    )
    (row,) = ran.rows
    # A restart, then epochs of 66 and 49 s on four GPUs; it was tuned for one.
    assert row["mean_jct_s"] == 30.0 + 66.0 + 49.0
    assert row["gpu_hours"] == pytest.approx(4 * 145.0 / 3600)
    assert row["utilization"] == pytest.approx((66.0 + 49.0) / 180.0)


def test_it_says_how_many_jobs_are_tuned_to_fewer_gpus(here: Command, tmp_path: Path) -> None:
    source = asked(tmp_path)
    trace = write_jobs(tmp_path, "a,0,toy,8,40", "b,0,toy,8,40", "c,0,toy,4,40")
    given = *source[:1], trace, *source[2:], "--warehouse", tmp_path, "--round-seconds", 60
    told = "2 jobs were tuned to more GPUs than the cluster has; they are tuned to all of its GPUs"
    assert told in here("simulate", *given, "--policy", "srtf").out
    assert told in here("compare", *given, "--policies", "srtf,fifo").out


def test_what_cannot_be_done_with_them_is_refused(here: Command, tmp_path: Path) -> None:
    faithful = here("simulate", *asked(tmp_path), "--runtime", "faithful", "--warehouse", tmp_path)
    assert_refused(faithful, "--runtime", "faithful does not run measured applications")
    written = here("workload", "generate", tmp_path / "out", *asked(tmp_path))
    assert_refused(written, "--applications", "measured applications have no throughputs to write")


def test_a_fork_does_not_begin_to_choose_batch_sizes(here: Command, tmp_path: Path) -> None:
    store = "--warehouse", tmp_path / "runs"
    rounds = "--round-seconds", 60, "--restart-seconds", 30
    ran = here("simulate", *asked(tmp_path), "--policy", "optimus", *rounds, *store, "--json")
    name = ran.rows[0]["run"]
    forked = here("run", "whatif", name, "--round", 1, "--policy", "pollux", *store)
    assert_refused(forked, "--policy", "jobs choose their batch sizes under one of the two")
    anew = here("run", "whatif", name, "--round", 0, "--policy", "pollux", *store)
    assert anew.code == 0
