"""A source opens every format, and refuses options without effect on it."""

from pathlib import Path
from typing import Any

import pytest

from flows.runs.workload_source import Source
from predictor.errors import InputError
from predictor.job import Mode
from warehouse.workloads.kinds import Arrivals, Format
from warehouse.workloads.mix import Mix


def refusal(**parameters: Any) -> str:
    with pytest.raises(InputError) as caught:
        Source(**parameters).open()
    return str(caught.value)


def test_the_defaults_are_those_of_the_generator() -> None:
    assert Source(jobs=3).open() == Source(jobs=3, mean_interarrival_seconds=90.0).open()
    assert Source(jobs=3).open().source == "generated: 3 jobs, poisson, 90 s apart"
    assert Mix().changes == ""


def test_knobs_of_the_generator() -> None:
    workload = Source(
        jobs=10,
        contention_factor=2.0,
        shortest_seconds=600.0,
        longest_seconds=600.0,
        scale_factors="4=1",
        modes="static=1, gns=0",
    ).open(gpus=12)
    assert workload.source == (
        "generated: 10 jobs, poisson, 100 s apart, 600 to 600 s long, scale factors 4=1, "
        "modes static=1 gns=0"
    )
    assert {spec.mode for spec in workload.specs} == {Mode.STATIC}


def test_a_tiresias_list(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,num_gpu,submit_time,model_name,duration\n4,2,0,vgg,60\n")
    (spec,) = Source(trace=path, format=Format.TIRESIAS).open().specs
    assert (spec.job_id, spec.model) == (4, "vgg")


@pytest.mark.parametrize(
    ("format_", "header", "columns"),
    [
        (Format.PHILLY, "timestamp,duration,num_gpus,gpu_time,cluster", ""),
        (Format.TABLE, "at,took,n,x,cluster", "arrival=at, duration=took, gpus=n"),
    ],
)
def test_tables_follow_seed_modes_and_choice_of_lines(
    tmp_path: Path, format_: Format, header: str, columns: str
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(f"{header}\n5,600,2,0,a=1;b\n5,600,2,0,b\n5,0,2,0,a=1;b\n")
    source = Source(
        trace=path,
        format=format_,
        columns=columns,
        only="cluster=a=1;b",
        skip_unusable=True,
        modes="static=1",
        seed=3,
    )
    workload = source.open()
    assert workload == source.open()
    assert workload.source == "jobs.csv, cluster=a=1;b, 1 line left out"
    assert [spec.mode for spec in workload.specs] == [Mode.STATIC]


TRACE = {"trace": Path("a.csv")}
PHILLY, TIRESIAS, TABLE = (
    TRACE | {"format": format_} for format_ in (Format.PHILLY, Format.TIRESIAS, Format.TABLE)
)
AT_ONCE = {"arrivals": Arrivals.AT_ONCE}
OF_A_TRACE = "belongs to a trace; give the trace as well"
USELESS = "has no effect {}; leave it out"
NO_PAIR = "is not of the form NAME=VALUE; separate by commas"


@pytest.mark.parametrize(
    ("given", "field", "value", "problem"),
    [
        ({}, "format", Format.PHILLY, OF_A_TRACE),
        ({}, "columns", "arrival=x", OF_A_TRACE),
        ({}, "skip_unusable", True, OF_A_TRACE),
        (TRACE, "contention_factor", 1.0, USELESS.format("on a public trace")),
        (TRACE, "jobs", 9, USELESS.format("on a public trace")),
        (TRACE, "seed", 9, USELESS.format("on a public trace")),
        (PHILLY, "arrivals", Arrivals.AT_ONCE, USELESS.format("on a philly trace")),
        (TIRESIAS, "profile", TRACE["trace"], USELESS.format("on a tiresias trace")),
        (TIRESIAS, "modes", "static=1", USELESS.format("on a tiresias trace")),
        (PHILLY, "columns", "arrival=x", USELESS.format("on a philly trace")),
        (TABLE, "scale_factors", "1=1", USELESS.format("on a table trace")),
        (TABLE, "columns", "arrival", f"'arrival' {NO_PAIR}"),
        (TABLE, "columns", "gpus=a,gpus=b", "'gpus' is given twice; leave one out"),
        (TABLE, "only", "=x", f"'=x' {NO_PAIR}"),
        (
            {"mean_interarrival_seconds": 5.0},
            *(
                "contention_factor",
                1.0,
                "cannot be combined with a mean gap; give only one of them",
            ),
        ),
        (AT_ONCE, "contention_factor", 1.0, USELESS.format("if all jobs arrive at once")),
        (AT_ONCE, "mean_interarrival_seconds", 1.0, USELESS.format("if all jobs arrive at once")),
        (
            {},
            *("modes", "magic=1"),
            "'magic' is not an adaptation mode; choose from static, accordion, gns",
        ),
        ({}, "modes", "gns=much", "'gns=much' has a weight that is not a number; give numbers"),
        ({}, "modes", "", "nothing has a weight above 0; give one of them a weight"),
        (
            {},
            *("scale_factors", "one=1"),
            "'one=1' is not like 1=0.5,8=0.5; give whole numbers of GPUs",
        ),
        ({}, "seed", -1, "-1 is out of range; give at least 0"),
    ],
)
def test_an_option_that_makes_no_sense(
    given: dict[str, Any], field: str, value: object, problem: str
) -> None:
    assert refusal(**given, **{field: value}) == f"{field}: {problem}"


def test_a_contention_factor_needs_the_cluster() -> None:
    assert refusal(contention_factor=1.0) == (
        "gpus: is missing; give the number of GPUs, on which a contention factor depends"
    )
