"""Eligibility of jobs that wait for others and of arrays, and its replay from records."""

from dataclasses import replace
from pathlib import Path

import pytest

from containers.runtime import EventKind
from flows.explain.sentences import describe_answer
from flows.explain.why import why
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from predictor.errors import InputError
from predictor.options import parse_tasks
from tasks.commands import Command, CommandKind
from tasks.invariants import Invariants
from tasks.record import RuntimeKind, Settings, Start, make_pool
from tests.runs import Made, check_sound, check_stored, make
from warehouse.store.reader import Reader

JOB = 'kind = "checkpointing"\nimage = "a"\nmax_seconds = 1000\n'
PIPELINE = f"""
[[jobs]]
{JOB}name = "prepare"
seconds = 250
[[jobs]]
{JOB}name = "sweep"
array = "0-4%2"
after = ["prepare"]
seconds = 300
[[jobs]]
{JOB}name = "report"
after = ["sweep", "prepare"]
deadline_seconds = 5000
[[jobs]]
{JOB}name = "other"
"""


def start(path: Path, text: str) -> Start:
    (file := path / "jobs.toml").write_text(text)
    settings = Settings(
        "shockwave", make_pool(8), round_seconds=120.0, runtime=RuntimeKind.FAITHFUL
    )
    return make_start(Source(trace=file, format="jobs").open(), settings)


def holders(made: Made) -> list[set[int]]:
    return [{lease.job_id for lease in record.leases} for record in made.records]


@pytest.mark.slow
def test_jobs_start_after_others_and_arrays_run_some_tasks_at_a_time(tmp_path: Path) -> None:
    first = start(tmp_path, PIPELINE)
    made = make(first)
    ends = {e.job_id: record.round for record in made.records for e in record.finished}
    held = holders(made)
    assert {*ends} == {*range(8)}
    sweep = {*range(1, 6)}
    assert max(len(jobs & sweep) for jobs in held) == 2
    assert not any(jobs & sweep for jobs in held[: ends[0]])
    assert held[ends[0]] & sweep == {1, 2}
    last = max(ends[job] for job in sweep)
    assert not any(6 in jobs for jobs in held[:last])
    assert 6 in held[last]
    assert held[0] == {0, 7}  # nothing else has to wait, with eight GPUs
    check_sound(made)
    name = check_stored(tmp_path, made)
    assert Reader(tmp_path).start(name).workload.specs == first.workload.specs
    report = why("report", tmp_path, name, 0)
    assert (report.status, report.obstacles.jobs, report.job.deadline_seconds) == (
        "waits",
        (0, 1, 2, 3, 4, 5),
        5000.0,
    )
    assert report.prospects.start_seconds is not None
    assert report.prospects.start_seconds.median >= 250 + 2 * 300
    words = "\n".join(describe_answer(report))
    assert "It starts after jobs 0, 1, 2, 3, 4, 5, and is cancelled if" in words
    assert "It should meet its deadline of 5,000 s." in words
    task = why("sweep[4]", tmp_path, name, ends[0])
    assert (task.job.job_id, task.obstacles.jobs, task.obstacles.by_array) == (5, (1, 2), True)
    assert "Its array lets 2 of its tasks hold GPUs" in "\n".join(describe_answer(task))


def test_what_comes_after_a_failure_is_cancelled_and_so_is_what_comes_after_that(
    tmp_path: Path,
) -> None:
    text = f"""
[[jobs]]
{JOB.replace("1000", "200")}name = "fails"
seconds = 900
[[jobs]]
{JOB}name = "second"
after = ["fails"]
[[jobs]]
{JOB}name = "third"
after = ["second"]
"""
    made = make(start(tmp_path, text))
    ends = {e.job_id: e for record in made.records for e in record.finished}
    assert ends[0].kind is EventKind.FAILED
    assert (ends[1].kind, ends[1].reason) == (
        EventKind.WITHDRAWN,
        "job 0, before it, did not end well",
    )
    assert (ends[2].kind, ends[2].reason) == (
        EventKind.WITHDRAWN,
        "job 1, before it, did not end well",
    )
    assert not any({1, 2} & jobs for jobs in holders(made))


def test_the_invariants_tell_who_runs_too_early(tmp_path: Path) -> None:
    first = start(tmp_path, PIPELINE)
    eager = replace(
        first.workload,
        specs=tuple(
            replace(spec, options=replace(spec.options, after=(), task=parse_tasks("0")[0]))
            for spec in first.workload.specs
        ),
    )
    made = make(make_start(eager, first.header.settings))
    invariants = Invariants(first.header, first.workload)
    asked = {spec.job_id: spec for spec in first.workload.specs}
    records = [
        replace(record, arrivals=tuple(asked[spec.job_id] for spec in record.arrivals))
        for record in made.records
    ]
    said = [problem for record in records for problem in invariants.check(record)]
    assert "job 6 is launched before what it comes after has ended well" in said
    assert "job 1 is launched before what it comes after has ended well" in said


def test_a_task_on_hold_leaves_its_place_and_does_not_take_it_back(tmp_path: Path) -> None:
    first = start(tmp_path, f'[[jobs]]\n{JOB}array = "0-3%1"\nseconds = 500\n')
    commands = (Command(1, CommandKind.HOLD, 0, 130.0), Command(2, CommandKind.RELEASE, 0, 250.0))
    made = make(replace(first, workload=replace(first.workload, commands=commands)))
    held = [sorted(jobs) for jobs in holders(made)]
    assert all(len(jobs) <= 1 for jobs in held)
    assert held[1:4] == [[0], [1], [1]]  # the hold is taken in at 240 s, the release at 360 s
    first_after = next(jobs for jobs in held[4:] if jobs and jobs != [1])
    assert first_after == [0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-", "is not an array; give one like 0-31%4"),
        ("3-1", "'3-1' ends before it begins"),
        ("0-1000", "has more than 1,000 tasks"),
        ("1,1", "has an index twice"),
        ("0-3%0", "lets no task run"),
    ],
)
def test_what_is_no_array_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_tasks(text)


def test_the_indices_of_an_array() -> None:
    tasks = parse_tasks("7,1-3%2")
    assert [(task.index, task.place) for task in tasks] == [(7, 0), (1, 1), (2, 2), (3, 3)]
    assert {(task.tasks, task.at_once) for task in tasks} == {(4, 2)}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ('name = "b"\nafter = ["b"]', r"jobs\[1\]: after: 'b' is not an earlier job"),
        ('after = ["late"]', "'late' arrives at 90 s, later than the job; name"),
        ("retries = 101", "retries: 101 is refused"),
        ('secrets = ["../a"]', "secrets: '../a' is not the name of a secret"),
        ('secrets = ["a"]\ntenant = "../b"', "tenant: '../b' has no folder of secrets"),
        ("deadline_seconds = -1", "deadline_seconds: -1 is refused"),
    ],
)
def test_options_of_jobs_that_mean_nothing_are_refused(
    tmp_path: Path, changed: str, said: str
) -> None:
    text = f'[[jobs]]\n{JOB}name = "late"\narrival_seconds = 90\n[[jobs]]\n{JOB}{changed}\n'
    with pytest.raises(InputError, match=said):
        start(tmp_path, text)
