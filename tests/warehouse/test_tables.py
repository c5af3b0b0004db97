"""Job tables keep arrivals, GPUs and run times; errors name the place and the problem."""

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
from warehouse.workloads.job_table import read_job_table
from warehouse.workloads.kinds import TABLE_COLUMNS, Format

COLUMNS = {"arrival": "at", "duration": "took", "gpus": "n"}


def write(path: Path, header: str, *lines: str) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "t.csv"


def read(path: Path, columns: dict[str, str] = COLUMNS, seed: int = 0, **more: Any) -> Workload:
    return read_job_table(path, columns, rng=np.random.default_rng(seed), **more)


def refusal(path: Path, columns: dict[str, str] = COLUMNS, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(path, columns, **more)
    return str(caught.value).replace(f"{path.parent}/", "")


JOBS = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(600, 10**6), st.integers(1, 64)),
    min_size=1,
    max_size=8,
)


@given(JOBS, st.integers(0, 2**32 - 1))
def test_arrivals_gpus_and_run_times_are_kept(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[int, int, int]], seed: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "kept.csv"
    write(path, "at,took,n", *(f"{at},{took},{n}" for at, took, n in jobs))
    workload = read(path, seed=seed)
    assert workload == read(path, seed=seed)
    first = min(at for at, _, _ in jobs)
    arrivals = [spec.arrival_seconds for spec in workload.specs]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] == 0.0
    assert sorted(spec.job_id for spec in workload.specs) == list(range(len(jobs)))
    for spec, truth in zip(workload.specs, workload.truths, strict=True):
        at, took, gpus = jobs[spec.job_id]
        assert (spec.arrival_seconds, spec.demand.least) == (at - first, gpus)
        slowest = epoch_seconds(workload.profile, spec, spec.batch_size)
        assert abs(truth.isolated_seconds - took) <= slowest


def test_what_is_drawn_depends_on_the_seed(table: Path) -> None:
    write(table, "at,took,n", *["0,3600,2"] * 20)
    assert read(table, seed=1).specs != read(table, seed=2).specs


def test_start_and_end_as_dates(table: Path) -> None:
    write(
        table,
        "sub,from,to,n",
        "2020-03-01 10:00:00,2020-03-01T11:00:00,2020-03-01T12:30:00,1",
        "2020-03-01T09:30:00Z,2020-03-01 11:00:00+00:00,2020-03-01 13:00:00+02:00,2",
    )
    columns = {"arrival": "sub", "start": "from", "end": "to", "gpus": "n"}
    message = refusal(table, columns)
    assert message.startswith("t.csv:3, to: a run time of 0 s is not positive")
    workload = read(table, columns, skip_unusable=True)
    assert workload.source == "t.csv, 1 line skipped"
    assert workload.truths[0].isolated_seconds == pytest.approx(5_400, abs=60)


def test_times_in_other_units(table: Path) -> None:
    write(table, "at,took,n", "0,1.5,1", "250,0.5,2")
    units = read(table, {"arrival": "at:ms", "duration": "took:h", "gpus": "n"})
    write(table, "at,took,n", "0,5400,1", "0.25,1800,2")
    assert units.specs == read(table).specs
    assert units.truths == read(table).truths
    write(table, "at:h,from,to,n", "2026-03-02T08:00,0,90,1", "2026-03-02T09:00,10,40,2")
    named = {"arrival": "at:h:min", "start": "from:min", "end": "to:min", "gpus": "n"}
    by_dates = read(table, named)
    assert [spec.arrival_seconds for spec in by_dates.specs] == [0.0, 3600.0]
    assert by_dates.truths == units.truths
    write(table, "at,took,n", "0,5400,1")
    for role, column, said in (
        ("duration", "took:hours", "unknown unit 'hours' of duration; known are ms, s, min, h, d"),
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
    ("columns", "line", "gpus"),
    [
        ({"gpus": "n", "instances": "i"}, "8,3", 24),
        ({"gpus": "n", "instances": "i"}, "8.0,3.0", 24),
        ({"gpu_percent": "n"}, "100,1", 1),
        ({"gpu_percent": "n"}, "25,1", 1),
        ({"gpu_percent": "n"}, "101,1", 2),
        ({"gpu_percent": "n", "instances": "i"}, "25,10", 3),
        ({"gpu_percent": "n", "instances": "i"}, "10.0,30", 3),
    ],
)
def test_ways_to_count_gpus(table: Path, columns: dict[str, str], line: str, gpus: int) -> None:
    write(table, "at,took,n,i", f"0,600,{line}")
    (spec,) = read(table, {"arrival": "at", "duration": "took"} | columns).specs
    assert spec.demand.least == gpus


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
    models = [spec.model for spec in specs]
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
    write(table, "at,took,n,what", "0,600,1,two words")
    assert refusal(table, COLUMNS | {"name": "what"}).startswith(
        "t.csv:2, what: 'two words' is not a name; use letters"
    )


def test_only_some_lines(table: Path) -> None:
    write(table, "at,took,n,vc", "5,600,1,a", "0,x,1,b", "7,600,2,a")
    workload = read(table, only={"vc": "a"})
    assert workload.source == "t.csv, vc=a"
    assert [(s.job_id, s.arrival_seconds) for s in workload.specs] == [(0, 0.0), (1, 2.0)]


def test_modes_as_asked(table: Path) -> None:
    write(table, "at,took,n", *["0,600,1"] * 10)
    modes = [spec.mode for spec in read(table, modes={Mode.STATIC: 3, Mode.GNS: 7}).specs]
    assert modes.count(Mode.STATIC) == 3
    assert modes.count(Mode.GNS) == 7


UNUSABLE = [
    ("0,0,1", "took: a run time of 0 s is not positive"),
    ("0,-5,1", "took: a run time of -5 s is not positive"),
    ("0,,1", "took: holds no value"),
    ("None,5,1", "at: holds no value"),
    ("0,5,0", "n: the job has no GPUs"),
    ("0,5,-2", "n: the job has no GPUs"),
    ("0,5,nan", "n: holds no value"),
]


@pytest.mark.parametrize(("line", "problem"), UNUSABLE)
def test_a_line_that_can_be_no_job(table: Path, line: str, problem: str) -> None:
    write(table, "at,took,n", "4,600,2", line)
    assert refusal(table) == f"t.csv:3, {problem}; leave the line out or skip unusable ones"
    workload = read(table, skip_unusable=True)
    assert (len(workload.specs), workload.source) == (1, "t.csv, 1 line skipped")


DATE = "write it as a number, or as 2026-03-02T08:00:00+01:00"
DIGITS = "write digits only, with a point before decimals, as in 5400.5"
WRONG = [
    ("x,5,1", f"at: 'x' is neither a number nor an ISO date and time; {DATE}"),
    ('"1,5",5,1', f"at: '1,5' is neither a number nor an ISO date and time; {DIGITS}"),
    ('0,"5,400",1', f"took: '5,400' is not a number; {DIGITS}"),
    ("1e30,5,1", "at: 1e30 is not a time; mend the field"),
    ("inf,5,1", "at: inf is not a time; mend the field"),
    ("0,x,1", "took: 'x' is not a number; mend the field"),
    ("0,inf,1", "took: inf is not a run time; mend the field"),
    ("0,2e9,1", "took: 2e+09 s are beyond all bounds; mend the field"),
    ("0,5,x", "n: 'x' is not a number; mend the field"),
    ("0,5,1.5", "n: '1.5' is not a whole number; mend the field"),
    ("0,5,inf", "n: 'inf' is not a whole number; mend the field"),
    ("0,5,1e30", "n: 1e+30 is beyond all bounds; mend the field"),
    ("0,5,1,inf", "share: inf is not a share of a GPU; mend the field"),
]


@pytest.mark.parametrize(("line", "message"), WRONG)
def test_a_wrong_field_is_never_skipped(table: Path, line: str, message: str) -> None:
    columns = COLUMNS
    if line.endswith(",inf") and line.count(",") == 3:
        columns = {"arrival": "at", "duration": "took", "gpu_percent": "share"}
    write(table, "at,took,n" + ",share" * (columns is not COLUMNS), line)
    assert refusal(table, columns, skip_unusable=True) == f"t.csv:2, {message}"


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
        (COLUMNS | {"colour": "n"}, "unknown 'colour'; known are arrival, duration, start, end, "),
    ],
)
def test_roles_that_do_not_make_a_job(table: Path, columns: dict[str, str], message: str) -> None:
    assert refusal(table, columns).startswith(f"columns: {message}")


def test_a_column_that_is_not_there(table: Path) -> None:
    write(table, "at,took", "0,5")
    assert refusal(table) == "t.csv:1: missing column 'n'; the header has at, took"
    write(table, "at;took;n", "0;5;1")
    assert refusal(table) == "t.csv:1: columns are separated by semicolons; separate them by commas"
    write(table, "at,took,n", "0,5,1")
    assert refusal(table, only={"vc": "a"}) == (
        "t.csv:1: missing column 'vc'; the header has at, took, n"
    )


def test_no_lines_left(table: Path) -> None:
    write(table, "at,took,n", "0,0,1")
    assert refusal(table, skip_unusable=True) == (
        "t.csv: holds no jobs to read; give a table with at least one"
    )
    assert refusal(table, only={"n": "9", "at": "0"}) == (
        "only: no line of t.csv has n=9, at=0; give values that are there"
    )


def test_a_gang_larger_than_the_cluster_is_named_with_its_line(table: Path) -> None:
    write(table, "at,took,n", "0,60,1", "0,60,9")
    workload = read_job_table(
        table, {"arrival": "at", "duration": "took", "gpus": "n"}, rng=np.random.default_rng(0)
    )
    with pytest.raises(InputError, match=r"t\.csv:3, job 1: needs 9 GPUs, and the cluster has 8"):
        workload.check_fits(Inventory(make_pool(8, gpu_type=UNTYPED)))


def test_quoted_fields(table: Path) -> None:
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["at", "took", "n", "who"], [0, 600, 1, "Doe, Jane"]])
    assert read(table, COLUMNS | {"tenant": "who"}).specs[0].tenant == "Doe, Jane"


def test_the_published_philly_table(table: Path) -> None:
    lines = ["1507000100,7200,4,28800,one", "1507000000,3600,3,10800,two", "1507000160,90,0,0,one"]
    write(table, "timestamp,duration,num_gpus,gpu_time,cluster", *lines)
    workload = read(table, dict(TABLE_COLUMNS[Format.PHILLY]), skip_unusable=True)
    found = [(spec.job_id, spec.arrival_seconds, spec.demand.least) for spec in workload.specs]
    assert found == [(1, 0.0, 3), (0, 100.0, 4)]
