"""`shockwave deployments`: schedules by cron, interval and RRule, which stay when `up` restarts."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import IntervalSchedule

from flows.deployments.deployments import read_deployments
from flows.prefect_server.own_server import reach_server
from predictor.errors import InputError
from tests.flows.conftest import Command, assert_refused

pytestmark = pytest.mark.prefect

NAMES = ("report", "maintenance")

FORM = ("--params", '{"form": {"about": "first"}}')


def register(warehouse: Path) -> None:
    """Put two deployments on the server, as each start of `up` does."""
    for deployment in read_deployments():
        if deployment.name in NAMES:
            deployment.serve(warehouse).apply()


def read(client: SyncPrefectClient, name: str) -> DeploymentResponse:
    return client.read_deployment_by_name(f"{name}/{name}")


@pytest.fixture
def deployed(client: SyncPrefectClient, tmp_path: Path) -> Iterator[Path]:
    register(tmp_path)
    yield tmp_path
    for name in NAMES:
        client.delete_deployment(read(client, name).id)


def rows(here: Command, *shown: str) -> list[tuple[Any, ...]]:
    """Fields of the schedules of the two deployments."""
    ran = here("deployments", "list", "--json")
    assert ran.code == 0, ran.err
    fields = ("deployment", "schedule", *shown)
    return [tuple(map(row.get, fields)) for row in ran.rows if row["deployment"] in NAMES]


def test_schedules_are_set_listed_paused_resumed_and_removed(
    here: Command, client: SyncPrefectClient, deployed: Path
) -> None:
    command = ("deployments", "schedule", "maintenance")
    assert rows(here, "plan", "active") == [
        ("maintenance", "nightly", "0 3 * * *", False),
        ("report", "", "", None),
    ]
    (nightly,) = (each.id for each in read(client, "maintenance").schedules)
    daily = "DTSTART:20300101T020000Z RRULE:FREQ=DAILY"
    for options in (
        ("--cron", "0 4 * * 7", "--zone", "Europe/Berlin", "--name", "nightly"),
        ("--interval", 7200, "--params", '{"form": {"days": 3}}', "--name", "often"),
        ("--rrule", daily),
    ):
        ran = here(*command, *options)
        assert ran.code == 0, ran.err
    assert rows(here, "plan", "zone", "active") == [
        ("maintenance", "main", daily, "UTC", True),
        ("maintenance", "nightly", "0 4 * * 7", "Europe/Berlin", True),
        ("maintenance", "often", "every 7200 s", "UTC", True),
        ("report", "", "", "", None),
    ]
    found = read(client, "maintenance")
    assert nightly in {each.id for each in found.schedules}  # changed, never away
    assert {each.slug: each.parameters for each in found.schedules}["often"] == {
        "form": {"days": 3}
    }

    assert here("deployments", "pause", "maintenance", "--name", "main").code == 0
    assert rows(here, "active")[0] == ("maintenance", "main", False)
    ran = here("deployments", "resume", "maintenance/maintenance")
    assert (ran.code, ran.out) == (0, "maintenance/maintenance: 3 schedules resumed\n")
    assert {active for *_, active in rows(here, "active")} == {True, None}
    assert here("deployments", "unschedule", "maintenance", "--name", "often").code == 0
    assert here("deployments", "unschedule", "maintenance").code == 0
    assert rows(here) == [("maintenance", ""), ("report", "")]

    for line, said in (
        ("pause nobody", "deployment 'nobody': is not on the server; choose from"),
        ("pause maintenance", "has no schedule; make one: shockwave deployments schedule"),
        ('schedule maintenance --interval 60 --params {"from":{}}', "there is no parameter 'from'"),
        ('schedule maintenance --interval 60 --params {"form":{"dayz":3}}', "--params: .*dayz"),
        ("schedule report --interval 60", "--params: .*'form' is a required property"),
        ("unschedule round", "has the rounds of the service, which follow its clock"),
    ):
        ran = here("deployments", *line.split())
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("error: ")
        assert all(part in ran.err for part in said.split(".*")), ran.err


def test_schedules_and_pauses_of_users_stay_when_up_starts_again(
    here: Command, client: SyncPrefectClient, deployed: Path
) -> None:
    """A schedule made in the UI has no name, unlike one of the command; one of ours is changed."""
    made = read(client, "report").id
    plan = IntervalSchedule(interval=timedelta(days=1))
    client.create_deployment_schedules(made, [DeploymentScheduleCreate(schedule=plan)])
    assert here("deployments", "schedule", "maintenance", "--cron", "0 5 * * *").code == 0
    assert here("deployments", "resume", "maintenance", "--name", "nightly").code == 0
    client.pause_deployment(made)
    before = rows(here, "plan", "active")
    assert [row[0] for row in before] == ["maintenance", "maintenance", "report"]
    register(deployed)
    assert rows(here, "plan", "active") == before
    assert client.read_deployment(made).paused

    ran = here("deployments", "schedule", "report", "--name", "often", "--interval", "60", *FORM)
    assert ran.out.endswith("report is paused; resume it: shockwave deployments resume report\n")
    assert here("deployments", "resume", "report", "--name", "often").code == 0
    assert not client.read_deployment(made).paused
    assert [row[2:] for row in rows(here, "plan", "active") if row[0] == "report"] == [
        ("every 86400 s", False),
        ("every 60 s", True),
    ]


def test_a_refused_request_does_not_count_as_a_server_that_is_away(
    client: SyncPrefectClient,
) -> None:
    with pytest.raises(InputError) as caught, reach_server() as opened:
        opened.request("POST", "/flow_runs/", json={})
    assert re.fullmatch(
        r"the Prefect server at http:\S+ refused a request \(.*422.*\)", caught.value.problem
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--cron: is missing; give --cron, --interval or --rrule"),
        (("--cron", "* * * * *", "--interval", "60"), "--interval: does not go with --cron; give"),
        (("--cron", "61 * * * *"), "--cron: '61 * * * *' is not valid; give minute, hour, day"),
        (("--rrule", "FREQ=NEVER"), "--rrule: 'FREQ=NEVER' is not valid; give a rule of RFC 5545"),
        (("--interval", "1e300"), "--interval: 1e+300 is not valid; give seconds"),
        (("--interval", "0"), "Invalid value for '--interval': Input should be greater"),
        (("--interval", "60", "--zone", "Mars"), "--zone: 'Mars' is no time zone; give a name"),
        (("--interval", "60", "--params", "{"), "--params: is not JSON"),
        (("--interval", "60", "--params", "[1]"), "--params: is not an object of JSON"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(
    here: Command, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    asked = ("deployments", "schedule", "campaign", *options, "--warehouse", tmp_path)
    assert_refused(here(*asked), said)
