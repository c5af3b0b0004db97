"""The contents of a warehouse's views, for comparison."""

from pathlib import Path
from typing import Any

import duckdb

from warehouse.analytics.catalog import create_views
from warehouse.analytics.definitions import VIEWS, find_needed


def columns_and_rows(
    warehouse: Path, views: tuple[str, ...] = VIEWS, tables: tuple[str, ...] = VIEWS
) -> dict[str, tuple[list[Any], list[Any]]]:
    """Columns with their types and all rows of views, as an `Analytics` sees them."""
    with duckdb.connect() as connection:
        create_views(connection, warehouse, names=find_needed(views), tables=tables)
        asked = ((view, connection.execute(f"FROM {view} ORDER BY ALL")) for view in views)
        return {view: (answer.description, answer.fetchall()) for view, answer in asked}


def contents(
    warehouse: Path, views: tuple[str, ...] = VIEWS, tables: tuple[str, ...] = VIEWS
) -> dict[str, list[Any]]:
    """All rows of views, as an `Analytics` sees them; as tables they are the same, and faster."""
    found = columns_and_rows(warehouse, views, tables)
    return {view: rows for view, (_, rows) in found.items()}


def seen_by_analysts(warehouse: Path, views: tuple[str, ...] = VIEWS) -> dict[str, list[Any]]:
    """All rows of views of the database that analysts open."""
    with duckdb.connect(str(warehouse / "analytics.duckdb"), read_only=True) as connection:
        return {view: connection.execute(f"FROM {view} ORDER BY ALL").fetchall() for view in views}
