"""What-if from now: the effect of a change on a service, which does not change."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.api.commands import ServiceCommands
from flows.api.forecast import forecast_change
from flows.api.requests import WhatIf, WindowRequest
from flows.cli.service import forecast
from flows.runs.job_file import JobFile
from flows.scheduler.options import ServiceOptions
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import Mode
from predictor.options import JobOptions
from tasks.commands import CommandKind
from tests.flows.conftest import Command, assert_refused
from tests.flows.test_scheduler import JOB, go
from warehouse.inbox.inbox import Inbox

LONG = replace(JOB, mode=Mode.STATIC, max_batch_size=32, epochs=4_000, total_steps=0)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service on four GPUs, all of them held by tenant a, in which tenant b waits."""
    folder = tmp_path_factory.mktemp("busy")
    wide = replace(LONG, demand=Demand.gang(4), name="wide")
    go(folder, 2, jobs=[wide, replace(wide, tenant="b", name="other")])
    return folder


@pytest.mark.slow
def test_a_change_is_played_and_nothing_of_it_is_kept(busy: Path) -> None:
    with ServiceCommands(busy) as commands:
        last = commands.inbox.last()
        wide, other = forecast_change(commands, WhatIf())
        assert (wide.later_s, other.later_s) == (0.0, 0.0)
        running, waiting = (wide, other) if wide.starts_in_s == 0.0 else (other, wide)
        assert waiting.starts_in_s is not None
        assert waiting.starts_in_s > 0.0
        job = JobFile(name="new", model="conv-small", batch_size=32, epochs=40)
        *_, new = forecast_change(commands, WhatIf(submit=[job], cancel=[running.name]))
        assert (new.job_id, new.name, new.starts_in_s, new.later_s) == (3, "new", None, None)
        assert new.whatif_ends_in_s is not None
        # A job that comes now is a sign of others to come, behind which the freed one may end.
        rows = forecast_change(commands, WhatIf(cancel=[running.name]))
        freed = next(row for row in rows if row.job_id == waiting.job_id)
        assert freed.whatif_starts_in_s is not None
        assert freed.whatif_starts_in_s < waiting.starts_in_s / 2
        assert freed.later_s is not None
        assert freed.later_s < 0.0
        gone = next(row for row in rows if row.job_id == running.job_id)
        assert (gone.whatif_starts_in_s, gone.later_s) == (None, None)
        assert commands.inbox.last() == last
        assert forecast_change(commands, WhatIf()) == [wide, other]
        array = job.model_copy(update={"array": "0-3%1", "after": ["wide"]})
        assert [row.job_id for row in forecast_change(commands, WhatIf(submit=[array, job]))] == [
            *range(1, 8)
        ]


@pytest.mark.slow
def test_a_drained_node_and_a_larger_budget_are_supposed(here: Command, busy: Path) -> None:
    def forecast(*words: object) -> dict[str, dict[str, Any]]:
        ran = here("service", "forecast", *words, "--warehouse", busy, "--json")
        return {row["name"]: row for row in ran.rows}

    drained, plain = forecast("--drain", 3), forecast()
    assert {row["whatif_starts_in_s"] for row in drained.values()} == {None}  # both need all four
    waiting = next(row for row in plain.values() if row["starts_in_s"])
    given = forecast("--budget", f"{waiting['tenant']}=100000")
    assert given[waiting["name"]]["later_s"] < 0.0
    assert "whatif_rho" not in waiting


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cordon", "9"), "there is no node '9'"),
        (("--drain", "9"), "there is no node '9'"),
        (("--cancel", "none"), "there is no job 'none'"),
        (("--cancel", "wdie"), "there is no job 'wdie'; did you mean wide? see"),
        (("--budget", "none=2"), "tenant 'none' has no active job"),
        (("--budget", "a=x"), "'a=x' is not TENANT=FACTOR"),
        (("--submit", "none.toml"), "none.toml"),
    ],
)
def test_a_change_of_nothing_is_refused(
    here: Command, busy: Path, words: tuple[str, ...], said: str
) -> None:
    assert_refused(here("service", "forecast", *words, "--warehouse", busy), said)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service on four GPUs, one of them drained, in which a job of all four waits."""
    folder = tmp_path_factory.mktemp("short")
    with Inbox(folder) as inbox:
        inbox.submit(replace(LONG, demand=Demand.gang(4), name="wide"))
        inbox.submit(replace(LONG, name="small"))
        inbox.command(CommandKind.DRAIN, 3)
    go(folder, 2)
    return folder


def test_a_node_that_would_be_back_lets_a_gang_run(short: Path) -> None:
    with ServiceCommands(short) as commands:
        rows = {row.name: row for row in forecast_change(commands, WhatIf(uncordon=["3"]))}
    assert rows["wide"].ends_in_s is None
    assert rows["wide"].whatif_ends_in_s is not None
    assert rows["small"].whatif_ends_in_s is not None


def test_why_counts_the_gpus_in_service_and_names_the_nodes_that_are_not(short: Path) -> None:
    with ServiceCommands(short) as commands:
        answer = commands.explain(1)
    assert (answer.supply.total, answer.supply.free, answer.obstacles.gpus_short) == (3, 1, 3)
    text = str(answer)
    assert "It needs 4 GPUs, and only 3 are in service: it cannot run until node 3 is back" in text
    assert "were left" not in text
    assert "cannot be predicted" not in text


@pytest.mark.slow
def test_a_gang_is_forecast_to_start_after_the_maintenance_of_its_node(tmp_path: Path) -> None:
    slow = ServiceOptions(gpus=4, speed=100.0, driver="plain")
    go(tmp_path, 1, slow, jobs=[replace(LONG, demand=Demand.gang(4), name="wide")])
    with ServiceCommands(tmp_path) as commands:
        commands.add_windows("0", WindowRequest(hours=1.0))
    go(tmp_path, 2, slow)
    with ServiceCommands(tmp_path) as commands:
        (window,), (wide,) = commands.list_windows(), commands.list_queue()
        answer = commands.explain(1)
    assert wide.starts_low_s is not None
    assert window.ends_in_s - 120.0 <= wide.starts_low_s
    assert wide.starts_in_s == pytest.approx(window.ends_in_s, abs=120.0)
    until = f"node 0 is under maintenance until {window.ends_in_s + answer.clock_seconds:,.0f} s"
    assert wide.waits_for == f"4 GPUs, 3 in service; {until}"
    assert f"Node 0 (from 0) is {until.partition(' is ')[2]}." in str(answer)


def test_why_says_that_a_job_keeps_running_on_a_cordoned_node(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(replace(LONG, name="small"))
        go(tmp_path, 1)
        inbox.command(CommandKind.CORDON, 0)
        inbox.submit(replace(LONG, demand=Demand.gang(4), name="wide"))
    go(tmp_path, 1)
    with ServiceCommands(tmp_path) as commands:
        small, wide = commands.explain(1), commands.explain(3)
    assert small.holding.keeps == "cordoned"
    assert "It runs on a cordoned node, and keeps its GPUs there" in str(small)
    assert "no share" not in str(small)
    assert (wide.holding.keeps, wide.obstacles.gpus_short, wide.supply.free) == ("", 3, 2)
    assert "Node 0 (from 0) is cordoned: no job starts there." in str(wide)
    few = "only 3 are in service and not cordoned: it cannot run until node 0 is back"
    assert f"{few} (shockwave node uncordon 0), or others are added" in str(wide)
    assert "cannot be predicted" not in str(wide)


def test_jobs_that_would_not_end_are_listed_with_the_reason(
    short: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServiceCommands(short) as commands:
        queue = {row.name: row.waits_for for row in commands.list_queue()}
        reasons = {row.name: row.reason for row in commands.list_jobs()}
        rows = forecast_change(commands, WhatIf(drain=["1", "2"]))
        asked = forecast_change(commands, WhatIf(cancel=["small"], hold=["wide"]))
    assert queue == reasons == {"wide": "4 GPUs, 3 in service", "small": ""}
    too_few = {"wide": "waits for 4 GPUs, 1 in service", "small": "waits for 2 GPUs, 1 in service"}
    assert {row.name: row.whatif_reason for row in rows} == too_few
    assert {row.whatif_reason for row in asked} == {"is cancelled", "is on hold"}
    forecast(warehouse=short, drain=["1", "2"])
    head, *_, changed, unending = capsys.readouterr().out.splitlines()
    assert "whatif_ends_in_s" in head
    assert changed == "0 jobs should end later, 0 earlier"
    assert unending == "2 jobs would not end: " + "; ".join(f"{n} {r}" for n, r in too_few.items())


@pytest.mark.slow
def test_what_is_accepted_comes_before_a_change(tmp_path: Path) -> None:
    go(tmp_path, 1, jobs=[replace(LONG, name="first")])
    with ServiceCommands(tmp_path) as commands:
        (held,) = commands.submit(replace(JOB, name="accepted"))
        assert (
            commands.forecast_job(replace(JOB, options=JobOptions(after=(held.number,)))).status
            == "waits"
        )
        job = JobFile(name="new", model="conv-small", batch_size=32, epochs=40, after=["accepted"])
        _, accepted, new = forecast_change(commands, WhatIf(submit=[job]))
        assert accepted.ends_in_s is not None
        assert new.whatif_starts_in_s is not None
        assert new.whatif_starts_in_s > 0.0


def test_a_change_has_no_more_jobs_than_an_array(busy: Path) -> None:
    array = JobFile(name="new", model="conv-small", batch_size=32, epochs=40, array="0-999")
    with (
        ServiceCommands(busy) as commands,
        pytest.raises(InputError, match="has more than 1,000 jobs and tasks"),
    ):
        forecast_change(commands, WhatIf(submit=[array, array.model_copy(update={"array": "0"})]))
