"""Commands about nodes of a service."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.connection import complete_nodes, connect
from flows.cli.job import Key, make_key, order, print_accepted, to_columns
from flows.cli.options import Json, Warehouse
from flows.cli.output import print_filled, say
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE
from warehouse.workloads.moments import Moments

Index = Annotated[
    str,
    typer.Argument(
        help="Index of a node (from 0), or its name on Docker hosts.",
        autocompletion=complete_nodes,
    ),
]


def add(
    name: Annotated[
        str | None,
        typer.Argument(help="Name in the cluster file; on Docker hosts only.", show_default=False),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(help="GPUs on a virtual cluster; by default those of the last node."),
    ] = None,
    gpu_type: Annotated[
        str | None, typer.Option(help="GPU type; by default that of the last node.")
    ] = None,
    price: Annotated[
        float | None, typer.Option(help="Price of a GPU-hour; by default that of the last node.")
    ] = None,
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Add a node while the service runs."""
    options: dict[str, Any] = {"name": name, "gpus": gpus, "gpu_type": gpu_type, "price": price}
    fields = {field: value for field, value in options.items() if value is not None}
    with connect(warehouse) as service:
        accepted = service.add_node(fields, key=key)
    print_accepted(accepted, name or "", as_json, "the node is")


def _make_order(kind: str) -> Callable[..., None]:
    def give(
        node: Index, key: Key = "", warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False
    ) -> None:
        order(kind, [node], warehouse, as_json, key)

    return give


drain, cordon, uncordon, remove, image = map(
    _make_order, ("drain", "cordon", "uncordon", "remove", "image")
)


Hours = Annotated[float, typer.Option(help="Length of each window, in real time at any --speed.")]
Start = Annotated[
    datetime | None,
    typer.Option(help="Local time, as 2026-12-01T12:00; by default now.", show_default=False),
]
Rule = Annotated[
    str,
    typer.Option(help="Rule of RFC 5545 that repeats it, such as 'FREQ=WEEKLY;COUNT=10'."),
]
Zone = Annotated[
    str,
    typer.Option(
        help="Time zone of the start and the rule, such as Europe/Berlin; by default this "
        "machine's present offset."
    ),
]
Nodes = Annotated[
    list[str],
    typer.Argument(help="Nodes by index (from 0) or name.", autocompletion=complete_nodes),
]


def maintain(
    nodes: Nodes,
    hours: Hours,
    start: Start = None,
    rrule: Rule = "",
    zone: Zone = "",
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Set nodes aside for maintenance for a time.

    No job starts there, and jobs that can be preempted are.
    """
    _set_aside("", nodes, hours, start, rrule, zone, key, warehouse, as_json)


def reserve(
    nodes: Nodes,
    tenant: Annotated[str, typer.Option(help="Whose jobs may start there.")],
    hours: Hours,
    start: Start = None,
    rrule: Rule = "",
    zone: Zone = "",
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Reserve nodes for a tenant for a time.

    Other jobs there are preempted if they can be.
    """
    if not tenant:
        raise InputError("tenant", "is empty", "give its name")
    _set_aside(tenant, nodes, hours, start, rrule, zone, key, warehouse, as_json)


def _set_aside(
    tenant: str,
    nodes: list[str],
    hours: float,
    start: datetime | None,
    rrule: str,
    zone: str,
    key: str,
    warehouse: Path,
    as_json: bool,
) -> None:
    window: dict[str, Any] = {"hours": hours, "rrule": rrule, "zone": zone}
    if start:
        here = start.replace(tzinfo=Moments.of(zone).zone) if zone else start.astimezone()
        window["start"] = here.isoformat()
    with connect(warehouse) as service:
        refused = dict[str, InputError]()
        for number, node in enumerate(nodes):
            own = make_key(key, number)
            try:
                accepted = service.add_window(node, window, tenant=tenant, key=own)
            except InputError as error:  # a repeated command sets the other nodes aside
                refused[str(error)] = error
                continue
            first, last = accepted.entry, accepted.entry + accepted.jobs - 1
            made = f"windows {first}-{last} of node {node} are"
            if first == last:
                made = f"window {first} of node {node} is"
            print_accepted(accepted, node, as_json, made)
    _raise_all(refused)


def _raise_all(refused: dict[str, InputError]) -> None:
    """Print all but the last of some errors, and raise the last; they are given by message."""
    for number, (text, error) in enumerate(refused.items(), 1):
        if number == len(refused):
            raise error
        say(f"error: {text}", err=True)


def reopen(
    windows: Annotated[
        list[str],
        typer.Argument(help="Numbers, as node windows prints them, or ranges such as 4-13."),
    ],
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """End windows of nodes; those that have not begun do not begin."""
    # A range may span other entries of the inbox, so its numbers that are no windows are skipped.
    ranges, place, refused = [_parse_range(text) for text in windows], 0, dict[str, InputError]()
    with connect(warehouse) as service:
        for numbers in ranges:
            missing = list[InputError]()
            for number in numbers:
                own = make_key(key, place)
                place += 1
                try:
                    accepted = service.reopen(number, key=own)
                except InputError as error:
                    if error.place == "window":
                        missing.append(error)
                    else:
                        refused[str(error)] = error
                    continue
                print_accepted(accepted, "", as_json, f"the end of window {number} is")
            if len(missing) == len(numbers):
                refused[str(missing[-1])] = missing[-1]
    _raise_all(refused)


def _parse_range(text: str) -> range:
    from flows.api.requests import MOST_WINDOWS

    found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text, re.ASCII)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 0 < first <= last < first + MOST_WINDOWS:
        problem = f"{text[:80]!r} is no window's number and no range of at most {MOST_WINDOWS}"
        raise InputError("windows", problem, "give some such as 4 or 4-13")
    return range(first, last + 1)


def print_windows(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """List windows, in seconds of the run's clock from the last round, and by date."""
    with connect(warehouse) as service:
        rows = service.list_windows()
    if not as_json:
        rows = [replace(row, start=_to_local(row.start)) for row in rows]
    print_filled([to_columns(row) for row in rows], as_json)


def _to_local(moment: str) -> str:
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M %z}" if moment else ""


def print_nodes(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """List the nodes, their GPUs, and the jobs on them."""
    with connect(warehouse) as service:
        print_filled([to_columns(row) for row in service.list_nodes()], as_json)
