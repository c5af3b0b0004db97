"""Nodes of a service: what is there, in and out of service, added and removed."""

from typing import Annotated, Any

import typer

from flows.cli.completion import named_nodes
from flows.cli.jobs import Key, desk, order, print_accepted, shown
from flows.cli.options import Json, Warehouse
from flows.cli.output import print_listed, say
from warehouse import DEFAULT_WAREHOUSE

Index = Annotated[
    str,
    typer.Argument(
        help="A node, by its index from 0 or, on Docker hosts, by its name.",
        autocompletion=named_nodes,
    ),
]


def add(
    name: Annotated[
        str | None,
        typer.Argument(help="On Docker hosts, its name in the cluster file.", show_default=False),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(help="Its GPUs, on a virtual cluster; as many as the last node's.")
    ] = None,
    gpu_type: Annotated[str | None, typer.Option(help="Their type; that of the last node.")] = None,
    price: Annotated[float | None, typer.Option(help="Of a GPU-hour; that of the last.")] = None,
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Add a node while the service runs."""
    options: dict[str, Any] = {"name": name, "gpus": gpus, "gpu_type": gpu_type, "price": price}
    fields = {field: value for field, value in options.items() if value is not None}
    with desk(warehouse) as service:
        accepted = service.add_node(fields, key=key)
    if as_json:
        print_accepted(accepted, name or "", as_json)
    else:
        say("a further node is accepted; the next round takes it in")


def drain(
    node: Index,
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Take a node out of service; its jobs are preempted."""
    from tasks.commands import CommandKind

    order(CommandKind.DRAIN, node, warehouse, as_json, key)


def cordon(
    node: Index,
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Let no new job start on a node; its jobs continue."""
    from tasks.commands import CommandKind

    order(CommandKind.CORDON, node, warehouse, as_json, key)


def uncordon(
    node: Index,
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Return a drained or cordoned node to service."""
    from tasks.commands import CommandKind

    order(CommandKind.UNCORDON, node, warehouse, as_json, key)


def remove(
    node: Index,
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Remove a node for good; its jobs are preempted."""
    from tasks.commands import CommandKind

    order(CommandKind.REMOVE, node, warehouse, as_json, key)


def print_nodes(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """List the nodes, their GPUs, and the jobs on them."""
    with desk(warehouse) as service:
        print_listed([shown(row) for row in service.list_nodes()], as_json)
