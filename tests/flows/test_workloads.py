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
    assert workload.source == "jobs.csv, cluster=a=1;b, 1 line skipped"
    assert [spec.mode for spec in workload.specs] == [Mode.STATIC]


TRACE = Path("a.csv")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"format": Format.PHILLY},
            "format: belongs to a trace; give the trace as well",
        ),
        ({"columns": "arrival=x"}, "columns: belongs to a trace; give the trace as well"),
        ({"skip_unusable": True}, "skip_unusable: belongs to a trace; give the trace as well"),
        (
            {"trace": TRACE, "contention_factor": 1.0},
            "contention_factor: has no effect on a public trace; leave it out",
        ),
        ({"trace": TRACE, "jobs": 9}, "jobs: has no effect on a public trace; leave it out"),
        ({"trace": TRACE, "seed": 9}, "seed: has no effect on a public trace; leave it out"),
        (
            {"trace": TRACE, "format": Format.PHILLY, "arrivals": Arrivals.AT_ONCE},
            "arrivals: has no effect on a philly trace; leave it out",
        ),
        (
            {"trace": TRACE, "format": Format.TIRESIAS, "profile": TRACE},
            "profile: has no effect on a tiresias trace; leave it out",
        ),
        (
            {"trace": TRACE, "format": Format.TIRESIAS, "modes": "static=1"},
            "modes: has no effect on a tiresias trace; leave it out",
        ),
        (
            {"trace": TRACE, "format": Format.PHILLY, "columns": "arrival=x"},
            "columns: has no effect on a philly trace; leave it out",
        ),
        (
            {"trace": TRACE, "format": Format.TABLE, "scale_factors": "1=1"},
            "scale_factors: has no effect on a table trace; leave it out",
        ),
        (
            {"trace": TRACE, "format": Format.TABLE, "columns": "arrival"},
            "columns: 'arrival' is not of the form NAME=VALUE; separate by commas",
        ),
        (
            {"trace": TRACE, "format": Format.TABLE, "columns": "gpus=a,gpus=b"},
            "columns: 'gpus' is there twice; leave one out",
        ),
        (
            {"trace": TRACE, "format": Format.TABLE, "only": "=x"},
            "only: '=x' is not of the form NAME=VALUE; separate by commas",
        ),
        (
            {"contention_factor": 1.0},
            "gpus: missing; a contention factor depends on the cluster: give its GPUs",
        ),
        (
            {"contention_factor": 1.0, "mean_interarrival_seconds": 5.0},
            "contention_factor: replaces the mean gap; give only one of the two",
        ),
        (
            {"arrivals": Arrivals.AT_ONCE, "contention_factor": 1.0},
            "contention_factor: has no effect if all jobs arrive at once; leave it out",
        ),
        (
            {"arrivals": Arrivals.AT_ONCE, "mean_interarrival_seconds": 1.0},
            "mean_interarrival_seconds: has no effect if all jobs arrive at once; leave it out",
        ),
        (
            {"modes": "magic=1"},
            "modes: 'magic' is not an adaptation mode; known are static, accordion, gns",
        ),
        ({"modes": "gns=much"}, "modes: 'gns=much' has a weight that is no number; give numbers"),
        ({"modes": ""}, "modes: nothing has a weight above 0; give one of them a weight"),
        (
            {"scale_factors": "one=1"},
            "scale_factors: 'one=1' is not like 1=0.5,8=0.5; give whole numbers of GPUs",
        ),
        ({"seed": -1}, "seed: -1 is out of range; give at least 0"),
    ],
)
def test_an_option_that_makes_no_sense(parameters: dict[str, Any], message: str) -> None:
    assert refusal(**parameters) == message
