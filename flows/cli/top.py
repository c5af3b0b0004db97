"""The cluster now: `top`."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.jobs import desk, shown
from flows.cli.options import Json, Warehouse
from flows.cli.output import print_rows, terminal_width
from warehouse import DEFAULT_WAREHOUSE

if TYPE_CHECKING:
    from rich.console import Console

    from flows.api.authorization import AuthorizedApi
    from flows.api.client import Client
    from flows.cli.tables import Line

QUEUED = ("place", "job_id", "name", "tenant", "gpus", "status", "starts_in_s", "ends_in_s", "ftf")
"""Columns of the queue. A choice of layout."""

NODES = ("node", "gpu_type", "gpus", "held_gpus", "jobs", "drained", "cordoned")


def top(
    interval: Annotated[
        float, typer.Option(help="Seconds between two looks, on a terminal.", min=0.2)
    ] = 2.0,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Show nodes and queue, refreshed until interrupted."""
    with desk(warehouse) as service:
        if as_json:
            state = {
                "status": asdict(service.get_status()),
                "nodes": [asdict(row) for row in service.list_nodes()],
                "queue": [asdict(row) for row in service.list_queue()],
            }
            print_rows([state], as_json)
        elif terminal_width() is None:
            typer.echo("\n".join(text for text, _ in now(service, None)))
        else:
            from rich.console import Console

            with suppress(KeyboardInterrupt):
                follow(service, Console(highlight=False), lambda: time.sleep(interval))


def follow(service: "AuthorizedApi | Client", console: "Console", wait: Callable[[], None]) -> None:
    """Show the cluster on a terminal, again and again.

    Args:
        service: The service.
        console: The terminal.
        wait: Waits for the next look.
    """
    from rich.live import Live
    from rich.text import Text

    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            text = Text()
            for line, style in [*now(service, console.width)][: console.height]:
                text.append(f"{line}\n", style or None)
            text.rstrip()
            live.update(text, refresh=True)
            wait()


def now(service: "AuthorizedApi | Client", width: int | None) -> "Iterator[Line]":
    """The cluster, its nodes and its queue as lines.

    Args:
        service: The service.
        width: Characters of a line; any if None.
    """
    from flows.cli.tables import table

    status = service.get_status()
    said = (
        f"{status.run}, {status.policy}: round {status.rounds}, {status.clock_s:,.0f} s",
        f"{status.busy_gpus} of {status.gpus} GPUs held; jobs: {status.running} running, "
        f"{status.waiting} waiting, {status.held} on hold, {status.ended} ended, "
        f"{status.pending} just accepted",
    )
    for text in said:
        for line in [text] if width is None else wrap(text, width):
            yield line, ""
    nodes = service.list_nodes()
    named = NODES[:1] + ("name",) * any(row.name for row in nodes) + NODES[1:]
    for columns, rows in ((named, nodes), (QUEUED, service.list_queue())):
        yield "", ""
        cells = [[row[name] for name in columns] for row in map(shown, rows)]
        yield from table(columns, cells, width, 0)
