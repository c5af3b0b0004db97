"""Requests and accepted entries, and their rows in a database."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import RowMapping

from predictor.errors import InputError, WarehouseError
from predictor.job import JobSpec
from tasks.commands import NO_NODE, NO_TERMS, CommandKind, NewNode, TenantTerms
from tasks.rows import from_row, to_row

SUBMIT = "submit"
"""Kind of an entry that is a job; the others are those of commands."""

MOST_TEXT = 200
"""Most characters of a key, a tenant, or the name of a submitter. An engineering bound."""

LONGEST_TENANT = 100
"""Most characters of a tenant with terms. An engineering bound."""


@dataclass(frozen=True, slots=True)
class Request:
    """A job or a command that is submitted.

    Attributes:
        kind: `submit`, or the kind of a command.
        job: A job's declaration; its job id and arrival are given when it is taken in.
        target: A command's job or node.
        value: A command's value, such as a budget.
        by: Its submitter.
        key: Idempotency key: a second request with the same key returns the first entry.
        terms: Terms of a tenant.
        given: Fields of the terms that are given; the others keep their last accepted values. Or
            fields of the node; the others are those of another node.
        node: A node that is added.
    """

    kind: str
    job: JobSpec | None = None
    target: int = -1
    value: float = 0.0
    by: str = ""
    key: str = ""
    terms: TenantTerms = NO_TERMS
    given: tuple[str, ...] = ()
    node: NewNode = NO_NODE

    def onto(self, terms: TenantTerms) -> "Request":
        """The request with complete terms: its own fields, and the others from these terms."""
        given = {name: getattr(self.terms, name) for name in ("tenant", *self.given)}
        return replace(self, terms=replace(terms, **given))

    def again(self, entry: "Entry") -> "Request":
        """The request, with the fields that it leaves open taken from an accepted entry."""
        if self.kind != CommandKind.ADD:
            return self.onto(entry.terms)
        given = {name: getattr(self.node, name) for name in self.given}
        return replace(self, node=replace(entry.node, **given))


@dataclass(frozen=True, slots=True)
class Entry:
    """An accepted request.

    Attributes:
        number: Its number, from 1; of a job also its id.
        kind: `submit`, or the kind of a command.
        target: A command's job or node; of a job -1.
        value: A command's value.
        by: Its submitter.
        accepted_at: When, in seconds since the epoch.
        job: A job's declaration, with its id, without its arrival.
        terms: Terms of a tenant.
        node: A node that is added.
    """

    number: int
    kind: str
    target: int
    value: float
    by: str
    accepted_at: float
    job: JobSpec | None
    terms: TenantTerms = NO_TERMS
    node: NewNode = NO_NODE


def check_request(request: Request) -> None:
    """Refuse a request that no service could carry out.

    Raises:
        InputError: It is invalid.
    """
    if request.kind == SUBMIT and request.job is None:
        raise InputError("job", "is missing", "give its declaration")
    if request.kind not in (SUBMIT, *CommandKind) or request.kind == CommandKind.REFUSED:
        raise InputError("kind", f"{request.kind!r} is no command", f"give {', '.join(_GIVEN)}")
    tenant = request.job.tenant if request.job else request.terms.tenant
    for field, text in (("key", request.key), ("by", request.by), ("tenant", tenant)):
        if len(text) > MOST_TEXT or not text.isprintable():
            problem = f"is longer than {MOST_TEXT} characters, or has control characters"
            raise InputError(field, problem, "give a shorter one of letters and digits")
    if request.kind == CommandKind.TENANT and not 0 < len(tenant) <= LONGEST_TENANT:
        problem = f"is empty, or longer than {LONGEST_TENANT} characters"
        raise InputError("tenant", problem, "give its name")
    if request.job is not None and request.job.name.isdigit():
        raise InputError("name", f"{request.job.name!r} is like a job's id", "add a letter")


_GIVEN = (SUBMIT, *(kind.value for kind in CommandKind if kind is not CommandKind.REFUSED))


def row_of(request: Request, number: int, now: float) -> dict[str, Any]:
    """A request as a row; fields that are set when a job is taken in are left open."""
    job = request.job and replace(request.job, job_id=0, arrival_seconds=0.0)
    declared = job or (request.terms if request.node == NO_NODE else request.node)
    return {
        "number": number,
        "kind": request.kind,
        "name": job.name if job else request.terms.tenant,
        "key": request.key or None,
        "target": request.target,
        "value": request.value,
        "submitter": request.by,
        "job": json.dumps(to_row(declared), sort_keys=True) if declared != NO_TERMS else "",
        "accepted_at": now,
    }


def entry_of(row: Mapping[str, Any] | RowMapping) -> Entry:
    """An entry from its row.

    Raises:
        WarehouseError: It was changed or is damaged.
    """
    try:
        number, text = int(row["number"]), row["job"]
        submits, adds = row["kind"] == SUBMIT, row["kind"] == CommandKind.ADD
        if not submits and CommandKind(row["kind"]) is CommandKind.REFUSED:
            raise ValueError
        return Entry(
            number=number,
            kind=row["kind"],
            target=int(row["target"]),
            value=float(row["value"]),
            by=row["submitter"],
            accepted_at=float(row["accepted_at"]),
            job=replace(_declared(JobSpec, text), job_id=number) if submits else None,
            terms=_declared(TenantTerms, text) if text and not (submits or adds) else NO_TERMS,
            node=_declared(NewNode, text) if adds else NO_NODE,
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, InputError):
        problem = "does not hold what was handed in"
        place, remedy = f"entry {row['number']} of the inbox", "restore its database from a backup"
        raise WarehouseError(place, problem, remedy) from None


Declared = TypeVar("Declared")


def _declared(kind: type[Declared], text: str) -> Declared:
    """A dataclass from its JSON.

    Raises:
        ValueError: The text differs from what was written; other errors if it is of another kind.
    """
    written = json.loads(text)
    found = from_row(kind, written)
    if to_row(found) != written:
        raise ValueError
    return found
