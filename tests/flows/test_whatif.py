"""A fork repeats the record up to its round, and changes only what the change asks for."""

from dataclasses import replace
from pathlib import Path

import pytest

from containers.runtime import EventKind
from flows.explain.replay import replay
from flows.explain.whatif import Change, fork, whatif
from flows.explain.why import why
from flows.runs.resuming import resume
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from predictor.errors import InputError, WarehouseError
from tasks.record import Parameter, RoundRecord
from tests.flows.conftest import Command
from tests.runs import POOLS, Made, chained, ended, make, mixed, start_of, write
from warehouse.analytics.marts import materialise
from warehouse.analytics.questions import Analytics
from warehouse.store.audit import audit
from warehouse.store.reader import Reader

JOB = """
model = "{model}"
batch_size = {size}
epochs = 3
tenant = "late"
"""


@pytest.fixture(scope="module")
def made() -> Made:
    return ended(jobs=8)


@pytest.fixture(scope="module")
def kept(made: Made, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    warehouse = tmp_path_factory.mktemp("whatif")
    run = write(warehouse, made.start, made.rounds)
    materialise(warehouse)  # so that its figures are read in a tenth of the time
    return warehouse, run


def rounds(warehouse: Path, run: str) -> list[RoundRecord]:
    """A run's records, whatever it started from."""
    records = Reader(warehouse).records(run)
    return [replace(record, previous_hash="") for record, _ in records]


@pytest.mark.parametrize(
    ("policy", "number"),
    [("shockwave", 0), ("shockwave", 7), ("shockwave", -1), ("themis", 7), ("fifo", 7)],
)
@pytest.mark.slow
def test_a_fork_without_a_change_is_the_run(tmp_path: Path, policy: str, number: int) -> None:
    made = ended(policy, jobs=5)
    run = write(tmp_path, made.start, made.rounds)
    at = number % len(made.rounds)
    outcome = whatif(run, tmp_path, at, Change())
    assert all(before == after for _, before, after in outcome.figures)
    assert all((jct, rho) == (after, rho) for _, jct, after, rho, rho in outcome.jobs)
    forked = fork(run, tmp_path, at, Change(), tmp_path / "fork")
    assert rounds(tmp_path / "fork", forked) == rounds(tmp_path, run)
    comparison = replay(forked, tmp_path / "fork")
    assert (comparison.differences, comparison.rounds) == ([], len(made.rounds) - at)


@pytest.mark.slow
def test_a_fork_at_the_first_round_is_a_run_under_the_other_policy(
    made: Made, kept: tuple[Path, str], tmp_path: Path
) -> None:
    settings = replace(made.header.settings, policy="srtf")
    other = simulate(make_start(made.start.workload, settings), tmp_path / "other")
    forked = fork(kept[1], kept[0], 0, Change(policy="srtf"), tmp_path / "fork")
    assert rounds(tmp_path / "fork", forked) == rounds(tmp_path / "other", other)


@pytest.mark.parametrize("change", [Change(policy="srtf"), Change(gpus=6), Change(gpus=10)])
def test_a_fork_is_a_sound_run_and_the_same_up_to_its_round(
    made: Made, kept: tuple[Path, str], tmp_path: Path, change: Change
) -> None:
    forked = fork(kept[1], kept[0], 9, change, tmp_path)
    records = [record for record, _ in Reader(tmp_path).records(forked)]
    for ours, recorded in zip(records[:9], made.records[:9], strict=True):
        assert replace(ours, previous_hash="") == replace(recorded, previous_hash="")
    held = records[9].leases
    assert max(gpu for launch in held for gpu in launch.gpus) < (change.gpus or 8)
    assert audit(tmp_path, forked).findings == ()
    comparison = replay(forked, tmp_path)
    assert (comparison.differences, comparison.rounds) == ([], len(records) - 9)
    active = records[10].leases[0].job_id
    assert why(active, tmp_path, forked, 10).policy == (change.policy or "shockwave")
    for ask in (lambda: why(active, tmp_path, forked, 8), lambda: replay(forked, tmp_path, only=8)):
        with pytest.raises(
            InputError,
            match="is a fork that took over round 8 from its parent run; name run",
        ):
            ask()
    with pytest.raises(InputError, match="is a fork; fork it anew"):
        resume(forked, tmp_path)


@pytest.mark.parametrize("gpus", [6, 10])
@pytest.mark.slow
def test_utilization_is_of_the_gpus_that_there_were(
    kept: tuple[Path, str], tmp_path: Path, gpus: int
) -> None:
    first = fork(kept[1], kept[0], 9, Change(gpus=gpus), tmp_path)
    again = fork(first, tmp_path, 12, Change(gpus=7), tmp_path)
    query = "SELECT round, busy_gpus + idle_gpus, idle_gpus, seconds FROM rounds ORDER BY round"
    for run, last in ((first, gpus), (again, 7)):
        _, found = Analytics(tmp_path).query(query, [run])
        assert {row[1] for row in found[:9]} == {8}
        assert {row[1] for row in found[9:12]} == {gpus}
        assert {row[1] for row in found[12:]} == {last}
        assert min(row[2] for row in found) >= 0
        there = sum(have * seconds for _, have, _, seconds in found if seconds is not None)
        asked = "SELECT utilization, gpu_hours_trained * 3600 FROM run_summary"
        _, ((utilization, trained),) = Analytics(tmp_path).query(asked, [run])
        assert utilization == pytest.approx(trained / there)
        assert utilization <= 1


def test_rounds_are_counted_as_an_audit_counts_them(kept: tuple[Path, str]) -> None:
    _, ((counted,),) = Analytics(kept[0]).query("SELECT rounds FROM run_summary", [kept[1]])
    assert counted == audit(*kept).rounds


@pytest.mark.slow
def test_a_fork_can_be_forked(made: Made, kept: tuple[Path, str], tmp_path: Path) -> None:
    first = fork(kept[1], kept[0], 9, Change(policy="srtf"), tmp_path)
    again = fork(first, tmp_path, 12, Change(policy="shockwave"), tmp_path)
    forked = Reader(tmp_path).header(again).settings.forked
    assert [(fork.run, fork.round, fork.policy) for fork in forked] == [
        (kept[1], 9, "shockwave"),
        (first, 12, "srtf"),
    ]
    assert audit(tmp_path, again).findings == ()
    assert replay(again, tmp_path).differences == []
    early = fork(first, tmp_path, 5, Change(), tmp_path)
    assert [fork.round for fork in Reader(tmp_path).header(early).settings.forked] == [5]


def test_a_fork_keeps_parameters_unless_the_policy_is_another(tmp_path: Path) -> None:
    held = (Parameter("fairness", 0.5), Parameter("overdue", 2.0))
    made = make(mixed("shockwave", jobs=2, parameters=held))
    recorded = made.header.settings
    assert Change(pools=POOLS[:1]).settings(recorded).parameters == held
    assert Change(parameters=(Parameter("overdue", 4.0),)).settings(recorded).parameters == (
        held[0],
        Parameter("overdue", 4.0),
    )
    assert Change(policy="gavel").settings(recorded).parameters == ()


def test_a_run_with_parameters_of_another_version_is_asked_by_that_one(
    made: Made, tmp_path: Path
) -> None:
    old = replace(made.header.settings, parameters=(Parameter("mixed_fairness", 1.0),))
    start = start_of(replace(made.header, settings=old), made.start.workload)
    run = write(tmp_path, start, chained(start, made.records[:9]))
    said = (
        f"run '{run}': parameters.mixed_fairness: "
        "policy shockwave has no parameter 'mixed_fairness'; use the version that recorded it"
    )
    job = made.records[5].leases[0].job_id
    for ask in (
        lambda: replay(run, tmp_path),
        lambda: why(job, tmp_path, run, 5),
        lambda: whatif(run, tmp_path, 5, Change()),
        lambda: resume(run, tmp_path),
    ):
        with pytest.raises(WarehouseError) as refused:
            ask()
        assert str(refused.value) == said
    assert fork(run, tmp_path, 8, Change(policy="srtf"), tmp_path / "fork")


def test_a_policy_that_looks_ahead_takes_over_from_one_that_does_not(tmp_path: Path) -> None:
    made = ended("fifo")
    run = write(tmp_path, made.start, made.rounds)
    forked = fork(run, tmp_path, 5, Change(policy="shockwave"), tmp_path / "fork")
    records = [record for record, _ in Reader(tmp_path / "fork").records(forked)]
    active = set(made.states[5].beliefs) - {event.job_id for event in records[5].finished}
    assert {forecast.job_id for forecast in records[5].forecasts} == active | {
        spec.job_id for spec in records[5].arrivals
    }
    assert all(forecast.trajectories for forecast in records[5].forecasts)
    assert audit(tmp_path / "fork", forked).findings == ()


@pytest.mark.slow
def test_a_job_that_runs_is_withdrawn_and_others_get_its_gpus(
    made: Made, kept: tuple[Path, str], tmp_path: Path
) -> None:
    number = 9
    job = made.records[number - 1].leases[0].job_id
    assert job not in {event.job_id for event in made.records[number].finished}
    outcome = whatif(kept[1], kept[0], number, Change(without=(job,)), tmp_path / "kept")
    ((_, recorded, after, _, _),) = (row for row in outcome.jobs if row[0] == job)
    assert recorded is not None
    assert after is None
    reader, analytics = Reader(tmp_path / "kept"), Analytics(tmp_path / "kept")
    _, ((run,),) = analytics.query("SELECT run FROM runs")
    records = [record for record, _ in reader.records(run)]
    (event,) = (ended for ended in records[number].finished if ended.job_id == job)
    assert event.kind is EventKind.WITHDRAWN
    assert all(job not in {lease.job_id for lease in record.leases} for record in records[number:])
    assert audit(tmp_path / "kept", run).findings == ()
    _, ((complete,),) = analytics.query("SELECT complete FROM runs")
    assert complete
    _, ((ended,),) = analytics.query(f"SELECT max(end_seconds) FROM leases WHERE job_id = {job}")
    assert ended == records[number].clock_seconds


def test_a_job_that_is_withdrawn_needs_no_room(
    made: Made, kept: tuple[Path, str], tmp_path: Path
) -> None:
    ended = {event.job_id for record in made.records[:10] for event in record.finished}
    large = {spec.job_id for spec in made.specs if spec.demand.least == 4} - ended
    assert large & {lease.job_id for lease in made.records[9].leases}
    run = fork(kept[1], kept[0], 9, Change(gpus=2, without=(*large,)), tmp_path)
    assert audit(tmp_path, run).findings == ()
    answer = Analytics(tmp_path).query("SELECT job_id FROM job_outcomes WHERE jct_seconds IS NULL")
    withdrawn = {job_id for (job_id,) in answer[1]}
    assert withdrawn
    assert withdrawn <= large


def test_a_job_that_has_not_arrived_never_does(
    made: Made, kept: tuple[Path, str], tmp_path: Path
) -> None:
    job = made.specs[-1].job_id
    forked = fork(kept[1], kept[0], 0, Change(without=(job,)), tmp_path)
    assert job not in {spec.job_id for spec in Reader(tmp_path).start(forked).workload.specs}


@pytest.mark.slow
def test_a_job_is_added_at_the_round(made: Made, kept: tuple[Path, str], tmp_path: Path) -> None:
    spec = made.specs[0]
    file = tmp_path / "job.toml"
    file.write_text(JOB.format(model=spec.model, size=spec.batch_size))
    outcome = whatif(kept[1], kept[0], 9, Change(jobs=(file,)), tmp_path / "kept")
    new = max(spec.job_id for spec in made.specs) + 1
    ((_, recorded, after, _, _),) = (row for row in outcome.jobs if row[0] == new)
    assert recorded is None
    assert after is not None
    assert after > 0
    analytics = Analytics(tmp_path / "kept")
    _, ((arrived, tenant),) = analytics.query(
        f"SELECT arrival_seconds, tenant FROM job_outcomes WHERE job_id = {new}"
    )
    assert (arrived, tenant) == (made.records[9].clock_seconds, "late")


@pytest.mark.slow
def test_an_unfinished_run_is_compared_with_its_continuation(
    made: Made, kept: tuple[Path, str], here: Command, tmp_path: Path
) -> None:
    run = write(tmp_path, made.start, made.rounds[:12], compact=False)
    started = whatif(run, tmp_path, 9, Change(policy="srtf"))
    whole = whatif(kept[1], kept[0], 9, Change(policy="srtf"))
    assert started == replace(whole, rounds_so_far=12)
    output = here(
        "run", "whatif", run, "--round", 9, "--policy", "srtf", "--warehouse", tmp_path
    ).out
    heading, columns, *_ = output.split("\n", 2)
    assert heading.startswith(
        f"{run} has not ended, with 12 rounds recorded: unchanged means continued"
    )
    assert columns.split() == ["figure", "unchanged", "whatif", "difference"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("model = 3 =", "is not TOML"),
        ('model = "x"\nbatch_size = 32\nepochs = true', "epochs: True is refused"),
        ('model = "x"\nbatch_size = 32.5\nepochs = 2', "batch_size: 32.5 is refused"),
        ('model = "x"\nbatch_size = 32\nepochs = 2\ntenant = 5', "tenant: 5 is refused"),
        ('model = "x"\nbatch_size = 32\nepochs = 2\nregimes = []', "regimes"),
        ('model = "x"\nbatch_size = 32\nepochs = 2\nconsolidate = "no"', "consolidate: 'no' is"),
        ('model = "x"\nbatch_size = 32\nepochs = 2\ncolour = 1', "colour: is not a field of a job"),
        ('model = "x"\nbatch_size = 32', "epochs: is missing"),
        ('model = "x"\nbatch_size = 32\nepochs = 2', "model: there are no throughputs of 'x'"),
        ('model = "MODEL"\nbatch_size = 32\nepochs = 0', "epochs: 0 is refused"),
        ('model = "MODEL"\nbatch_size = 32\nepochs = 2\nmode = "x"', "mode: 'x' is refused"),
        (
            'model = "MODEL"\nbatch_size = 32\nepochs = 2\nregimes = [[32, 1]]',
            "regimes do not add up to 2 epochs",
        ),
        (
            'model = "MODEL"\nbatch_size = 32\nepochs = 2\nregimes = [[32, 1], [64, 1]]',
            "a static job never changes",
        ),
    ],
)
def test_a_wrong_job_file_is_refused(
    made: Made, kept: tuple[Path, str], tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "job.toml"
    spec = made.specs[0]
    file.write_text(text.replace("MODEL", spec.model).replace("32", str(spec.batch_size)))
    with pytest.raises(InputError, match=r"job\.toml") as refused:
        whatif(kept[1], kept[0], 9, Change(jobs=(file,)))
    assert problem in str(refused.value)


def test_what_makes_no_sense_is_refused_and_leaves_nothing(
    made: Made, kept: tuple[Path, str], tmp_path: Path
) -> None:
    warehouse, run = kept
    ended = made.records[-1].finished[0].job_id
    first = next(record.finished[0].job_id for record in made.records if record.finished)
    assert ended != first
    for number, change, problem in (
        (9_999, Change(), "round: run .* has no round 9999"),
        (3, Change(policy="nothing"), "policy: unknown policy 'nothing'"),
        (3, Change(gpus=1), r"needs \d GPUs, but .*; give a larger .* the job out$"),
        (3, Change(without=(77,)), "without: there is no job 77"),
        (
            len(made.records) - 1,
            Change(without=(first,)),
            "without: job .* has already ended in that round",
        ),
    ):
        with pytest.raises(InputError, match=problem):
            whatif(run, warehouse, number, change, tmp_path / "kept")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match=r"keep: .* exists"):
        whatif(run, warehouse, 3, Change(), tmp_path)


def test_an_added_job_comes_after_no_job_that_comes_later_or_is_taken_out(
    made: Made, kept: tuple[Path, str], tmp_path: Path
) -> None:
    late = made.specs[-1]
    number = next(r.round for r in made.records if r.clock_seconds >= late.arrival_seconds) - 1
    file = tmp_path / "job.toml"
    text = JOB.format(model=late.model, size=late.batch_size)
    file.write_text(f'{text}after = ["{late.job_id}"]\n')
    for when, change, problem in (
        (
            number,
            Change(jobs=(file,)),
            "arrives at .* s, later than the job; name jobs that arrive",
        ),
        (
            number + 1,
            Change(jobs=(file,), without=(late.job_id,)),
            "is not an earlier job of the file",
        ),
    ):
        with pytest.raises(InputError, match=rf"job\.toml: after: .*{problem}"):
            whatif(kept[1], kept[0], when, change)


def test_a_changed_record_is_no_base_for_a_fork(made: Made, tmp_path: Path) -> None:
    record, digest, timings = made.rounds[3]
    forged = (replace(record, memory="x"), digest, timings)
    run = write(tmp_path, made.start, [*made.rounds[:3], forged, *made.rounds[4:]])
    with pytest.raises(WarehouseError, match="round 3: was changed after it was recorded"):
        whatif(run, tmp_path, 6, Change())


@pytest.mark.slow
def test_the_command_shows_figures_and_jobs(
    kept: tuple[Path, str], here: Command, tmp_path: Path
) -> None:
    asked = ("run", "whatif", kept[1], "--round", 5, "--policy", "fifo", "--warehouse", kept[0])
    rows = here(*asked, "--json").rows
    figures = {row["figure"]: row for row in rows if "figure" in row}
    jobs = [row for row in rows if "job_id" in row]
    assert len(jobs) == 8
    one = figures["makespan_s"]
    assert one["difference"] == one["whatif"] - one["recorded"]
    output = here(*asked, "--keep", tmp_path / "kept").out
    _, ((run,),) = Analytics(tmp_path / "kept").query("SELECT run FROM runs")
    assert f"kept as run {run} in the warehouse {tmp_path / 'kept'}" in output
    changed = sum(row["difference_seconds"] != 0 for row in jobs)
    assert f"{changed} of 8 jobs end at another time" in output
