"""Acceptance of waiting submissions, all in one transaction with few statements."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, func, insert, select

from predictor.errors import InputError, WarehouseError
from tasks.commands import NO_TERMS, CommandKind, TenantTerms
from warehouse.inbox.entries import Entry, Submission, entry_of, row_of
from warehouse.inbox.tables import ENTRIES

MOST_ASKED = 10_000
"""Most values in a statement; SQLite and Postgres allow about three times as many."""

Row = Mapping[str, Any]


class KeyUsed(InputError):
    """The idempotency key is that of another request."""


def accept_all(
    connection: Connection, together: Sequence[Sequence[Submission]]
) -> list[list[Entry] | InputError]:
    """Write submissions as entries; return each submitter's entries, or why they are refused.

    Args:
        connection: An exclusive transaction.
        together: Submissions by submitter; of each, all or none are accepted.
    """
    keys = {one.key for submissions in together for one in submissions if one.key}
    known = _find_keys(connection, keys)
    last, now = last_entry(connection), time.time()
    rows, outcomes = list[Row](), list[list[Entry] | InputError]()
    for submissions in together:
        new, found = list[Row](), list[Entry]()
        try:
            for submission in submissions:
                row = known.get(submission.key) if submission.key else None
                if row is not None:
                    found.append(_find_again(row, submission))
                    continue
                if submission.terms != NO_TERMS:
                    before = _terms_among(reversed([*rows, *new]), submission.terms.tenant)
                    before = before or terms_of(connection, submission.terms.tenant)
                    submission = submission.onto(before)
                row = row_of(submission, last + len(rows) + len(new) + 1, now)
                new.append(row)
                found.append(entry_of(row))
                if submission.key:
                    known[submission.key] = row
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


def _find_keys(connection: Connection, keys: Iterable[str]) -> dict[str, Row]:
    asked, found = sorted(keys), dict[str, Row]()
    for start in range(0, len(asked), MOST_ASKED):
        of = select(ENTRIES).where(ENTRIES.c.key.in_(asked[start : start + MOST_ASKED]))
        found |= {row["key"]: row for row in connection.execute(of).mappings()}
    return found


def _find_again(row: Row, submission: Submission) -> Entry:
    """Return the entry of a key that was accepted before; refuse another submission's key."""
    entry = entry_of(row)
    complete = submission.completed_from(entry)  # ignore what others gave since
    new = row_of(complete, row["number"], row["accepted_at"])
    if any(row[part] != new[part] for part in ("kind", "target", "value", "job")):
        problem = f"was used before, for entry {row['number']}, which asks for something else"
        raise KeyUsed("key", problem, "give another key")
    return entry


def _terms_among(rows: Iterable[Row], tenant: str) -> TenantTerms | None:
    kind = CommandKind.TENANT.value
    mine = (row for row in rows if row["kind"] == kind and row["name"] == tenant)
    return next((entry_of(row).terms for row in mine), None)


def terms_of(connection: Connection, tenant: str, by: str = "") -> TenantTerms:
    """Return the last accepted terms of a tenant, of a submitter's entries if one is given."""
    asked = select(ENTRIES).where(ENTRIES.c.kind == CommandKind.TENANT.value)
    asked = asked.where(ENTRIES.c.name == tenant).order_by(ENTRIES.c.number.desc()).limit(1)
    asked = asked.where(ENTRIES.c.submitter == by) if by else asked
    row = connection.execute(asked).mappings().first()
    return entry_of(row).terms if row else replace(NO_TERMS, tenant=tenant)


def last_entry(connection: Connection) -> int:
    """Return the number of the last entry; 0 if there is none."""
    number = connection.scalar(select(func.max(ENTRIES.c.number))) or 0
    if not isinstance(number, int):  # SQLite stores a text in any column, and sorts it last
        problem, remedy = "has no number", "restore the inbox's database from a backup"
        raise WarehouseError(f"entry {number!r} of the inbox", problem, remedy)
    return number
