"""Alerts and notices in Prefect: an event for each, and automations that send them."""

import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from uuid import UUID

import httpx
from prefect import get_client
from prefect.automations import (
    AutomationCore,
    DoNothing,
    EventTrigger,
    Posture,
    SendNotification,
)
from prefect.client.orchestration import SyncPrefectClient
from prefect.events import ResourceSpecification, emit_event
from prefect.exceptions import PrefectException

from flows.api.alerts import Alert, AlertKind, Known, Watch
from flows.api.notices import (
    TENANT_BLOCKS,
    USER_BLOCKS,
    Notice,
    NoticeKind,
    Told,
    list_notices,
    name_tenant_block,
    name_user_block,
    tell_all,
)
from flows.api.queries import ServiceQueries
from flows.prefect_server.blocks import ALERTS_BLOCK, list_notifiers
from flows.prefect_server.logs import log_line
from flows.scheduler.process import FOLDER, find_service
from predictor.errors import ShockwaveError
from warehouse.store.durable import write_text, writing

LOOK_SECONDS = 10.0
"""Interval at which the service is checked. An engineering choice."""

REPORTED = "alerts.json"
"""File of the reported alerts that still stand, in the inbox's folder."""

TOLD = "notices.json"
"""File of what owners of jobs were told, in the inbox's folder."""

LOOKS_PER_UPDATE = 6
"""Checks of the service between two updates of the automations. An engineering choice."""

AUTOMATIONS: Mapping[AlertKind, tuple[str, str]] = {
    AlertKind.LATE: ("shockwave: round late", "A round began late, or is missing."),
    AlertKind.DOWN: ("shockwave: node down", "A node is out of service though nobody ordered it."),
    AlertKind.UNFAIR: ("shockwave: unfair job", "A job will end unfairly late whatever happens."),
    AlertKind.STUCK: (
        "shockwave: inbox stuck",
        "No round takes in what was accepted.",
    ),
}
"""Name and description of the automation of each kind of alert."""


def make_automations() -> None:
    """Create missing automations, and let those that do nothing notify their block.

    Alerts go to the block of alerts; without this block, a new automation does nothing. Blocks of
    tenants and users are told of their own jobs. What users set stays.
    """
    with get_client(sync_client=True) as client:
        blocks = list_notifiers(client)
        for kind, (name, description) in AUTOMATIONS.items():
            trigger = _expect({_event(kind)})
            _make_automation(client, blocks, ALERTS_BLOCK, name, description, trigger)
        for block in blocks:
            for beginning, owner in ((TENANT_BLOCKS, "tenant"), (USER_BLOCKS, "user")):
                if block.startswith(beginning):
                    name = f"shockwave: jobs of {owner} {block.removeprefix(beginning)}"
                    about = "A job started or ended, or will end unfairly late."
                    trigger = _expect(JOB_EVENTS, {f"shockwave.{owner}-block": block})
                    _make_automation(client, blocks, block, name, about, trigger)


def _expect(events: set[str], labels: Mapping[str, str] | None = None) -> EventTrigger:
    match = ResourceSpecification({**(labels or {})})
    return EventTrigger(expect=events, match=match, posture=Posture.Reactive)


def _make_automation(
    client: SyncPrefectClient,
    blocks: Mapping[str, UUID],
    block: str,
    name: str,
    description: str,
    trigger: EventTrigger,
) -> None:
    """Create an automation, or let the one of its name notify the block if it does nothing."""
    notify: DoNothing | SendNotification = DoNothing()
    if block in blocks:
        notify = SendNotification(
            type="send-notification",  # updates leave out defaults
            block_document_id=blocks[block],
            subject="Shockwave",
            body="{{ event.payload.text }}",
        )
    found = client.read_automations_by_name(name)
    made = AutomationCore(
        name=name, description=description, tags=["shockwave"], trigger=trigger, actions=[notify]
    )
    if not found:
        client.create_automation(made)
    for own in found if block in blocks else ():
        if all(_does_nothing(action, blocks) for action in own.actions):
            kept = {"enabled": own.enabled, "trigger": own.trigger}
            client.update_automation(own.id, made.model_copy(update=kept))


def _does_nothing(action: object, blocks: Mapping[str, UUID]) -> bool:
    """Return whether an action does nothing, or notifies a block that has been deleted."""
    if isinstance(action, SendNotification):
        return action.block_document_id not in blocks.values()
    return isinstance(action, DoNothing)


def ids_of(alert: Alert) -> dict[str, str | int | None]:
    """Return the subjects of an alert, by name; None for those that it lacks."""
    return {"run": alert.run, "round": alert.round, "job": alert.job, "node": alert.node}


def emit_alert(alert: Alert, owner: Mapping[str, str] | None = None) -> None:
    """Send an alert to Prefect as an event; `owner` labels the owner of its job."""
    known = {name: value for name, value in ids_of(alert).items() if value is not None}
    _emit(alert.kind, known, alert.text, owner or {})


def emit_notice(notice: Notice) -> None:
    """Send a notice to Prefect as an event."""
    ids: dict[str, str | int]
    ids = {"run": notice.run, "round": notice.round, "job": notice.job}
    _emit(notice.kind, ids, notice.text, label_owner(notice.tenant, notice.user))


def label_owner(tenant: str, user: str) -> dict[str, str]:
    """Return the labels of an event about a job: its owners, and the blocks that tell them."""
    labels = {"shockwave.tenant": tenant, "shockwave.tenant-block": name_tenant_block(tenant)}
    if user:
        labels |= {"shockwave.user": user, "shockwave.user-block": name_user_block(user)}
    return labels


def _emit(
    kind: AlertKind | NoticeKind,
    ids: Mapping[str, str | int],
    text: str,
    owner: Mapping[str, str],
) -> None:
    about = [str(ids["run"])] + [f"{name}.{ids[name]}" for name in ("job", "node") if name in ids]
    resource = {
        "prefect.resource.id": f"shockwave.{'.'.join(about)}",
        "prefect.resource.name": f"Shockwave's run {ids['run']}",
    }
    labels = {f"shockwave.{name}": str(value) for name, value in ids.items()}
    emit_event(_event(kind), resource | labels | dict(owner), payload={"text": text, **ids})


def _event(kind: AlertKind | NoticeKind) -> str:
    return f"shockwave.{kind}"


JOB_EVENTS = {*map(_event, NoticeKind), _event(AlertKind.UNFAIR)}
"""Events of which the owners of a job are told."""


def watch(warehouse: Path, database_url: str) -> None:
    """Watch the service of a warehouse from now on, in a thread."""
    Thread(target=_watch, args=(warehouse, database_url), daemon=True).start()


def _watch(warehouse: Path, database_url: str) -> None:
    begun, looks = True, 0
    while not (service := _open_service(warehouse, database_url)):
        begun = False
        time.sleep(LOOK_SECONDS)
    process, before = find_service(warehouse), read_reported(warehouse)
    seen = Watch(service.run, process.speed if process else 1.0, time.monotonic(), before)
    told = read_told(warehouse) if begun else Told()
    while True:
        with suppress(ShockwaveError):  # the next check tries again
            before = look(warehouse, service, seen, before)
            told = tell(warehouse, service, told)
        looks += 1
        if looks % LOOKS_PER_UPDATE == 0:
            with suppress(httpx.HTTPError, PrefectException):  # the server may be down
                make_automations()
        time.sleep(LOOK_SECONDS)


def look(warehouse: Path, service: ServiceQueries, seen: Watch, before: Known) -> Known:
    """Check a service once: report new alerts; store and return those that stand.

    `before` has the alerts stored last.

    Raises:
        ShockwaveError: The service cannot be read, or the alerts cannot be stored.
    """
    lag = service.measure_lag(time.time())
    paused = service.inbox.is_paused()
    alerts = seen.look(service.read_history(), lag, time.monotonic(), paused)
    about_jobs = any(alert.job is not None for alert in alerts)
    rows = {row.job_id: row for row in service.list_jobs()} if about_jobs else {}
    for alert in alerts:
        log_line("alerts", f"alert: {alert.text}", level=logging.WARNING, **ids_of(alert))
        row = rows.get(alert.job) if alert.job is not None else None
        emit_alert(alert, label_owner(row.tenant, row.by) if row else None)
    if seen.known != before:
        write_reported(warehouse, seen.known)
    return seen.known


def tell(warehouse: Path, service: ServiceQueries, told: Told | None) -> Told:
    """Send new notices to the owners of jobs; store and return what they are told.

    `told` is what they were told before; if None, nothing that happened until now is told.

    Raises:
        ShockwaveError: The service cannot be read, or what was told cannot be stored.
    """
    new = list[Notice]()
    if told is None:
        now = tell_all(service.read_history())
    else:
        new, now = list_notices(service, told)
    # Stored first: after a kill in between, a notice is missing rather than sent twice.
    if now != told:
        with writing(warehouse):
            write_text(warehouse / FOLDER / TOLD, json.dumps([now.round, sorted(now.started)]))
    for notice in new:
        emit_notice(notice)
    return now


def read_told(warehouse: Path) -> Told | None:
    """Read what owners were told; None if the file is missing or damaged."""
    with suppress(OSError, ValueError, TypeError):
        number, started = json.loads((warehouse / FOLDER / TOLD).read_text())
        return Told(int(number), frozenset(map(int, started)))
    return None


def read_reported(warehouse: Path) -> Known:
    """Read the stored alerts of a warehouse's service; empty if the file is damaged."""
    with suppress(OSError, ValueError, TypeError):
        rows = json.loads((warehouse / FOLDER / REPORTED).read_text())
        return frozenset((AlertKind(kind), None if of is None else int(of)) for kind, of in rows)
    return frozenset()


def write_reported(warehouse: Path, reported: Known) -> None:
    """Store the reported alerts, so that the next start does not report them again.

    Raises:
        WarehouseError: The warehouse cannot be written.
    """
    rows = sorted(reported, key=str)
    with writing(warehouse):
        write_text(warehouse / FOLDER / REPORTED, json.dumps(rows))


def _open_service(warehouse: Path, database_url: str) -> ServiceQueries | None:
    """Open the service of a warehouse; None before it has begun."""
    with suppress(ShockwaveError):
        return ServiceQueries(warehouse, database_url)
    return None
