"""The commands of a service: its answers, and the requests that it takes."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from flows.api.commands import ServiceCommands
from flows.api.history import ServiceHistory
from flows.api.requests import WindowRequest
from flows.explain.facts import Unforecast
from flows.explain.why import why
from predictor.allocation import Demand
from predictor.errors import InputError, WarehouseError
from predictor.job import Mode
from tasks.commands import CommandKind
from tests.flows.test_scheduler import JOB, go
from warehouse.inbox.entries import Entry
from warehouse.inbox.inbox import Inbox
from warehouse.store.folder import place_of


def statuses(commands: ServiceCommands) -> dict[int, str]:
    return {row.job_id: row.status for row in commands.list_jobs()}


def test_a_warehouse_without_a_service_is_a_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no service; .* or SHOCKWAVE_WAREHOUSE"):
        ServiceCommands(tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_job_goes_from_accepted_to_its_end(tmp_path: Path) -> None:
    name = go(tmp_path, 1, jobs=[JOB])
    with ServiceCommands(tmp_path) as commands:
        (held,) = commands.submit(replace(JOB, name="nightly", mode=Mode.STATIC), by="ann")
        (wide,) = commands.submit(replace(JOB, demand=Demand.gang(4)))
        (last,) = commands.submit(replace(JOB, demand=Demand.gang(4), name="nightly"))
        assert statuses(commands) == {1: "runs", 2: "accepted", 3: "accepted", 4: "accepted"}
        assert [row.status for row in commands.list_queue()] == ["runs", *["accepted"] * 3]
        assert commands.find_job("nightly") == last.number
        ahead = commands.forecast_job(replace(JOB, demand=Demand.gang(4)))
        assert ahead.ends_low_s is not None
        assert 0.0 <= ahead.ends_low_s <= ahead.ends_in_s <= ahead.ends_high_s  # type: ignore[operator]
        assert ahead.rho_low <= ahead.rho <= ahead.rho_high  # type: ignore[operator]
        commands.command(CommandKind.HOLD, str(held.number))
        commands.command(CommandKind.CANCEL, "nightly", by="ann")
        go(tmp_path, 1)
        found = commands.get_status()
        assert (found.run, found.rounds, found.pending, found.held) == (name, 2, 0, 1)
        queue = {row.job_id: row for row in commands.list_queue()}
        assert queue[held.number].status == "held"
        assert queue[held.number].starts_in_s is None
        assert queue[last.number].status == "cancelled"
        active = [queue[1], queue[wide.number]]
        assert {row.status for row in active} == {"runs", "waits"}
        assert all(row.ends_in_s is not None and row.rho is not None for row in active)
        for job in (1, wide.number, held.number):  # as from the beginning of the records
            answer, again = commands.explain(job), why(job, tmp_path, name)
            assert answer == replace(again, prospects=answer.prospects)
            assert (answer.prospects.finish_seconds is None) == (job == held.number)
            if ahead := answer.prospects.finish_seconds:
                assert ahead.median == answer.clock_seconds + queue[job].ends_in_s  # type: ignore[operator]
        go(tmp_path, 1)
        ended = commands.explain(last.number)
        assert ended == why(last.number, tmp_path, name, most_simulated=0)
        assert (ended.round, ended.prospects.missing) == (1, Unforecast.ENDED)
        assert "predicted" not in str(ended)
        assert statuses(commands)[last.number] == "withdrawn"
        assert {row.job_id: row.done for row in commands.list_jobs()}[last.number] is None
        events = commands.list_events(after_round=0)
        assert ("cancel", last.number, "nightly", "by ann") in [
            (row.kind, row.job_id, row.name, row.reason) for row in events
        ]
        assert {row.round for row in events} == {1, 2}


def test_a_job_that_no_node_in_service_can_hold_has_no_start(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(replace(JOB, mode=Mode.STATIC))
        inbox.submit(replace(JOB, demand=Demand.gang(4)))
        inbox.command(CommandKind.DRAIN, 1)
    go(tmp_path, 2)
    with ServiceCommands(tmp_path) as commands:
        small, large = sorted(commands.list_queue(), key=lambda row: row.job_id)
        assert (small.status, large.status) == ("runs", "waits")
        assert small.ends_in_s is not None
        assert large.starts_in_s is None


@pytest.mark.slow
def test_records_that_were_changed_on_disk_are_not_shown(tmp_path: Path) -> None:
    run = go(tmp_path, 3, jobs=[JOB])
    with ServiceCommands(tmp_path) as commands:
        assert commands.list_jobs()
        path = sorted(place_of(tmp_path, run).glob("round=0*.parquet"))[0]
        table = pq.read_table(path, partitioning=None)
        at = table.schema.get_field_index("clock_seconds")
        later = pc.add(table["clock_seconds"], 1.0)
        pq.write_table(table.set_column(at, table.schema.field(at), later), path)
        with ServiceCommands(tmp_path) as other:  # the first has read what arrived
            for ask in (other.list_jobs, commands.list_events, commands.list_prices):
                with pytest.raises(WarehouseError, match="was changed"):
                    ask()


@pytest.mark.slow
def test_a_round_that_lands_meanwhile_shows_no_job_twice(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
        go(tmp_path, 1)
        inbox.submit(JOB)

    class Meanwhile(ServiceCommands):
        def history(self) -> ServiceHistory:
            found = super().history()
            go(tmp_path, 1)
            return found

    with Meanwhile(tmp_path) as commands:
        statuses = [(row.job_id, row.status) for row in commands.list_jobs()]
        assert statuses == [(1, "runs"), (2, "accepted")]


@pytest.mark.slow
def test_what_is_asked_of_nodes_again_is_what_was_asked_first(tmp_path: Path) -> None:
    go(tmp_path, 1, jobs=[JOB])

    def asked(commands: ServiceCommands) -> list[Entry]:
        removed = commands.command(CommandKind.REMOVE, "1", key="remove")
        return [
            *removed,
            commands.add_node({}, key="any"),
            commands.add_node({"gpus": 2}, key="two"),
        ]

    with ServiceCommands(tmp_path) as commands:
        first = asked(commands)
        go(tmp_path, 1)
        assert 1 not in [row.node for row in commands.list_nodes()]
        assert asked(commands) == first
        for other in ({"gpus": 3}, {"name": "x"}):
            with pytest.raises(InputError, match=r"^key: was used before, for entry"):
                commands.add_node(other, key="two")
        with pytest.raises(InputError, match=r"^key: was used before, for entry"):
            commands.command(CommandKind.DRAIN, "1", key="any")
        with pytest.raises(InputError, match=r"^key: was used before, for entry"):
            commands.add_node({}, key="remove")
        with pytest.raises(InputError, match=r"there is no node '1'"):
            commands.command(CommandKind.REMOVE, "1", key="new")


def test_windows_of_a_zone_keep_their_time_of_day_over_summer_time() -> None:
    now = datetime(2026, 10, 20, tzinfo=UTC)
    rule = {"hours": 2.0, "start": "2026-10-23T09:00:00+02:00", "rrule": "FREQ=WEEKLY;COUNT=2"}
    for zone, hour in (("", 7), ("Europe/Berlin", 8)):
        starts = WindowRequest.model_validate(rule | {"zone": zone}).list_starts(now)
        assert starts == [
            datetime(2026, 10, day, h, tzinfo=UTC) for day, h in ((23, 7), (30, hour))
        ]
    day = {"hours": 24.0, "start": "2026-10-24T00:00:00+02:00", "rrule": "FREQ=DAILY;COUNT=3"}
    assert len(WindowRequest.model_validate(day | {"zone": "Europe/Berlin"}).list_starts(now)) == 3
    for last in ({"hours": 100.0}, {"hours": 100.0, "rrule": "FREQ=DAILY;COUNT=1"}):
        late = WindowRequest.model_validate(last | {"start": "9999-12-31T23:00Z"})
        with pytest.raises(InputError, match="start: is out of bounds"):
            late.list_starts(now)
    spring = day | {"start": "2027-03-28T00:00:00+01:00", "zone": "Europe/Berlin"}
    with pytest.raises(InputError, match="the windows overlap"):  # that day has 23 hours
        WindowRequest.model_validate(spring).list_starts(now)


def test_why_says_that_an_order_preempted_a_job(tmp_path: Path) -> None:
    go(tmp_path, 1, jobs=[replace(JOB, epochs=4_000, total_steps=0)])
    with ServiceCommands(tmp_path) as commands:
        commands.inbox.command(CommandKind.REQUEUE, 1)
        go(tmp_path, 1)
        said = str(commands.explain(1))
    assert "An order put it back in line" in said
    assert "It is preempted by that order, and its GPUs are left idle." in said
