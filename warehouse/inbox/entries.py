"""Submissions and accepted entries, and their rows in a database."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import RowMapping

from predictor.errors import InputError, WarehouseError
from predictor.job import JobSpec
from predictor.rows import from_row, to_row
from tasks.commands import NO_NODE, NO_TERMS, CommandKind, NewNode, TenantTerms

SUBMIT = "submit"
"""Kind of an entry that is a job; all other kinds are commands."""

MOST_TEXT = 200
"""Most characters of a key, a tenant, or a submitter's name. An engineering bound."""

LONGEST_TENANT = 100
"""Most characters of a tenant with terms. An engineering bound."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job or a command, as submitted.

    Attributes:
        kind: `submit`, or the kind of a command.
        job: A job's declaration; its job id and arrival are set when the service takes it in.
        target: A command's job or node.
        value: A command's value, such as a budget.
        key: Idempotency key: a second submission with the same key returns the first entry.
        given: Fields of the terms or the node that the submitter gave. Other terms keep their last
            accepted values; other fields of a node are copied from another node.
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

    def onto(self, terms: TenantTerms) -> "Submission":
        """Complete the terms: take fields that were not given from `terms`."""
        given = {name: getattr(self.terms, name) for name in ("tenant", *self.given)}
        return replace(self, terms=replace(terms, **given))

    def completed_from(self, entry: "Entry") -> "Submission":
        """Take fields that were not given from an accepted entry."""
        if self.kind != CommandKind.ADD:
            return self.onto(entry.terms)
        given = {name: getattr(self.node, name) for name in self.given}
        return replace(self, node=replace(entry.node, **given))


@dataclass(frozen=True, slots=True)
class Entry:
    """An accepted submission.

    Attributes:
        number: Number of the entry, from 1; also the id of its job.
        target: A command's job or node; -1 for a job.
        accepted_at: Time of acceptance, in seconds since the epoch.
        job: A job's declaration, with its id, without its arrival.
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


def check_submission(submission: Submission) -> None:
    """Refuse a submission that no service could carry out.

    Raises:
        InputError: The submission is invalid.
    """
    if submission.kind == SUBMIT and submission.job is None:
        raise InputError("job", "is missing", "give its declaration")
    if submission.kind not in (SUBMIT, *CommandKind) or submission.kind == CommandKind.REFUSED:
        raise InputError(
            "kind", f"{submission.kind!r} is not a command", f"give {', '.join(_GIVEN)}"
        )
    tenant = submission.job.tenant if submission.job else submission.terms.tenant
    for field, text in (("key", submission.key), ("by", submission.by), ("tenant", tenant)):
        if len(text) > MOST_TEXT or not text.isprintable():
            problem = f"is longer than {MOST_TEXT} characters, or has control characters"
            raise InputError(field, problem, "give a shorter one of letters and digits")
    of_tenant = submission.kind in (CommandKind.TENANT, CommandKind.RESERVE)
    if of_tenant and not 0 < len(tenant) <= LONGEST_TENANT:
        problem = f"is empty, or longer than {LONGEST_TENANT} characters"
        raise InputError("tenant", problem, "give its name")
    if submission.job is not None and submission.job.name.isdigit():
        raise InputError("name", f"{submission.job.name!r} is like a job's id", "add a letter")


_GIVEN = (SUBMIT, *(kind.value for kind in CommandKind if kind is not CommandKind.REFUSED))


def row_of(submission: Submission, number: int, now: float) -> dict[str, Any]:
    """Return a submission as a row, without the job's fields that the service sets later."""
    job = submission.job and replace(submission.job, job_id=0, arrival_seconds=0.0)
    declared = job or (submission.terms if submission.node == NO_NODE else submission.node)
    return {
        "number": number,
        "kind": submission.kind,
        "name": job.name if job else submission.terms.tenant,
        "key": submission.key or None,
        "target": submission.target,
        "value": submission.value,
        "submitter": submission.by,
        "job": json.dumps(to_row(declared), sort_keys=True) if declared != NO_TERMS else "",
        "accepted_at": now,
    }


def entry_of(row: Mapping[str, Any] | RowMapping) -> Entry:
    """Return the entry in a row.

    Raises:
        WarehouseError: The row was changed or is damaged.
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
        problem = "was changed or is damaged"
        place, remedy = f"entry {row['number']} of the inbox", "restore its database from a backup"
        raise WarehouseError(place, problem, remedy) from None


Declared = TypeVar("Declared")


def _declared(kind: type[Declared], text: str) -> Declared:
    """Return the dataclass in its JSON; refuse text that differs from what was written."""
    written = json.loads(text)
    found = from_row(kind, written)
    if to_row(found) != written:
        raise ValueError
    return found
