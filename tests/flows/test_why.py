"""The answers of `why` follow from the records."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.quality import workload_of
from containers.runtime import EventKind
from flows.explain.answer import Answer
from flows.explain.facts import Predicted
from flows.explain.sentences import describe_answer
from flows.explain.why import why
from flows.runs.start import make_start
from predictor.errors import InputError, WarehouseError
from solver.inventory import Pool
from tasks.record import Settings
from tests.flows.conftest import Command
from tests.runs import POLICIES, Made, chained, ended, make, write
from warehouse.analytics.questions import Analytics
from warehouse.wording import counted
from warehouse.workloads.mix import Mix


@pytest.fixture(scope="module")
def made() -> Made:
    return ended(jobs=14)


@pytest.fixture(scope="module")
def kept(made: Made, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    warehouse = tmp_path_factory.mktemp("why")
    return warehouse, write(warehouse, made.start, made.rounds)


@pytest.fixture(scope="module")
def answers(made: Made, kept: tuple[Path, str]) -> list[Answer]:
    """An answer for each active job of a few rounds."""
    warehouse, run = kept
    rounds = [record.round for record in made.records if record.events][1::9]
    asked = [(job, number) for number in rounds for job in made.states[number + 1].beliefs]
    return [why(job, warehouse, run, number) for job, number in asked]


def of(answers: list[Answer], status: str) -> list[Answer]:
    """Those of which it says so."""
    found = [answer for answer in answers if answer.status == status]
    assert found, f"no job {status}"
    return found


@pytest.mark.slow
def test_a_running_job_holds_its_gpus_and_has_started(made: Made, answers: list[Answer]) -> None:
    for answer in of(answers, "runs"):
        record = made.records[answer.round]
        (launch,) = (lease for lease in record.leases if lease.job_id == answer.job.job_id)
        assert answer.holding.gpus == launch.gpus
        now, finish = answer.clock_seconds, answer.prospects.finish_seconds
        assert now == record.clock_seconds
        assert answer.prospects.start_seconds == Predicted(now, now, now)
        assert finish.low < finish.median < finish.high
        assert [answer.line.price] == [price.price for price in record.solve.prices]
        assert answer.line.cutoff is not None
        assert answer.line.worth is not None
        assert answer.line.worth >= answer.line.cutoff


@pytest.mark.slow
def test_a_waiting_job_did_not_fit_when_its_turn_came(made: Made, answers: list[Answer]) -> None:
    for answer in of(answers, "waits"):
        record = made.records[answer.round]
        assert answer.holding.gpus == ()
        assert answer.supply.free < answer.job.scale_factor
        holders = {holder.job_id for holder in answer.line.holders}
        assert holders == {lease.job_id for lease in record.leases}
        start, finish = answer.prospects.start_seconds, answer.prospects.finish_seconds
        assert answer.clock_seconds < start.low <= start.median
        assert start.median <= start.high < finish.high
        assert any(
            f"needs {answer.job.scale_factor} GPU" in line for line in describe_answer(answer)
        )
        assert answer.prospects.overdue_from_seconds >= answer.clock_seconds
        assert any(
            "before all others: whatever arrives" in line for line in describe_answer(answer)
        )


@pytest.mark.slow
def test_it_lists_when_the_job_waited(made: Made, answers: list[Answer]) -> None:
    for answer in answers:
        clocks = [record.clock_seconds for record in made.records[: answer.round + 1]]
        spec = next(spec for spec in made.specs if spec.job_id == answer.job.job_id)
        waited = max(
            0.0, next(c for c in clocks if c >= spec.arrival_seconds) - spec.arrival_seconds
        )
        for record, until in zip(made.records, clocks[1:], strict=False):
            held = {lease.job_id for lease in record.leases}
            if record.clock_seconds >= spec.arrival_seconds and answer.job.job_id not in held:
                waited += until - record.clock_seconds
        assert answer.job.arrival_seconds == spec.arrival_seconds
        assert sum(w.to_seconds - w.from_seconds for w in answer.waits) == pytest.approx(waited)
        assert all(a.to_seconds < b.from_seconds for a, b in pairwise(answer.waits))
        assert all(wait.from_seconds < wait.to_seconds for wait in answer.waits)
        for wait in answer.waits:
            if wait.round is not None:
                record = made.records[wait.round]
                assert wait.from_seconds <= record.clock_seconds <= wait.to_seconds
                assert answer.job.job_id not in {lease.job_id for lease in record.leases}
        rounds = [wait.round for wait in answer.waits if wait.round is not None]
        hints = [line for line in describe_answer(answer) if line.startswith("Why it waited from ")]
        assert len(hints) == (answer.status != "waits" and bool(rounds))
        assert all(int(hint.split()[-1]) in rounds for hint in hints)
        (line,) = (line for line in describe_answer(answer) if line.startswith("It arrived at "))
        assert ("has not waited" in line) is (waited == 0.0)


@pytest.mark.slow
def test_the_forecast_is_that_of_the_record(made: Made, answers: list[Answer]) -> None:
    for answer in of(answers, "runs"):
        for estimate in made.records[answer.round].estimates:
            if estimate.job_id == answer.job.job_id:
                assert answer.job.remaining_seconds.median == estimate.remaining_seconds
                assert (answer.job.remaining_seconds.low, answer.job.remaining_seconds.high) == (
                    estimate.low_seconds,
                    estimate.high_seconds,
                )
                assert answer.job.progress == estimate.done


@pytest.mark.slow
def test_a_preemption_names_who_took_the_gpus(made: Made, kept: tuple[Path, str]) -> None:
    preempted = [
        (record, event)
        for record in made.records
        for event in record.events
        if event.kind is EventKind.PREEMPTED
    ]
    assert preempted
    for record, event in preempted[::3]:
        others = {
            lease.job_id
            for lease in record.leases
            if set(lease.gpus) & set(event.gpus) and lease.job_id != event.job_id
        }
        named = {int(part) for part in event.reason.replace(",", "").split() if part.isdigit()}
        assert named == others
        answer = why(event.job_id, *(kept[0], kept[1], record.round))
        assert answer.status == "preempted"
        assert answer.history[-1].reason == event.reason
        assert any(event.reason in line for line in describe_answer(answer))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.slow
def test_each_policy_can_be_asked(tmp_path: Path, policy: str) -> None:
    made = ended(policy)
    run = write(tmp_path, made.start, made.rounds)
    for job in made.states[5].beliefs:
        text = " ".join(describe_answer(why(job, tmp_path, run, 4)))
        assert f"Job {job} " in text
        assert f"policy {policy}" in text
        assert ("before all others" not in text) or policy == "shockwave"


def test_jobs_that_go_first_whatever_their_worth_are_named(tmp_path: Path) -> None:
    """Under slaq, jobs without known losses go before all others."""
    mix = Mix(shortest_seconds=600.0, longest_seconds=1800.0)
    made = make(make_start(workload_of(6, 3, 60.0, mix), Settings("slaq", (Pool("", 2, 2),))))
    run, number = write(tmp_path, made.start, made.rounds), 3
    answers = [why(job, tmp_path, run, number) for job in made.states[number + 1].beliefs]
    first = 0
    for answer in answers:
        text = " ".join(describe_answer(answer))
        before = [held for held in answer.line.holders if held.place < answer.line.place]
        less = [held for held in before if held.worth < answer.line.worth]
        explained = "before it to which a GPU is worth less" in text
        assert explained is (bool(less) and answer.status != "runs")
        if answer.status == "preempted":
            running, come = (
                counted(len(answer.line.holders), "running job"),
                "come" + "s" * (len(before) == 1),
            )
            assert f"{len(before)} of {running} {come} before it" in text
        first += explained
    assert first


@pytest.mark.slow
def test_the_longest_wait_in_the_latest_run_is_the_default_of_jobs_that_ended(
    made: Made, kept: tuple[Path, str]
) -> None:
    ends = {e.job_id: r.round for r in made.records for e in r.finished[:1] if e.ends_job}
    chosen = set()
    for job, end in ends.items():
        answer, last = why(job, kept[0]), why(job, kept[0], kept[1], end - 1)
        assert answer.run == kept[1]
        assert last.longest is None
        known = [wait for wait in last.waits if wait.round is not None]
        longest = max(known, key=lambda wait: wait.seconds, default=None)
        assert answer.longest == longest
        assert answer.round == (end - 1 if longest is None else longest.round)
        told = describe_answer(answer)
        remarks = [line for line in told if line.startswith("Its longest wait was ")]
        assert bool(remarks) is (longest is not None)
        chosen.add(longest is None)
        if len(chosen) == 2:
            break
    assert chosen == {False, True}


@pytest.mark.parametrize(
    ("job", "run", "number", "message"),
    [
        (99, None, None, "job 99: is not in run"),
        (0, None, 9_999, "round: run .* has no round 9999"),
        (13, None, 0, "round: job 13 is not active in round 0; it is active from round"),
        (0, "nothing", None, "run 'nothing': not in the warehouse"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    kept: tuple[Path, str], job: int, run: str | None, number: int | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        why(job, kept[0], run, number)


@pytest.mark.slow
def test_the_command_answers_in_words_and_as_json(
    made: Made, kept: tuple[Path, str], here: Command
) -> None:
    warehouse, run = kept
    job = min(made.states[3].beliefs)
    asked = ("why", job, "--run", run, "--round", 2, "--warehouse", warehouse)
    answer = why(job, warehouse, run, 2)
    assert here(*asked).out.splitlines() == list(describe_answer(answer))
    (row,) = here(*asked, "--json").rows
    assert (row["run"], row["line"]["place"]) == (run, answer.line.place)
    page = (Path(__file__).parents[2] / "docs" / "why.md").read_text(encoding="utf-8")
    nested = [name for part in row.values() if isinstance(part, dict) for name in part]
    assert [name for name in (*row, *nested) if f"`{name}`" not in page] == []
    assert json.dumps(row["history"])


def test_a_round_that_is_solved_otherwise_is_not_explained(made: Made, tmp_path: Path) -> None:
    number = 5
    records = [*made.records]
    job = records[number].leases[0].job_id
    records[number] = replace(records[number], leases=records[number].leases[1:])
    write(tmp_path, made.start, chained(made.start, records))
    with pytest.raises(WarehouseError, match="round 5: the replayed decision differs"):
        why(job, tmp_path, None, number)


def test_a_changed_record_is_not_explained(made: Made, tmp_path: Path) -> None:
    record, digest, timings = made.rounds[3]
    forged = (replace(record, memory="x"), digest, timings)
    write(tmp_path, made.start, [*made.rounds[:3], forged, *made.rounds[4:]])
    job = min(made.states[3].beliefs)
    with pytest.raises(WarehouseError, match="round 3: was changed after it was recorded"):
        why(job, tmp_path, None, 3)


def test_a_job_that_has_not_arrived_is_refused(made: Made, tmp_path: Path) -> None:
    write(tmp_path, made.start, made.rounds[:1], compact=False)
    last = made.specs[-1].job_id
    with pytest.raises(InputError, match=f"job {last}: has not arrived by round 0"):
        why(last, tmp_path)
    assert len(Analytics(tmp_path).query("FROM runs")[1]) == 1


def test_free_gpus_are_listed_by_type_after_jobs_that_had_a_turn(answers: list[Answer]) -> None:
    answer = of(answers, "waits")[0]
    answer = replace(answer, job=replace(answer.job, scale_factor=2))
    supply = replace(answer.supply, busy=6, total=8)
    needs, held = "It needs 2 GPUs; ", " 6 of 8 are held, by jobs before it in line"
    for left, said in (
        ((("v100", 1), ("p100", 0), ("k80", 1)), "1 v100 and 1 k80 were left for it."),
        ((("v100", 1), ("p100", 1), ("k80", 1)), "1 v100, 1 p100 and 1 k80 were left for it."),
        ((("v100", 0), ("k80", 1)), "1 k80 was left for it."),
        ((("v100", 0), ("k80", 0)), "no v100 or k80 was left for it."),
    ):
        assert f"{needs}{said}{held}" in str(
            replace(answer, supply=replace(supply, free_by_type=left))
        )
    line = replace(answer.line, place=None)
    never = str(replace(answer, line=line, supply=replace(supply, free=1)))
    assert f"The policy {answer.policy} has no place in line for it in this round." in never
    assert f"{needs}one was left by all others. 6 of 8 are held; the last: " in never
    assert "its turn" not in never
