"""Alerts in Prefect: an event for each alert, and an automation for each kind."""

import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread

from prefect import get_client
from prefect.automations import (
    AutomationCore,
    DoNothing,
    EventTrigger,
    Posture,
    SendNotification,
)
from prefect.events import emit_event

from flows.api.alerts import Alert, AlertKind, Known, Watch
from flows.api.queries import ServiceQueries
from flows.prefect_server.blocks import find_alerts_block
from flows.prefect_server.logs import log_line
from flows.scheduler.process import FOLDER, find_service
from predictor.errors import ShockwaveError
from warehouse.store.durable import write_text, writing

LOOK_SECONDS = 10.0
"""Interval at which the service is checked. An engineering choice."""

REPORTED = "alerts.json"
"""File of the reported alerts that still stand, in the inbox's folder."""

AUTOMATIONS: Mapping[AlertKind, tuple[str, str]] = {
    AlertKind.LATE: ("shockwave: round late", "A round began late, or is missing."),
    AlertKind.DOWN: ("shockwave: node down", "A node is out of service though nobody ordered it."),
    AlertKind.UNFAIR: ("shockwave: unfair job", "A job will end unfairly late whatever happens."),
    AlertKind.STUCK: (
        "shockwave: inbox stuck",
        "No round takes in what was accepted.",
    ),
}
"""Name and description of each automation."""


def make_automations() -> None:
    """Create missing automations, and let those that do nothing notify the block of alerts.

    Without this block, a new automation does nothing. What users set stays.
    """
    with get_client(sync_client=True) as client:
        block = find_alerts_block(client)
        notify: DoNothing | SendNotification = DoNothing()
        if block is not None:
            notify = SendNotification(
                type="send-notification",  # updates leave out defaults
                block_document_id=block,
                subject="Shockwave",
                body="{{ event.payload.text }}",
            )
        for kind, (name, description) in AUTOMATIONS.items():
            found = client.read_automations_by_name(name)
            trigger = EventTrigger(expect={_event(kind)}, posture=Posture.Reactive)
            made = AutomationCore(
                name=name,
                description=description,
                tags=["shockwave"],
                trigger=trigger,
                actions=[notify],
            )
            if not found:
                client.create_automation(made)
            for own in found if block else ():
                if all(isinstance(action, DoNothing) for action in own.actions):
                    kept = {"enabled": own.enabled, "trigger": own.trigger}
                    client.update_automation(own.id, made.model_copy(update=kept))


def ids_of(alert: Alert) -> dict[str, str | int | None]:
    """Return the subjects of an alert, by name; None for those that it lacks."""
    return {"run": alert.run, "round": alert.round, "job": alert.job, "node": alert.node}


def emit_alert(alert: Alert) -> None:
    """Send an alert to Prefect as an event."""
    known = {name: value for name, value in ids_of(alert).items() if value is not None}
    about = [alert.run] + [f"{name}.{known[name]}" for name in ("job", "node") if name in known]
    resource = {
        "prefect.resource.id": f"shockwave.{'.'.join(about)}",
        "prefect.resource.name": f"Shockwave's run {alert.run}",
    }
    labels = {f"shockwave.{name}": str(value) for name, value in known.items()}
    emit_event(_event(alert.kind), resource | labels, payload={"text": alert.text, **known})


def _event(kind: AlertKind) -> str:
    return f"shockwave.{kind}"


def watch(warehouse: Path, database_url: str) -> None:
    """Watch the service of a warehouse from now on, in a thread."""
    Thread(target=_watch, args=(warehouse, database_url), daemon=True).start()


def _watch(warehouse: Path, database_url: str) -> None:
    while not (service := _open_service(warehouse, database_url)):
        time.sleep(LOOK_SECONDS)
    process, before = find_service(warehouse), read_reported(warehouse)
    seen = Watch(service.run, process.speed if process else 1.0, time.monotonic(), before)
    while True:
        with suppress(ShockwaveError):  # the next check tries again
            before = look(warehouse, service, seen, before)
        time.sleep(LOOK_SECONDS)


def look(warehouse: Path, service: ServiceQueries, seen: Watch, before: Known) -> Known:
    """Check a service once: report new alerts; store and return those that stand.

    `before` has the alerts stored last.

    Raises:
        ShockwaveError: The service cannot be read, or the alerts cannot be stored.
    """
    lag = service.measure_lag(time.time())
    paused = service.inbox.is_paused()
    for alert in seen.look(service.read_history(), lag, time.monotonic(), paused):
        log_line("alerts", f"alert: {alert.text}", level=logging.WARNING, **ids_of(alert))
        emit_alert(alert)
    if seen.known != before:
        write_reported(warehouse, seen.known)
    return seen.known


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
