"""Alerts: when each is reported, and their events and automations in Prefect."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from prefect.automations import Automation, SendNotification
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient

from containers.runtime import NodeProblem
from flows.api.alerts import PATIENT_SECONDS, Alert, AlertKind, Watch
from flows.api.commands import ServiceCommands
from flows.api.history import ServiceHistory
from flows.api.notices import Notice, NoticeKind, Told, list_notices, name_user_block, tell_all
from flows.api.queries import ServiceQueries
from flows.deployments.alerting import (
    AUTOMATIONS,
    REPORTED,
    TOLD,
    emit_alert,
    emit_notice,
    label_owner,
    look,
    make_automations,
    read_reported,
    read_told,
    tell,
    write_reported,
)
from flows.prefect_server.access import Access
from flows.scheduler.process import FOLDER
from harness.waiting import HANG_SECONDS, wait_for
from predictor.errors import WarehouseError
from predictor.options import JobOptions
from tasks.commands import CommandKind
from tests.flows.test_scheduler import FAST, JOB, go
from tests.ui.attacks import ask, authorization
from warehouse.inbox.inbox import Inbox

ROUND_SECONDS = FAST.round_seconds
PATIENCE = 2 * ROUND_SECONDS + PATIENT_SECONDS


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of a service with a running job."""
    warehouse = tmp_path_factory.mktemp("alerts")
    go(warehouse, 2, jobs=[replace(JOB, epochs=4000, total_steps=0, name="long")])
    return warehouse


@pytest.fixture(scope="module")
def found(service: Path) -> ServiceHistory:
    with ServiceCommands(service) as commands:
        return commands.read_history()


def new(
    watch: Watch, found: ServiceHistory, lag: float = 0.0, now: float = 0.0
) -> list[tuple[str, int]]:
    return [(alert.kind.value, alert.round) for alert in watch.look(found, lag, now)]


def test_a_round_is_late_once_recorded_so_or_missing_while_jobs_run(found: ServiceHistory) -> None:
    watch = Watch("r", 1.0, 0.0)
    assert new(watch, found) == []
    assert new(watch, found, now=PATIENCE) == []
    assert new(watch, found, now=PATIENCE + 1) == [("round.late", 2)]
    assert new(watch, found, now=PATIENCE + 9) == []
    position = replace(found.position, late=found.position.late + 1)
    assert new(watch, replace(found, position=position), now=PATIENCE + 10) == [("round.late", 1)]
    idle = replace(found.state, leases={})
    nothing = replace(found, position=replace(position, state=idle))
    assert new(watch, nothing, now=10 * PATIENCE) == []
    assert new(watch, nothing, now=20 * PATIENCE) == []


def test_an_inbox_is_stuck_for_as_long_as_somebody_has_seen_it(found: ServiceHistory) -> None:
    watch = Watch("r", ROUND_SECONDS, 100.0)  # a round a second
    short = 2 + PATIENT_SECONDS
    idle = replace(found.state, leases={})
    found = replace(found, position=replace(found.position, state=idle))
    assert (
        new(watch, found, lag=1e6, now=100.0 + short) == []
    )  # the entry lay there while the service was down
    assert new(watch, found, lag=1e6, now=101.0 + short) == [("inbox.stuck", 1)]
    assert new(watch, found, lag=1e6, now=102.0 + short) == []
    assert new(watch, found, lag=short, now=103.0 + short) == []
    assert new(watch, found, lag=1e6, now=104.0 + short) == [("inbox.stuck", 1)]


def test_a_node_is_down_unless_somebody_ordered_it(found: ServiceHistory) -> None:
    assert found.last
    watch = Watch("r", 1.0, 0.0)
    problems = (NodeProblem(1, "its disk is full"),)
    last = replace(found.last, problems=problems, solve=replace(found.last.solve, drained=(1, 2)))
    ordered = replace(found.state, orders=replace(found.state.orders, drained=frozenset({2})))
    ailing = replace(found, last=last, position=replace(found.position, state=ordered))
    (alert,) = watch.look(ailing, 0.0, 0.0)
    assert alert == Alert(
        AlertKind.DOWN, "r", last.round, "node 1 is out of service: its disk is full", node=1
    )
    assert new(watch, ailing) == []
    assert new(watch, found) == []
    assert new(watch, ailing) == [("node.down", last.round)]


def test_a_job_is_unfair_when_that_cannot_be_avoided_any_more(found: ServiceHistory) -> None:
    assert found.last
    watch = Watch("r", 1.0, 0.0)
    assert new(watch, found) == []  # the job runs alone
    late = replace(found, last=replace(found.last, clock_seconds=1e9))
    (alert,) = watch.look(late, 0.0, 1.0)
    (job_id,) = found.state.beliefs
    assert (alert.kind, alert.job) == (AlertKind.UNFAIR, job_id)
    assert alert.text.startswith(f"job {job_id} (long) will have ρ of ")
    assert new(watch, late) == []


def test_a_restart_reports_no_standing_alert_again(found: ServiceHistory, tmp_path: Path) -> None:
    assert found.last
    broken = replace(found.last, solve=replace(found.last.solve, drained=(1,)))
    ailing, patient = replace(found, last=broken), PATIENCE + 1
    watch = Watch("r", 1.0, 0.0)
    assert new(watch, ailing) == [("node.down", 1)]
    late = [("round.late", 2), ("inbox.stuck", 1)]
    assert new(watch, ailing, lag=patient, now=patient) == late
    assert read_reported(tmp_path) == frozenset()
    (tmp_path / FOLDER).mkdir()
    write_reported(tmp_path, watch.known)
    assert read_reported(tmp_path) == watch.known
    again = Watch("r", 1.0, 0.0, read_reported(tmp_path))
    assert new(again, ailing, lag=patient) == []
    assert new(again, ailing, lag=patient, now=patient) == []
    assert new(again, found, now=patient) == []  # the node is back, and the inbox empty
    assert new(again, ailing, lag=patient, now=patient) == [("node.down", 1), ("inbox.stuck", 1)]
    (tmp_path / FOLDER / REPORTED).write_text('[["node.up", 1]]')
    assert read_reported(tmp_path) == frozenset()


def test_what_could_not_be_kept_is_kept_with_the_next_look(
    service: Path, found: ServiceHistory
) -> None:
    stands = frozenset({(AlertKind.DOWN, 1)})
    write_reported(service, stands)
    seen, file = Watch("r", 1.0, 0.0, stands), service / FOLDER / REPORTED
    file.unlink()
    file.mkdir()
    with ServiceCommands(service) as commands:
        with pytest.raises(WarehouseError):
            look(service, commands, seen, stands)
        assert seen.known == frozenset()  # the node is back
        file.rmdir()
        assert look(service, commands, seen, stands) == frozenset()
    assert json.loads(file.read_text()) == []


def test_owners_hear_once_that_their_jobs_started_and_ended(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        number = inbox.submit(replace(JOB, name="train", tenant="vision"), by="Ann").number
        go(tmp_path, 2)
        with ServiceQueries(tmp_path) as service:
            started, told = list_notices(service, Told())
            assert list_notices(service, told) == ([], told)
            assert tell(tmp_path, service, None) == told == read_told(tmp_path)
        (notice,) = started
        text = f"job {number} (train) has started on 2 GPUs"
        run = inbox.run
        assert notice == Notice(NoticeKind.STARTED, run, 1, number, "vision", "Ann", text)
        after = replace(JOB, tenant="nlp", options=JobOptions(after=(number,)))
        waiting = inbox.submit(after, by="bo").number
        inbox.command(CommandKind.CANCEL, number)
        go(tmp_path, 3)
    with ServiceQueries(tmp_path) as service:
        new, now = list_notices(service, read_told(tmp_path) or Told())
        assert list_notices(service, now) == ([], now)
        history = service.read_history()
        assert now == tell_all(history)
        assert list_notices(service, Told())[0] == new  # ends are told without a start
    notice, other = new
    assert (other.kind, other.job, other.tenant) == (NoticeKind.ENDED, waiting, "nlp")
    assert (
        other.text == f"job {waiting} has ended: withdrawn: other jobs, before it, did not end well"
    )
    assert (notice.kind, notice.job, notice.user) == (NoticeKind.ENDED, number, "Ann")
    assert notice.text.startswith(f"job {number} (train) has ended: withdrawn: ")
    (tmp_path / FOLDER / TOLD).write_text("[0]")
    assert read_told(tmp_path) is None


@contextmanager
def listening() -> Iterator[tuple[str, list[bytes]]]:
    """A program that receives alerts: its address, and what it received."""
    heard = list[bytes]()

    class Chat(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Chat) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", heard
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.prefect
def test_prefect_has_an_automation_for_each_alert_and_fires_it(client: SyncPrefectClient) -> None:
    make_automations()
    with listening() as (url, heard):
        block = CustomWebhookNotificationBlock(
            name="chat", url=url, json_data={"text": "{{body}}"}, timeout=HANG_SECONDS
        )
        own = Automation.read(name=AUTOMATIONS[AlertKind.DOWN][0])
        own.actions = [
            SendNotification(
                block_document_id=block.save("chat", overwrite=True),
                body="{{ event.payload.text }}",
            )
        ]
        own.update()
        make_automations()  # as the next start does
        job, node = {AlertKind.UNFAIR: 7}, {AlertKind.DOWN: 3}
        for kind in AlertKind:
            emit_alert(Alert(kind, "service-1", 5, f"it is {kind}", job.get(kind), node.get(kind)))
        wait_for(lambda: heard, lambda found: len(found) == 1, every=0.2)
    assert json.loads(heard[0]) == {"text": "it is node.down"}
    names = {name for name, _ in AUTOMATIONS.values()}
    assert [len(client.read_automations_by_name(name)) for name in names] == [1] * len(names)

    def fired() -> dict[str, dict[str, object]]:
        asked = {"filter": {"event": {"prefix": ["prefect.automation.triggered"]}}}
        events = client.request("POST", "/events/filter", json=asked).json()["events"]
        return {event["resource"]["prefect.resource.name"]: event for event in events}

    wait_for(fired, lambda events: events.keys() >= names, every=0.3)
    asked = {"filter": {"event": {"prefix": ["shockwave."]}}}
    events = client.request("POST", "/events/filter", json=asked).json()["events"]
    resources = {event["event"]: event["resource"] for event in events}
    assert resources["shockwave.job.unfair"] == {
        "prefect.resource.id": "shockwave.service-1.job.7",
        "prefect.resource.name": "Shockwave's run service-1",
        "shockwave.run": "service-1",
        "shockwave.round": "5",
        "shockwave.job": "7",
    }
    (down,) = (event["payload"] for event in events if event["event"] == "shockwave.node.down")
    assert down == {"text": "it is node.down", "run": "service-1", "round": 5, "node": 3}


@pytest.mark.prefect
def test_tenants_and_users_with_a_block_hear_of_their_own_jobs(client: SyncPrefectClient) -> None:
    blocks = {"user": name_user_block("Ann.Lee"), "tenant": "shockwave-tenant-vision"}
    names = [f"shockwave: jobs of {block.removeprefix('shockwave-')}" for block in blocks.values()]
    names = [name.replace("user-", "user ").replace("tenant-", "tenant ") for name in names]
    with listening() as (url, heard):
        chat = CustomWebhookNotificationBlock(
            name="chat", url=url, json_data={"to": "", "text": "{{body}}"}, timeout=HANG_SECONDS
        )
        for owner, block in blocks.items():
            chat.json_data = {"to": owner, "text": "{{body}}"}
            chat.save(block)
            make_automations()
            if owner == "user":  # deleted and made again, it is another block
                CustomWebhookNotificationBlock.delete(block)
                chat.save(block)
        make_automations()
        notice = Notice(NoticeKind.STARTED, "service-1", 5, 7, "nlp", "Ann.Lee", "it is hers")
        emit_notice(notice)
        emit_notice(replace(notice, kind=NoticeKind.ENDED, tenant="vision", user="", text="theirs"))
        emit_notice(replace(notice, user="bo", text="nobody's"))
        unfair = Alert(AlertKind.UNFAIR, "service-1", 6, "it is late", 8)
        emit_alert(unfair, label_owner("vision", "Ann.Lee"))
        wait_for(lambda: heard, lambda found: len(found) == 4, every=0.2)
    got = sorted((found["to"], found["text"]) for found in map(json.loads, heard))
    assert blocks["user"] == "shockwave-user-ann-lee-" + sha256(b"Ann.Lee").hexdigest()[:6]
    assert len({name_user_block(name) for name in ("a-b", "a_b", "A-b", "ä", "ö")}) == 5
    assert got == [
        ("tenant", "it is late"),
        ("tenant", "theirs"),
        ("user", "it is hers"),
        ("user", "it is late"),
    ]
    assert [len(client.read_automations_by_name(name)) for name in names] == [1, 1]
    for block in blocks.values():
        CustomWebhookNotificationBlock.delete(block)


@pytest.mark.prefect
def test_nobody_else_is_taken_for_the_server_that_asks_itself(server: Access) -> None:
    headers = {"Host": "prefect-in-memory", **authorization(server)}
    assert ask(server, "GET", "/api/health", headers=headers)[0] == 403
