"""Accepts requests as entries: all waiting ones in one transaction, with few statements."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, func, insert, select

from predictor.errors import InputError, WarehouseError
from tasks.commands import NO_TERMS, CommandKind, TenantTerms
from warehouse.inbox.entries import Entry, Request, entry_of, row_of
from warehouse.inbox.tables import ENTRIES

MOST_ASKED = 10_000
"""Values in a statement, at most: SQLite and Postgres take some three times as many."""

Row = Mapping[str, Any]


def accepted(
    connection: Connection, together: Sequence[Sequence[Request]]
) -> list[list[Entry] | InputError]:
    """Write the requests of each submitter; returns its entries, or the error that refused them.

    Args:
        connection: A transaction that writes alone.
        together: Requests by submitter; those of a submitter are accepted all or none.
    """
    known = _known(
        connection, {request.key for requests in together for request in requests if request.key}
    )
    last, now = last_entry(connection), time.time()
    rows, outcomes = list[Row](), list[list[Entry] | InputError]()
    for requests in together:
        new, found = list[Row](), list[Entry]()
        try:
            for request in requests:
                row = known.get(request.key) if request.key else None
                if row is not None:
                    found.append(_again(row, request))
                    continue
                if request.terms != NO_TERMS:
                    before = _terms_among(reversed([*rows, *new]), request.terms.tenant)
                    before = before or terms_of(connection, request.terms.tenant)
                    request = request.onto(before)
                row = row_of(request, last + len(rows) + len(new) + 1, now)
                new.append(row)
                found.append(entry_of(row))
                if request.key:
                    known[request.key] = row
        except InputError as error:
            for row in new:
                known.pop(row["key"], None)
            outcomes.append(error)
            continue
        rows += new
        outcomes.append(found)
    if rows:
        connection.execute(insert(ENTRIES), rows)
    return outcomes


def _known(connection: Connection, keys: Iterable[str]) -> dict[str, Row]:
    """The rows of keys that were accepted before."""
    asked, found = sorted(keys), dict[str, Row]()
    for start in range(0, len(asked), MOST_ASKED):
        of = select(ENTRIES).where(ENTRIES.c.key.in_(asked[start : start + MOST_ASKED]))
        found |= {row["key"]: row for row in connection.execute(of).mappings()}
    return found


def _again(row: Row, request: Request) -> Entry:
    """The entry of a key that is used again.

    Raises:
        InputError: The key belongs to another request.
    """
    entry = entry_of(row)
    asked_for = request.again(entry)  # others gave the rest, then and since
    new = row_of(asked_for, row["number"], row["accepted_at"])
    if any(row[part] != new[part] for part in ("kind", "target", "value", "job")):
        problem = f"{request.key!r} is that of entry {row['number']}, which asks for something else"
        raise InputError("key", problem, "give another key")
    return entry


def _terms_among(rows: Iterable[Row], tenant: str) -> TenantTerms | None:
    kind = CommandKind.TENANT.value
    mine = (row for row in rows if row["kind"] == kind and row["name"] == tenant)
    return next((entry_of(row).terms for row in mine), None)


def terms_of(connection: Connection, tenant: str) -> TenantTerms:
    """The terms of a tenant that were accepted last."""
    asked = select(ENTRIES).where(ENTRIES.c.kind == CommandKind.TENANT.value)
    asked = asked.where(ENTRIES.c.name == tenant).order_by(ENTRIES.c.number.desc()).limit(1)
    row = connection.execute(asked).mappings().first()
    return entry_of(row).terms if row else replace(NO_TERMS, tenant=tenant)


def last_entry(connection: Connection) -> int:
    """The number of the last entry, 0 if there is none; texts, which sort last, are none."""
    number = connection.scalar(select(func.max(ENTRIES.c.number))) or 0
    if not isinstance(number, int):
        problem, remedy = "has no number", "restore the inbox's database from a backup"
        raise WarehouseError(f"entry {number!r} of the inbox", problem, remedy)
    return number
