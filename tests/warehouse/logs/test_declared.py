"""Declared tables keep arrivals, GPUs and run times; errors name the place and the problem."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import InputError
from predictor.job import Mode, find_named
from predictor.throughput import UNTYPED, epoch_seconds
from solver.inventory import Inventory
from tasks.record import make_pool
from tasks.sources import Workload
from warehouse.workloads.families import FAMILIES
from warehouse.workloads.imported import draw_workload, make_workload
from warehouse.workloads.logs.declared import DeclaredTable
from warehouse.workloads.logs.log import ReadOptions, read_log
from warehouse.workloads.mix import MODE_WEIGHTS

COLUMNS = {"arrival": "at", "duration": "took", "gpus": "n"}


def write(path: Path, header: str, *lines: str) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "t.csv"


def read(
    path: Path,
    columns: dict[str, str] = COLUMNS,
    seed: int = 0,
    modes: dict[Mode, float] | None = None,
    **options: Any,
) -> Workload:
    """Read a table; with `modes`, models and regimes are drawn."""
    log = read_log(DeclaredTable(columns), path, ReadOptions(**options))
    if modes is None:
        return replace(make_workload(log.source, log.jobs), left_out=log.left_out)
    return draw_workload(log.source, log.jobs, np.random.default_rng(seed), modes)


def refusal(path: Path, columns: dict[str, str] = COLUMNS, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(path, columns, **more)
    return str(caught.value).replace(f"{path.parent}/", "")


JOBS = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(600, 10**6), st.integers(1, 64)),
    min_size=1,
    max_size=8,
)


@given(JOBS, st.integers(0, 2**32 - 1), st.booleans())
def test_arrivals_gpus_and_run_times_are_kept(
    tmp_path_factory: pytest.TempPathFactory,
    jobs: list[tuple[int, int, int]],
    seed: int,
    drawn: bool,
) -> None:
    path = tmp_path_factory.getbasetemp() / "kept.csv"
    write(path, "at,took,n", *(f"{at},{took},{n}" for at, took, n in jobs))
    modes = dict(MODE_WEIGHTS) if drawn else None
    workload = read(path, seed=seed, modes=modes)
    assert workload == read(path, seed=seed, modes=modes)
    first = min(at for at, _, _ in jobs)
    arrivals = [spec.arrival_seconds for spec in workload.specs]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] == 0.0
    assert sorted(spec.job_id for spec in workload.specs) == list(range(len(jobs)))
    for spec, truth in zip(workload.specs, workload.truths, strict=True):
        at, took, gpus = jobs[spec.job_id]
        assert (spec.arrival_seconds, spec.demand.least) == (at - first, gpus)
        slowest = epoch_seconds(workload.profile, spec, spec.batch_size) if drawn else 0.0
        assert abs(truth.isolated_seconds - took) <= slowest
        assert drawn or spec.mode is Mode.STATIC


def test_what_is_drawn_depends_on_the_seed(table: Path) -> None:
    write(table, "at,took,n", *["0,3600,2"] * 20)
    modes = dict(MODE_WEIGHTS)
    assert read(table, seed=1, modes=modes).specs != read(table, seed=2, modes=modes).specs
    assert read(table, seed=1).specs == read(table, seed=2).specs


def test_start_and_end_as_dates(table: Path) -> None:
    write(
        table,
        "sub,from,to,n",
        "2020-03-01 10:00:00,2020-03-01T11:00:00,2020-03-01T12:30:00,1",
        "2020-03-01T09:30:00Z,2020-03-01 11:00:00+00:00,2020-03-01 13:00:00+02:00,2",
    )
    columns = {"arrival": "sub", "start": "from", "end": "to", "gpus": "n"}
    workload = read(table, columns)
    assert workload.source == "t.csv, 1 line left out"
    assert workload.left_out == {"ran for 0 s": 1}
    assert workload.truths[0].isolated_seconds == 5_400


def test_times_in_other_units(table: Path) -> None:
    write(table, "at,took,n", "0,1.5,1", "250,0.5,2")
    units = read(table, {"arrival": "at:ms", "duration": "took:h", "gpus": "n"})
    write(table, "at,took,n", "0,5400,1", "0.25,1800,2")
    assert units.specs == read(table).specs
    assert units.truths == read(table).truths
    write(table, "at:h,from,to,n", "0,0,90,1", "60,70,100,2")
    named = {"arrival": "at:h:min", "start": "from:min", "end": "to:min", "gpus": "n"}
    by_ends = read(table, named)
    assert [spec.arrival_seconds for spec in by_ends.specs] == [0.0, 3600.0]
    assert by_ends.truths == units.truths
    write(table, "at,took,n", "0,5400,1")
    for role, column, said in (
        (
            "duration",
            "took:hours",
            "unknown unit 'hours' of duration; choose from ms, s, min, h, d",
        ),
        ("gpus", "n:h", "gpus has the unit 'h', and only arrival, duration, start, end have"),
    ):
        assert refusal(table, COLUMNS | {role: column}).startswith(f"columns: {said}")


@pytest.mark.parametrize(
    ("dates", "gap"),
    [
        (("2026-03-02T08:00+01:00", "2026-03-02T07:01Z"), 60.0),
        (("2026-03-02T07:00", "2026-03-02T07:01Z"), 60.0),
        (("2020-01-01", "2020-01-02T00:00:01"), 86_401.0),
    ],
)
def test_gaps_between_dates_are_seconds(table: Path, dates: tuple[str, str], gap: float) -> None:
    write(table, "at,took,n", *(f"{date},60,1" for date in dates))
    assert [spec.arrival_seconds for spec in read(table).specs] == [0.0, gap]


@pytest.mark.parametrize(
    ("columns", "line", "gpus", "slots"),
    [
        ({"gpus": "n", "instances": "i"}, "8,3", 24, 1),
        ({"gpus": "n", "instances": "i"}, "8.0,3.0", 24, 1),
        ({"gpus": "n"}, "0.5,1", 0.5, 2),
        ({"gpu_percent": "n"}, "100,1", 1, 1),
        ({"gpu_percent": "n"}, "25,1", 0.25, 4),
        ({"gpu_percent": "n"}, "101,1", 1.01, 100),
        ({"gpu_percent": "n", "instances": "i"}, "25,10", 2.5, 2),
        ({"gpu_percent": "n", "instances": "i"}, "10.0,30", 3, 1),
    ],
)
def test_ways_to_count_gpus(
    table: Path, columns: dict[str, str], line: str, gpus: float, slots: int
) -> None:
    write(table, "at,took,n,i", f"0,600,{line}")
    workload = read(table, {"arrival": "at", "duration": "took"} | columns)
    assert workload.slots == slots
    assert workload.specs[0].demand.least == round(gpus * slots)


def test_tasks_of_a_name_and_an_arrival_are_one_gang(table: Path) -> None:
    write(table, "at,took,n,i,job", "0,600,25,2,a", "0,600,0,1,a", "0,600,50,1,a", "9,600,100,1,a")
    columns = {"arrival": "at", "duration": "took", "gpu_percent": "n", "name": "job"}
    workload = read(table, columns | {"instances": "i"})
    assert [spec.demand.least for spec in workload.specs] == [1, 1]
    assert len(read(table, columns).specs) == 3


def test_a_gang_runs_as_long_as_its_tasks(table: Path) -> None:
    times = {"arrival": "at", "start": "from", "end": "to"}
    roles = {"gpus": "n", "instances": "i", "name": "job"}
    write(table, "at,from,to,n,i,job", "0,5,100,1,1,a", "0,9,900,1,2,a", "0,0,999,0,1,a")
    (job,) = read(table, times | roles).truths
    assert job.isolated_seconds == 895
    write(table, "at,took,n,i,job", "0,100,1,1,a", "0,900,1,2,a", "0,999,0,1,a")
    (job,) = read(table, {"arrival": "at", "duration": "took"} | roles).truths
    assert job.isolated_seconds == 900


def test_a_job_that_ends_before_its_start(table: Path) -> None:
    write(table, "at,from,to,n", "0,50,20,1", "0,50,80,1")
    roles = {"arrival": "at", "start": "from", "end": "to", "gpus": "n"}
    log = read_log(DeclaredTable(roles), table, ReadOptions())
    assert (len(log.jobs), log.left_out) == (1, {"ended before its start": 1})


def test_tenants_and_models(table: Path) -> None:
    write(
        table,
        "at,took,n,who,what",
        *(f"{i},600,1,{who},bert" for i, who in enumerate(("ann", "", "bob", "NaN"))),
        "9,600,1,ann,translator",
        "10,600,1,ann,",
    )
    specs = read(table, COLUMNS | {"tenant": "who", "model": "what"}).specs
    assert [spec.tenant for spec in specs] == ["ann", "default", "bob", "default", "ann", "ann"]
    assert [spec.model for spec in specs] == ["bert"] * 4 + ["translator", "job"]
    drawn = read(table, COLUMNS | {"model": "what"}, modes=dict(MODE_WEIGHTS)).specs
    models = [spec.model for spec in drawn]
    assert len(set(models[:4])) == 1
    assert models[4] == "translator"
    assert models[5] in {family.name for family in FAMILIES}


def test_names_of_jobs(table: Path) -> None:
    write(table, "at,took,n,what", "0,600,1,nightly", "1,600,1,", "2,600,1,4711")
    specs = read(table, COLUMNS | {"name": "what"}).specs
    assert [spec.name for spec in specs] == ["nightly", "", "4711"]
    unnamed = [replace(spec, name="") for spec in specs]
    assert unnamed == [*read(table).specs]
    assert [job.job_id for job in find_named("4711", specs)] == [2]
    assert [job.job_id for job in find_named("1", specs)] == [1]
    write(table, "at,took,n,what", "0,600,1,two 词 (v=2)", f"1,600,1,{'x' * 200}", '2,6,1,"a\nb"')
    names = [spec.name for spec in read(table, COLUMNS | {"name": "what"}).specs]
    assert names == ["two 词 (v=2)", "x" * 100, "a b"]


def test_only_some_lines(table: Path) -> None:
    write(table, "at,took,n,vc", "5,600,1,a", "0,x,1,b", "7,600,2,a")
    workload = read(table, only={"vc": "a"})
    assert workload.source == "t.csv, vc=a"
    assert [(s.job_id, s.arrival_seconds) for s in workload.specs] == [(0, 0.0), (1, 2.0)]


def test_modes_as_asked(table: Path) -> None:
    write(table, "at,took,n", *["0,600,1"] * 10)
    modes = [spec.mode for spec in read(table, modes={Mode.STATIC: 3.0, Mode.GNS: 7.0}).specs]
    assert modes.count(Mode.STATIC) == 3
    assert modes.count(Mode.GNS) == 7


UNUSABLE = [
    ("0,0,1", "ran for 0 s"),
    ("0,-5,1", "ran for 0 s"),
    ("0,,1", "without a run time"),
    ("None,5,1", "without a submission time"),
    ("0,5,0", "without GPUs"),
    ("0,5,-2", "without GPUs"),
    ("0,5,nan", "without GPUs"),
]


@pytest.mark.parametrize(("line", "reason"), UNUSABLE)
def test_a_line_that_can_be_no_job(table: Path, line: str, reason: str) -> None:
    write(table, "at,took,n", "4,600,2", line)
    workload = read(table)
    assert (len(workload.specs), workload.source) == (1, "t.csv, 1 line left out")
    assert workload.left_out == {reason: 1}


TIME = "is neither a number of seconds, 0 or more, nor an ISO date and time"
WRONG = [
    ("x,5,1", f"at: 'x' {TIME}"),
    ('"1,5",5,1', f"at: '1,5' {TIME}"),
    ("-5,5,1", f"at: '-5' {TIME}"),
    ("1e30,5,1", f"at: '1e30' {TIME}"),
    ("inf,5,1", f"at: 'inf' {TIME}"),
    ('0,"5,400",1', "took: '5,400' is not a number in range"),
    ("0,x,1", "took: 'x' is not a number in range"),
    ("0,inf,1", "took: 'inf' is not a number in range"),
    ("0,2e9,1", "took: a run time of 2e+09 s is too large"),
    ("0,5,x", "n: 'x' is not a number in range"),
    ("0,5,inf", "n: 'inf' is not a number in range"),
    ("0,5,1e30", "n: '1e30' is not a number in range"),
    ("0,5", "does not have the 3 fields of the header"),
]


@pytest.mark.parametrize(("line", "message"), WRONG)
def test_an_unreadable_field_is_refused_unless_it_is_to_be_skipped(
    table: Path, line: str, message: str
) -> None:
    write(table, "at,took,n", line, "4,600,2")
    assert refusal(table).startswith(
        f"t.csv:2{',' if ': ' in message else ':'} {message}; correct the "
    )
    workload = read(table, skip_unreadable=True)
    assert len(workload.specs) == 1
    assert workload.left_out == {"unreadable": 1}


def test_an_arrival_beyond_all_bounds(table: Path) -> None:
    write(table, "at,took,n", "0,600,1", "1e15,600,1")
    assert refusal(table).startswith("t.csv:3, arrival: is 1e+15 s after most arrivals")


def test_an_arrival_long_before_all_others(table: Path) -> None:
    write(table, "at,took,n", "1700000000,600,1", "7,600,1", "1700000009,600,1")
    assert refusal(table).startswith("t.csv:3, arrival: is 1.7e+09 s before most arrivals")


def test_a_start_before_the_submission(table: Path) -> None:
    write(table, "at,from,to,n", "100,50,200,1", "100,150,200,1")
    columns = {"arrival": "at", "start": "from", "end": "to", "gpus": "n"}
    assert read(table, columns).left_out == {"started before its submission": 1}


EXAMPLE = "give for instance arrival=submit_time,duration=run_time,gpus=n"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, f"no column for the arrival; {EXAMPLE}"),
        ({"arrival": "at", "gpus": "n"}, "needed is either duration, or start and end; "),
        (COLUMNS | {"end": "at"}, "needed is either duration, or start and end; "),
        ({"arrival": "at", "start": "at", "gpus": "n"}, "start and end go together; "),
        ({"arrival": "at", "duration": "took"}, "needed is either gpus or gpu_percent; "),
        (COLUMNS | {"gpu_percent": "n"}, "needed is either gpus or gpu_percent; "),
        (
            COLUMNS | {"colour": "n"},
            "unknown 'colour'; choose from arrival, duration, start, end, ",
        ),
    ],
)
def test_roles_that_do_not_make_a_job(table: Path, columns: dict[str, str], message: str) -> None:
    assert refusal(table, columns).startswith(f"columns: {message}")


def test_a_column_that_is_not_there(table: Path) -> None:
    write(table, "at,took", "0,5")
    assert refusal(table) == "t.csv:1: missing column 'n'; the header has at, took"
    write(table, "at,took,n", "0,5,1")
    assert refusal(table, only={"vc": "a"}) == (
        "t.csv:1: missing column 'vc'; the header has at, took, n"
    )
    write(table, "at,at,took,n", "0,5,1")
    assert refusal(table) == "t.csv:1: column 'at' is there twice; rename one of them"


def test_no_lines_left(table: Path) -> None:
    write(table, "at,took,n", "0,0,1")
    assert refusal(table).startswith("t.csv: holds no jobs to read (1 ran for 0 s); give a log ")
    assert refusal(table, only={"n": "9", "at": "0"}) == (
        "only: no line of t.csv has n=9, at=0; give values that are there"
    )


def test_a_gang_larger_than_the_cluster_is_named_with_its_line(table: Path) -> None:
    write(table, "at,took,n", "0,60,1", "0,60,9")
    workload = read(table)
    with pytest.raises(InputError, match=r"t\.csv:3, job 1: needs 9 GPUs, but the cluster has 8"):
        workload.check_fits(Inventory(make_pool(8, gpu_type=UNTYPED)))


def test_quoted_fields(table: Path) -> None:
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["at", "took", "n", "who"], [0, 600, 1, "Doe, Jane"]])
    assert read(table, COLUMNS | {"tenant": "who"}).specs[0].tenant == "Doe, Jane"
