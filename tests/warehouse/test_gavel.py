"""Gavel's traces and throughputs: by hand, and as published."""

import gzip
import math
from dataclasses import replace
from pathlib import Path

import pytest

from flows.runs.start import make_start
from predictor.allocation import Allocation
from predictor.errors import InputError
from predictor.job import Mode
from predictor.options import NO_OPTIONS, JobOptions
from solver.inventory import Inventory, Pool
from tasks.record import Parameter, Settings
from tasks.sources import Workload
from tests.runs import make
from warehouse.workloads import gavel
from warehouse.workloads.tables import read_throughputs
from warehouse.workloads.trace import read_workload
from warehouse.workloads.trace_writer import write_workload

HEADER = (
    "gpu_type,job_type,scale_factor,partner_job_type,partner_scale_factor,"
    "steps_per_second,partner_steps_per_second"
)
TABLE = f"""{HEADER}
k80,LM (batch size 5),1,,,2.0,
v100,LM (batch size 5),1,,,10.0,
v100,LM (batch size 5),2,,,16.0,
v100,A3C,1,,,4.0,
v100,A3C,1,LM (batch size 5),1,3.0,6.0
v100,LM (batch size 5),1,A3C,1,6.0,3.0
"""
TEN = "LM (batch size 5)\tpython3 main.py\tlm\t--steps\t1\t1000\t2\t0.5\t-1.000000\t30.5"
SEVEN = "LM (batch size 5)\tpython3 main.py\t--steps\t1\t1000\t30.5\t2"


def written(folder: Path, trace: str = TEN, table: str = TABLE) -> Workload:
    (folder / "t.trace").write_text(trace)
    (folder / "t.csv").write_text(table)
    return read_workload(folder / "t.trace", folder / "t.csv")


def test_a_job_is_static_and_has_its_steps(tmp_path: Path) -> None:
    for line, budget in ((TEN, 0.5), (SEVEN, 1.0)):
        workload = written(tmp_path, line + "\n\n" + line)
        assert [spec.job_id for spec in workload.specs] == [0, 1]
        spec, truth = workload.specs[0], workload.truths[0]
        assert (spec.model, spec.batch_size, spec.mode) == ("LM", 5, Mode.STATIC)
        assert (spec.demand.least, spec.demand.most, spec.total_steps) == (2, 2, 1000)
        assert (spec.arrival_seconds, spec.budget) == (30.5, budget)
        assert truth.isolated_seconds == 1000 / 16.0
        assert workload.profile.gpu_types == ("v100",)


@pytest.mark.parametrize(
    ("slo", "deadline"), [("1.5", 93.75), ("10.0", 625.0), ("0", 0.0), ("-1.0", 0.0), ("-", 0.0)]
)
def test_an_slo_is_a_deadline_in_isolated_run_times(
    tmp_path: Path, slo: str, deadline: float
) -> None:
    workload = written(tmp_path, TEN + "\n" + TEN.replace("-1.000000", slo))
    none, spec = workload.specs
    assert none.options is NO_OPTIONS, "the hash of a job without one is what it was"
    assert spec.options == JobOptions(deadline_seconds=deadline)
    files = write_workload(workload, tmp_path / "out")
    assert read_workload(*files).specs == workload.specs


def test_gangs_on_several_nodes_have_rates_of_their_own(tmp_path: Path) -> None:
    several = """v100_unconsolidated,LM (batch size 5),1,,,10.0,
v100_unconsolidated,LM (batch size 5),2,,,4.0,
v100_unconsolidated,LM (batch size 5),1,LM (batch size 5),1,3.5,3.5
v100_unconsolidated,LM (batch size 5),2,LM (batch size 5),2,1.5,1.5
k80,LM (batch size 5),2,,,3.0,
k80_unconsolidated,LM (batch size 5),2,,,1.0,
"""
    workload = written(tmp_path, table=TABLE + several)
    (spec,), profile = workload.specs, workload.profile
    rates = [profile.rate(spec, 5, Allocation("v100", 2, nodes)) for nodes in (1, 2, 3)]
    assert (profile.gpu_types, rates) == (("v100",), [16.0, 4.0, 4.0])
    assert profile.rate(spec, 5, Allocation("v100", 1)) == 10.0
    assert profile.by_nodes[2].pairs == {("LM", 5, "LM", 5, "v100", 2): 1.5}
    assert profile.shared_rate(spec, 5, spec, 5, Allocation("v100", 2, 2)) == 1.5
    assert profile.shared_rate(spec, 5, spec, 5, Allocation("v100", 2)) == 0.0
    assert not profile.can_run(spec, 5, Allocation("k80", 2, 2))


def test_a_rate_on_several_nodes_may_be_above_that_on_one(tmp_path: Path) -> None:
    measured = "v100_unconsolidated,LM (batch size 5),2,,,17.0,"
    (spec,) = (workload := written(tmp_path, table=TABLE + measured)).specs
    assert workload.profile.rate(spec, 5, Allocation("v100", 2, 2)) == 17.0


@pytest.mark.parametrize("pools", [(Pool("v100", 2),), (Pool("v100", 2), Pool("k80", 1))])
def test_a_gang_that_cannot_be_spread_needs_larger_nodes(
    tmp_path: Path, pools: tuple[Pool, ...]
) -> None:
    workload = written(tmp_path, table=f"{TABLE}v100_unconsolidated,LM (batch size 5),2,,,0,")
    large = (replace(pools[0], gpus_per_node=2), *pools[1:])
    workload.check_fits(Inventory(large))
    said = "job 0: needs 2 GPUs on one node, as it makes no steps on several; give larger nodes or "
    with pytest.raises(InputError, match=said):
        workload.check_fits(Inventory(pools))


def test_a_model_without_a_batch_size_has_one(tmp_path: Path) -> None:
    (spec,) = written(
        tmp_path, TEN.replace("LM (batch size 5)", "A3C").replace("\t2\t", "\t1\t")
    ).specs
    assert (spec.model, spec.batch_size, spec.epochs) == ("A3C", 1, 1)


def test_rates_are_those_of_jobs_alone_on_the_types_that_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(TABLE.encode()))
    for name in ("t.csv", "t.csv.gz"):
        assert read_throughputs(tmp_path / name, ("k80", "v100")).rates == {
            ("LM", 5, "k80", 1): 2.0,
            ("LM", 5, "v100", 1): 10.0,
            ("LM", 5, "v100", 2): 16.0,
            ("A3C", 1, "v100", 1): 4.0,
        }
    assert read_throughputs(tmp_path / "t.csv", ("k80", "v100")).pairs == {
        ("A3C", 1, "LM", 5, "v100", 1): 3.0,
        ("LM", 5, "A3C", 1, "v100", 1): 6.0,
    }
    assert read_throughputs(tmp_path / "t.csv", ("k80",)).pairs == {}
    for wrong, said in (("t4", "it has k80, v100"), ("k8", "did you mean k80? it has k80, v100")):
        with pytest.raises(InputError) as caught:
            read_throughputs(tmp_path / "t.csv", (wrong,))
        assert str(caught.value) == f"{tmp_path / 't.csv'}: has no GPU type {wrong!r}; {said}"


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (TEN + "\n" + SEVEN, "t.trace:2: 7 columns after lines of 10; correct the line"),
        (TEN + "\tx", "t.trace:1: 11 columns instead of 12"),
        (TEN.replace("1000", "many"), "t.trace:1, total_steps: 'many' is not a whole number"),
        (TEN.replace("1000", "1_000"), "total_steps: '1_000' is not a whole number; write digits"),
        (TEN.replace("1000", "١"), "t.trace:1, total_steps: '١' is not a whole number"),
        (TEN.replace("size 5", "size ٥"), "t.trace:1, job_type: 'LM (batch size ٥)' is not like"),
        (TEN.replace("1000", "0"), "t.trace:1, total_steps: 0 is not positive"),
        (TEN.replace("30.5", "-1"), "t.trace:1, arrival: -1.0 is not a time of 0 or more"),
        (TEN.replace("0.5", "0"), "t.trace:1, priority_weight: 0.0 is not positive"),
        (TEN.replace("-1.000000", "soon"), "t.trace:1, slo: 'soon' is not a number"),
        (TEN.replace("-1.000000", "nan"), "t.trace:1, slo: nan is not a finite number"),
        (TEN.replace("size 5", "size 0"), "t.trace:1, job_type: a batch size of 0"),
        (SEVEN[:-1] + "0", "t.trace:1, scale_factor: 0 is not positive"),
        (TEN.replace("\t2\t", "\t4\t"), "t.trace:1: no throughput for LM with batch size 5 on 4"),
    ],
)
def test_a_mistake_in_a_trace_is_refused_with_its_line(
    tmp_path: Path, trace: str, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        written(tmp_path, trace)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (TABLE.replace("10.0", "fast"), "t.csv:3, steps_per_second: 'fast' is not a number"),
        (TABLE.replace("10.0", "nan"), "t.csv:3, steps_per_second: nan is not a rate"),
        (TABLE + TABLE.splitlines()[1], "t.csv:8, job_type: this line is there twice"),
        (
            "\n".join(TABLE.splitlines()[:-1]),
            "t.csv:6, partner_job_type: has no line for the other job of this pair; give each",
        ),
        (TABLE.replace("job_type,scale", "job,scale"), "t.csv:1: missing column 'job_type'"),
        (TABLE.replace("k80,LM", "k80 LM"), "t.csv:2: 6 fields instead of 7"),
        (TABLE.replace("10.0", "1e-300"), "t.csv:3, steps_per_second: at 1e-300 a step takes long"),
        (TABLE.replace("A3C", "LM (batch size 0)"), "t.csv:5, job_type: a batch size of 0; give a"),
        (
            TABLE.replace("A3C", "LM (batch size -3)"),
            "t.csv:5, job_type: 'LM (batch size -3)' is not like 'LM (batch size 5)'; give a whole",
        ),
        (
            f"{TABLE}v100_unconsolidated,LM (batch size 5),1,,,9.0,",
            "t.csv:8, steps_per_second: one GPU is on one node, where the job makes 10; give the",
        ),
        (
            f"{TABLE}k80_unconsolidated,LM (batch size 5),2,,,1.0,",
            "t.csv:8, gpu_type: has no line for this job on one node; give one of k80 as well",
        ),
        (
            TABLE.replace("v100,A3C,1,,", "k80,A3C,1,,"),
            "t.csv:6, job_type: has no line for this job alone; give it as well, or leave this out",
        ),
        (
            TABLE.replace("1,A3C,1,6.0", "1,A3C,1,100.5"),
            "t.csv:7, steps_per_second: 100.5 beside another job is far above 10 alone; give",
        ),
        (
            TABLE.replace("v100,A3C,1,,,4.0", "v100,A3C,1,,,0"),
            "t.csv:6, steps_per_second: 3 beside",
        ),
        (HEADER, "t.csv: has no throughputs of jobs alone, on one node; give a table that has"),
        (f"{HEADER}\nv100_unconsolidated,A3C,2,,,4.0,", "t.csv: has no throughputs of jobs alone"),
    ],
)
def test_a_mistake_in_a_table_is_refused_with_its_line(
    tmp_path: Path, table: str, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        written(tmp_path, table=table)
    assert said in str(caught.value)


PACKED = gzip.compress(TABLE.encode(), mtime=0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no gzip", "is not compressed by gzip, or damaged; give a readable file"),
        (PACKED[:5], "is truncated; give the whole file"),
        (PACKED[:-5], "is truncated; give the whole file"),
        (PACKED[:60] + b"\xff" * 20 + PACKED[80:], "is not compressed by gzip, or damaged"),
        (gzip.compress(b"\xff"), "is not UTF-8 text"),
    ],
    ids=["other", "begun", "torn", "changed", "no text"],
)
def test_a_table_that_cannot_be_unpacked_is_refused(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"t\.csv\.gz: {said}"):
        read_throughputs(path)


def test_a_table_is_unpacked_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(PACKED)
    monkeypatch.setattr(gavel, "MOST_BYTES", len(TABLE))
    assert read_throughputs(path)
    monkeypatch.setattr(gavel, "MOST_BYTES", len(TABLE) - 1)
    with pytest.raises(InputError, match="is longer than any table"):
        read_throughputs(path)


def test_the_published_trace_and_table(data: Path) -> None:
    folder, types = data.parent / "gavel", ("v100", "p100", "k80")
    workload = read_workload(
        folder / "physical_static_100.trace", folder / "throughputs.csv.gz", None, types
    )
    assert len(workload.specs) == 100
    assert workload.profile.gpu_types == ("k80", "p100", "v100")
    recommendation = next(spec for spec in workload.specs if spec.model == "Recommendation")
    rates = [workload.profile.rate(recommendation, 512, Allocation(kind, 1)) for kind in types]
    assert rates[1] == max(rates), "always the faster on P100s"


@pytest.mark.parametrize(("deadlines", "in_time"), [(0.0, [0, 2]), (1.0, [0, 1, 2, 3])])
def test_jobs_end_by_their_slos_where_the_policy_goes_by_them(
    tmp_path: Path, deadlines: float, in_time: list[int]
) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    slos = ("10.0", "2.0", "-1.0", "1.5")  # K80s, cheap by the step, take five times as long
    lines = [TEN.replace("\t2\t", "\t1\t").replace("1000", "90000") for _ in slos]
    lines = [line.replace("-1.000000", slo) for line, slo in zip(lines, slos, strict=True)]
    (tmp_path / "t.trace").write_text("\n".join(lines))
    types = ("v100", "k80")
    workload = read_workload(tmp_path / "t.trace", tmp_path / "t.csv", None, types)
    pools = (Pool("v100", 2, price=6.0), Pool("k80", 4, price=1.0))
    parameters = (Parameter("costed", 1.0), Parameter("deadlines", deadlines))
    settings = Settings("mst", pools, restart_seconds=20.0, parameters=parameters)
    ends = {
        event.job_id: event.at_seconds - 30.5
        for record in make(make_start(workload, settings)).records
        for event in record.finished
    }
    due = {spec.job_id: spec.options.deadline_seconds or math.inf for spec in workload.specs}
    assert [job_id for job_id in sorted(ends) if ends[job_id] <= due[job_id]] == in_time
