"""Conditions that select runs and jobs: invalid ones, and those without a match."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.flows.conftest import assert_refused
from tests.flows.listed import Ask, named, rows_of
from tests.warehouse.by_hand import CELL, write_cells

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--where", "makespan < 3"), "--where: there is no column 'makespan'; did you mean makes"),
        (("--sort", "p99_jct"), "--sort: there is no column 'p99_jct'; did you mean jct_p99_s?"),
        (
            ("--of-jobs", "gpus = 4"),
            "--of-jobs: there is no column 'gpus'; did you mean scale_factor?",
        ),
        (("--where", "1); DROP TABLE x --"), "--where: '1); DROP TABLE x --' is not an expression"),
        (("--where", "sed = 1"), "--where: there is no column 'sed'; did you mean seed?"),
        (("--where", "COPY"), "--where: "),
        (("--where", " "), "--where: is empty; give one such as makespan_s"),
        (("--of-jobs", ""), "--of-jobs: is empty; give one such as scale_factor"),
        (
            ("--of-jobs", "job_id = 4) OR (1=1"),
            "--of-jobs: 'job_id = 4) OR (1=1' is not an expression",
        ),
        (("--where", "true) OR (true"), "--where: 'true) OR (true' is not an expression"),
        (("--where", "true LIMIT 1"), "--where: 'true LIMIT 1' is not an expression"),
        (("--where", "gpus, jobs"), "--where: 'gpus, jobs' is not an expression"),
        (("--where", "true /* but"), "--where: 'true /* but' is not an expression"),
        (("--sort", "jobs LIMIT 1"), "--sort: 'jobs LIMIT 1' is not an expression"),
        (("--by-policy", "--where", "a; b"), "--where: 'a; b' is not an expression"),
        (("--by-policy", "--of-jobs", "scale_factor = 'x'"), "--of-jobs: "),
        (("--by-policy", "--sort", "bogus", "--where", "false"), "--sort: 'bogus' is not a figure"),
        (("--tag", "nowhere", "--sort", "bogus"), "--sort: there is no column 'bogus'"),
    ],
)
def test_a_wrong_condition_names_its_option(ask: Ask, options: tuple[str, str], said: str) -> None:
    assert_refused(ask("run", "list", *options), f"error: {said}")


def test_a_condition_is_read_as_sql(ask: Ask) -> None:
    runs = rows_of(ask, "run", "list")
    asked = ("--where", "policy <> ');--' -- each", "--of-jobs", "job_id >= 0 -- (")
    assert len(rows_of(ask, "run", "list", *asked, "--sort", "gpus, policy DESC -- ,")) == len(runs)


def test_what_no_run_has_is_named(ask: Ask) -> None:
    ask("run", "tag", named(ask, "srtf"), "paper")
    for options, said in (
        (("--policy", "strf"), "(no run has the policy 'strf'; did you mean srtf? choose from "),
        (
            ("--tag", "papers"),
            "(no run has the tag 'papers'; did you mean paper? choose from paper)",
        ),
    ):
        for more in ((), ("--by-policy",)):
            ran = ask("run", "list", *options, *more)
            first, line = ran.err.splitlines()
            assert (ran.code, ran.out, first[:7]) == (0, "", "(no run")
            assert line.startswith(said)
            ran = ask("run", "list", *options, *more, "--json")
            assert (ran.code, ran.out, ran.err.splitlines()) == (0, "", [line])
    assert ask("run", "list", "--policy", "themis", "--tag", "paper").err == "(no run matches)\n"


def test_a_campaign_says_that_no_job_is_meant(ask: Ask, warehouse: Path) -> None:
    run = rows_of(ask, "run", "list")[0]["run"]
    write_cells(warehouse, replace(CELL, campaign="one-123456", run=run))
    one = ("campaign", "show", "one-123456", "--of-jobs")
    ran = ask(*one, "scale_factor = 64")
    assert (ran.code, ran.out, ran.err) == (0, "", "(no job matches)\n")
    (row,) = rows_of(ask, *one, "scale_factor = 64")
    assert (row["jobs"], row["mean_jct_s"]) == (0, None)
    assert ask(*one, "job_id = 1").err == ""
    assert ask(*one, "").err.startswith("error: --of-jobs: is empty; ")
