"""The form that submits a job: the fields of a job's file, as text."""

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
from flows.api.requests import WhatIf
from flows.api.submission import parse_job
from flows.runs.job_fields import FieldKind, JobField, list_job_fields, parse_variables
from flows.runs.job_file import ADAPTED, TRAINED, JobFile
from predictor.errors import InputError
from predictor.options import parse_tasks
from warehouse.inbox.tokens import Role

MOST_FIELD = 4_000
"""Most characters of a field. An engineering bound."""

OPERATED = ("tenant", "budget")
"""Fields that a tenant's token determines."""

BY_KIND = {
    "What it runs": (
        "kind",
        "name",
        "image",
        "command",
        "code",
        "environment",
        "secrets",
        "max_seconds",
    ),
    "Adaptive jobs only": (*TRAINED, *ADAPTED),
}
"""Groups of fields; a last group takes all others."""


@dataclass(frozen=True, slots=True)
class FilledField:
    """A field of the form with the entered text."""

    field: JobField
    text: str

    @property
    def default(self) -> str:
        """Default of a number field; empty if there is none."""
        value = self.field.default
        return f"{value:g}" if isinstance(value, int | float) else ""


def make_form(api: AuthorizedApi, filled: Mapping[str, str], key: str = "") -> dict[str, Any]:
    """Return the content of the form, with the text of each filled field.

    `key` identifies the form (`make_key`); by default it is new.
    """
    role = api.caller.role
    left_out = OPERATED if role is Role.TENANT else ()
    fields = {field.name: field for field in list_job_fields() if field.name not in left_out}
    grouped = {name for names in BY_KIND.values() for name in names}
    groups = BY_KIND | {"How it is scheduled": [name for name in fields if name not in grouped]}
    return {
        "groups": {
            title: [FilledField(fields[n], filled.get(n, "")) for n in names if n in fields]
            for title, names in groups.items()
        },
        "models": sorted({model for model, *_ in api.service.header.throughputs.rates}),
        "may_submit": role is not Role.READER,
        "most": MOST_FIELD,
        "key": key or uuid4().hex,
        "rows": None,
    }


def parse_form(fields: Mapping[str, str]) -> JobFile:
    """Parse a form's job; empty fields count as missing.

    Raises:
        InputError: A field is invalid; the error names it.
    """
    values: dict[str, Any] = {}
    for field in list_job_fields():
        text = fields.get(field.name, "")
        text = text if field.kind is FieldKind.VARIABLES else text.strip()
        if len(text) > MOST_FIELD:
            problem = f"has more than {MOST_FIELD:,} characters"
            raise InputError(f"job: {field.name}", problem, "submit it with shockwave submit")
        if text.strip():
            values[field.name] = _value(field, text)
    return parse_job(Path("job"), values, texts=True)


def make_key(fields: Mapping[str, str]) -> str:
    """Return the idempotency key of a form and its content; empty if the form has none.

    Sending a form twice submits one job. Sending it again after an edit submits another job.
    """
    if not (key := fields.get("key", "")):
        return ""
    content = [key, *(fields.get(name, "") for name in JobFile.model_fields)]
    return sha256(json.dumps(content).encode()).hexdigest()


def _value(field: JobField, text: str) -> Any:
    if field.kind is FieldKind.VARIABLES:
        lines = (line.lstrip() for line in re.split(r"\r\n|\r|\n", text))
        return parse_variables("job: environment", [line for line in lines if line])
    if field.kind is not FieldKind.WORDS:
        return text
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(
            f"job: {field.name}", f"is refused: {error}", "close the quotation"
        ) from None


def forecast_form(api: AuthorizedApi, fields: Mapping[str, str]) -> dict[str, Any]:
    """Forecast when the visible jobs end if the form's job is submitted."""
    job = parse_form(fields)
    rows = api.forecast(WhatIf(submit=[job]))
    tasks = len(parse_tasks(job.array)) if job.array else 1
    return {"rows": rows, "new": [row.job_id for row in rows[-tasks:]]}
