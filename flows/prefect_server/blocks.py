"""Blocks of Prefect that Shockwave reads: the warehouse's folder, and where alerts are sent."""

from pathlib import Path
from typing import Annotated
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.filesystems import LocalFileSystem
from pydantic import Field

from warehouse import DEFAULT_WAREHOUSE

WAREHOUSE_BLOCK = "shockwave-warehouse"
"""Block of the type Local File System, whose base path is the warehouse."""

ALERTS_BLOCK = "shockwave-alerts"
"""Block of any type that sends notifications."""

MOST_BLOCKS = 200
"""Most blocks per request, the server's limit."""

WarehouseField = Annotated[
    Path | None,
    Field(
        title="Warehouse",
        description=f"Folder that keeps all runs; by default that of the block {WAREHOUSE_BLOCK}.",
    ),
]
"""The field `warehouse` of a form."""


def find_warehouse(given: Path | None) -> Path:
    """Return a flow's warehouse: a given one, that of the block, or `DEFAULT_WAREHOUSE`."""
    if given is not None:
        return given
    try:
        block = LocalFileSystem.load(WAREHOUSE_BLOCK)
    except ValueError:  # there is no such block
        return DEFAULT_WAREHOUSE
    assert isinstance(block, LocalFileSystem)
    return Path(block.basepath) if block.basepath else DEFAULT_WAREHOUSE


def save_warehouse(warehouse: Path) -> None:
    """Store a service's warehouse as the block, for workers of its server."""
    LocalFileSystem(basepath=str(warehouse.absolute())).save(WAREHOUSE_BLOCK, overwrite=True)


def list_notifiers(client: SyncPrefectClient) -> dict[str, UUID]:
    """Return the ids of the named blocks that send notifications, by name."""
    found, offset = dict[str, UUID](), 0
    while blocks := client.read_block_documents(
        limit=MOST_BLOCKS, offset=offset, include_secrets=False
    ):
        for block in blocks:
            schema = block.block_schema
            if block.name and schema and "notify" in schema.capabilities:
                found[block.name] = block.id
        offset += len(blocks)
    return found
