from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from containers.runtime import Lease
from flows.explain.replay import replay
from flows.runs.resuming import resume
from flows.runs.simulation import simulate
from predictor.errors import InputError, WarehouseError
from solver.market import Bid
from tasks.layout import VERSION
from tasks.record import RoundRecord, Timings, hash_record
from tasks.replay import Difference
from tests.runs import POLICIES, Made, chained, ended, start_of, tiny, write
from warehouse.analytics.questions import Analytics
from warehouse.store.checks import check_warehouse
from warehouse.store.files import HEADER
from warehouse.store.folder import place_of, records_folder
from warehouse.store.reader import Reader

Change = Callable[[RoundRecord], RoundRecord]


@pytest.fixture(scope="module")
def made() -> Made:
    return ended()


def forged(made: Made, number: int, change: Change) -> list[tuple[RoundRecord, str, Timings]]:
    """The rounds of a run of which one record was changed, and not its hash."""
    rounds = list(made.rounds)
    record, digest, timings = rounds[number]
    assert change(record) != record
    rounds[number] = (change(record), digest, timings)
    return rounds


def replayed(
    folder: Path, made: Made, number: int, change: Change
) -> tuple[list[tuple[int, str]], list[Difference]]:
    """Replay a run of which one record was changed, and the whole chain written anew.

    Returns:
        The fields that came out otherwise.
    """
    rounds = chained(made.start, [record for record, _, _ in forged(made, number, change)])
    comparison = replay(write(folder, made.start, rounds), folder)
    assert comparison.rounds == len(rounds)
    return [(d.round, d.field) for d in comparison.differences], comparison.differences


def busy(made: Made, where: Callable[[RoundRecord], object] = lambda record: True) -> int:
    """A round in the middle with at least three bids."""
    return next(r.round for r in made.records[2:] if len(r.bids) > 2 and where(r))


def longer_remaining(record: RoundRecord) -> RoundRecord:
    first, *others = record.estimates
    longer = replace(first, remaining_seconds=first.remaining_seconds + 1.0)
    return replace(record, estimates=(longer, *others))


def more_work(record: RoundRecord) -> RoundRecord:
    first, *others = record.forecasts
    more = replace(first, high=(first.high[0] + 1.0, *first.high[1:]))
    return replace(record, forecasts=(more, *others))


def nudged(bid: Bid) -> Bid:
    return replace(bid, utility=bid.utility + 1e-6)


def other_utility(record: RoundRecord) -> RoundRecord:
    return replace(record, bids=(*record.bids[:-1], nudged(record.bids[-1])))


def later(record: RoundRecord) -> RoundRecord:
    return replace(record, clock_seconds=record.clock_seconds + 1.0)


def list_numbers(part: Any) -> Iterator[float]:
    """Yield the numbers of a part of a record."""
    if isinstance(part, float | int):
        yield float(part)
    elif isinstance(part, list | dict):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from list_numbers(inner)


def ends_next(records: Sequence[RoundRecord], record: RoundRecord) -> set[int]:
    if record.round + 1 == len(records):
        return set()
    return {event.job_id for event in records[record.round + 1].finished}


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_a_finished_run_replays_identically(tmp_path: Path, policy: str) -> None:
    made = ended(policy)
    for compact in (True, False):
        name = write(tmp_path, made.start, made.rounds, compact=compact)
        comparison = replay(name, tmp_path)
        assert (comparison.rounds, comparison.differences) == (len(made.rounds), [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "field"),
    [(more_work, "forecasts"), (longer_remaining, "estimates"), (other_utility, "bids")],
)
def test_one_changed_number_is_found_where_it_is(
    tmp_path: Path, made: Made, change: Change, field: str
) -> None:
    number = busy(made)
    # Who changes a record without its hash breaks the chain.
    run = write(tmp_path / "forged", made.start, forged(made, number, change))
    with pytest.raises(WarehouseError, match=f"round {number}: was changed after it was recorded"):
        replay(run, tmp_path / "forged")
    # Who writes the whole chain anew is found out all the same.
    names, differences = replayed(tmp_path, made, number, change)
    assert names[0] == (number, field)
    assert differences[0].recorded != differences[0].replayed
    # Later intervals are calibrated by the forecasts before them, and nothing else follows.
    later = {name for _, name in names[1:]}
    assert later <= ({"estimates"} if field == "forecasts" else set())


def test_a_changed_launch_is_found(tmp_path: Path, made: Made) -> None:
    # A job that ends in the round, or else the next round would keep it where it is.
    number = busy(
        made, lambda record: ends_next(made.records, record) & {x.job_id for x in record.leases}
    )
    ending = ends_next(made.records, made.records[number])

    def moved(record: RoundRecord) -> RoundRecord:
        return replace(
            record,
            leases=tuple(
                Lease(launch.job_id, tuple((gpu + 1) % 8 for gpu in launch.gpus))
                if launch.job_id in ending
                else launch
                for launch in record.leases
            ),
        )

    names, _ = replayed(tmp_path, made, number, moved)
    assert names == [(number, "leases")]


def test_another_clock_is_an_input_and_gives_other_bids(tmp_path: Path, made: Made) -> None:
    number = busy(made)
    names, differences = replayed(tmp_path, made, number, later)
    assert (number, "bids") in names  # finish-time fairness sees the clock
    for there in differences:  # fair finishes only pass the clock on their way: rounding differs
        if there.round != number:
            assert there.field in {"fair_finishes", "bids", "solve"}
            before, after = (list(list_numbers(of)) for of in (there.recorded, there.replayed))
            assert before == pytest.approx(after, rel=1e-9)
    assert not {field for _, field in names} & {"clock_seconds", "forecasts", "previous_hash"}


def test_a_changed_record_or_header_breaks_the_chain(tmp_path: Path, made: Made) -> None:
    changed = forged(made, 3, later)
    hashed = list(changed)
    hashed[3] = (hashed[3][0], hash_record(hashed[3][0]), hashed[3][2])
    another = start_of(replace(made.header, source="another"), made.start.workload)
    for start, rounds, number in (
        (made.start, changed, 3),
        (made.start, hashed, 4),  # a new hash does not hide it from the next record
        (another, made.rounds, 0),
    ):
        run = write(tmp_path, start, rounds)
        said = f"round {number}: was changed after it was recorded"
        with pytest.raises(WarehouseError, match=said):
            replay(run, tmp_path)


def test_one_round_alone_is_replayed(tmp_path: Path, made: Made) -> None:
    number = busy(made)
    rounds = [
        (longer_remaining(record) if record.round == number else record, digest, timings)
        for record, digest, timings in made.rounds
    ]
    name = write(tmp_path, made.start, chained(made.start, [record for record, _, _ in rounds]))
    for only, expected in ((number - 1, []), (number, [(number, "estimates")]), (number + 1, [])):
        comparison = replay(name, tmp_path, only=only)
        assert comparison.rounds == 1
        assert [(d.round, d.field) for d in comparison.differences] == expected


@pytest.mark.parametrize("only", [-1, 999])
def test_a_round_that_is_not_there_is_refused(tmp_path: Path, made: Made, only: int) -> None:
    name = write(tmp_path, made.start, made.rounds)
    with pytest.raises(InputError) as caught:
        replay(name, tmp_path, only=only)
    assert caught.value.place == "round"
    assert f"no round {only}" in caught.value.problem
    assert str(len(made.rounds)) in caught.value.remedy


@pytest.mark.slow
def test_a_replay_says_whether_the_run_had_ended(made: Made, tmp_path: Path) -> None:
    whole = replay(write(tmp_path / "whole", made.start, made.rounds), tmp_path / "whole")
    cut = replay(write(tmp_path / "cut", made.start, made.rounds[:-3]), tmp_path / "cut")
    assert (whole.complete, whole.differences) == (True, [])
    assert (cut.complete, cut.differences) == (False, [])


def test_a_run_does_not_go_on_from_a_changed_record(made: Made, tmp_path: Path) -> None:
    rounds = list(made.rounds[:6])
    record, digest, timings = rounds[2]
    solve = replace(record.solve, objective=record.solve.objective + 1.0)
    rounds[2] = (replace(record, solve=solve), digest, timings)
    run = write(tmp_path, made.start, rounds)
    before = {path: path.read_bytes() for path in place_of(tmp_path, run).iterdir()}
    with pytest.raises(WarehouseError, match="round 2: was changed after it was recorded"):
        resume(run, tmp_path)
    assert {path: path.read_bytes() for path in place_of(tmp_path, run).iterdir()} == before


def test_a_run_of_another_layout_is_not_read(made: Made, tmp_path: Path) -> None:
    run = write(tmp_path, made.start, [])
    path = place_of(tmp_path, run) / "header.parquet"
    (row,) = pq.read_table(path, partitioning=None).to_pylist()
    table = pa.Table.from_pylist([row | {"version": VERSION + 1}], schema=HEADER)
    pq.write_table(table, path)
    refused = f"has records of layout {VERSION + 1}, not {VERSION}; read it with the version"
    with pytest.raises(InputError, match=refused):
        Reader(tmp_path).header(run)


def test_a_warehouse_with_runs_of_another_layout_takes_new_ones(tmp_path: Path) -> None:
    simulate(tiny("fifo", jobs=2), tmp_path)
    records_folder(tmp_path).rename(records_folder(tmp_path).with_name("layout=99"))
    run = simulate(tiny("srtf", jobs=2), tmp_path)
    assert Analytics(tmp_path).query("SELECT run FROM runs")[1] == [(run,)]


def test_a_warehouse_of_another_layout_is_refused(made: Made, tmp_path: Path) -> None:
    run = write(tmp_path, made.start, [])
    records_folder(tmp_path).rename(records_folder(tmp_path).with_name("layout=99"))
    remedy = "read it with the version of Shockwave that wrote it"
    with pytest.raises(InputError, match=f"has records of layout=99, not .*; {remedy}"):
        check_warehouse(tmp_path)
    with pytest.raises(
        InputError, match=f"run '{run}': has records of layout 99, not .*; {remedy}"
    ):
        Reader(tmp_path).header(run)
