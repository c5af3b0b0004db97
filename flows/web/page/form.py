"""The form that hands a job in: its fields are those of a job's file, as texts."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from flows.api.authorization import AuthorizedApi
from flows.api.submission import parse_job
from flows.api.whatif import WhatIf
from flows.runs.job_fields import FieldKind, JobField, list_job_fields, parse_variables
from flows.runs.job_file import ADAPTED, TRAINED, JobFile
from predictor.errors import InputError
from predictor.options import tasks_of
from warehouse.inbox.tokens import Role, Token

MOST_FIELD = 4_000
"""Most characters of a field. An engineering bound."""

OPERATED = ("tenant", "budget")
"""Fields that a tenant's token determines."""

BY_KIND = {
    "What it runs": ("kind", "name", "image", "command", "environment", "secrets", "max_seconds"),
    "Of adaptive jobs only": (*TRAINED, *ADAPTED),
}
"""Groups of fields; all other fields are in a last group."""


@dataclass(frozen=True, slots=True)
class FilledField:
    """A field of the form with the text that was entered."""

    field: JobField
    text: str

    @property
    def default(self) -> str:
        """The value of a number that is left empty; empty if it has none."""
        value = self.field.default
        return f"{value:g}" if isinstance(value, int | float) else ""


def make_form(
    service: AuthorizedApi, caller: Token, filled: Mapping[str, str], key: str = ""
) -> dict[str, Any]:
    """The form.

    Args:
        service: The service.
        caller: Who fills it in.
        filled: The text of each field.
        key: Identifies the form (`key_of`); by default a new key.
    """
    left_out = OPERATED if caller.role is Role.TENANT else ()
    fields = {field.name: field for field in list_job_fields() if field.name not in left_out}
    grouped = {name for names in BY_KIND.values() for name in names}
    groups = BY_KIND | {"How it is scheduled": [name for name in fields if name not in grouped]}
    return {
        "groups": {
            title: [FilledField(fields[n], filled.get(n, "")) for n in names if n in fields]
            for title, names in groups.items()
        },
        "models": sorted({model for model, *_ in service.desk.header.throughputs.rates}),
        "hands_in": caller.role is not Role.READER,
        "most": MOST_FIELD,
        "key": key or uuid4().hex,
        "rows": None,
    }


def parse_form(fields: Mapping[str, str]) -> JobFile:
    """The job of a form.

    Args:
        fields: Texts by field; empty fields count as missing.

    Raises:
        InputError: A field is invalid; the error names it.
    """
    values: dict[str, Any] = {}
    for field in list_job_fields():
        text = fields.get(field.name, "")
        text = text if field.kind is FieldKind.VARIABLES else text.strip()
        if len(text) > MOST_FIELD:
            problem = f"has more than {MOST_FIELD:,} characters"
            raise InputError(f"job: {field.name}", problem, "hand it in with shockwave submit")
        if text.strip():
            values[field.name] = _value(field, text)
    return parse_job(Path("job"), values, texts=True)


def make_key(fields: Mapping[str, str]) -> str:
    """The idempotency key of a form and its content; empty if the form has none.

    A form that is sent twice hands in one job; if it is edited in between, two.
    """
    if not (key := fields.get("key", "")):
        return ""
    asked = [key, *(fields.get(name, "") for name in JobFile.model_fields)]
    return sha256(json.dumps(asked).encode()).hexdigest()


def _value(field: JobField, text: str) -> Any:
    if field.kind is FieldKind.VARIABLES:
        lines = (line.lstrip() for line in re.split(r"\r\n|\r|\n", text))
        return parse_variables("job: environment", [line for line in lines if line])
    if field.kind is not FieldKind.WORDS:
        return text
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"job: {field.name}", f"is refused: {error}", "close it") from None


def forecast_form(
    service: AuthorizedApi, caller: Token, fields: Mapping[str, str]
) -> dict[str, Any]:
    """When the jobs that the caller sees would end with this job; nothing is handed in."""
    job = parse_form(fields)
    rows = service.forecast(caller, WhatIf(submit=[job]))
    tasks = len(tasks_of(job.array)) if job.array else 1
    return {"rows": rows, "new": [row.job_id for row in rows[-tasks:]]}
