"""Commands about nodes of a service."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from flows.cli.connection import complete_nodes, connect
from flows.cli.job import Key, order, print_accepted, to_columns
from flows.cli.options import Json, Warehouse
from flows.cli.output import print_filled
from warehouse import DEFAULT_WAREHOUSE

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
    print_accepted(accepted, name or "", as_json, "the node")


def _make_order(kind: str) -> Callable[..., None]:
    def give(
        node: Index, key: Key = "", warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False
    ) -> None:
        order(kind, [node], warehouse, as_json, key)

    return give


drain, cordon, uncordon, remove, image = map(
    _make_order, ("drain", "cordon", "uncordon", "remove", "image")
)


def print_nodes(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """List the nodes, their GPUs, and the jobs on them."""
    with connect(warehouse) as service:
        print_filled([to_columns(row) for row in service.list_nodes()], as_json)
