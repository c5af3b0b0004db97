"""The form that hands a job in: its fields are those of a job's file, as texts."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

from flows.api.declared import job_of, variables
from flows.api.forecasting import WhatIf
from flows.api.guarded import Guarded
from flows.runs.job_file import ADAPTED, TRAINED, JobFile
from predictor.errors import InputError
from predictor.options import tasks_of
from warehouse.inbox.tokens import Role, Token

MOST_FIELD = 4_000
"""Most characters of a field. An engineering bound."""

SIMULATED = ("regimes", "seconds")
"""Fields of a job's file for simulation only, which the form leaves out."""

OPERATED = ("tenant", "budget")
"""Fields that a tenant's token determines."""

LISTS = ("command", "after", "secrets")
"""Fields of several words."""

BY_KIND = {
    "What it runs": ("kind", "name", "image", "command", "environment", "secrets", "max_seconds"),
    "Of adaptive jobs only": (*TRAINED, *ADAPTED),
}
"""Groups of fields; all other fields are in a last group."""

LABELS = {"scale_factor": "GPUs", "environment": "environment, NAME=VALUE a line"}
"""Labels of fields that differ from their names."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the form.

    Attributes:
        name: Its name in a job's file.
        label: Its label.
        about: What it means.
        text: What was filled in.
        default: Its value if it is left empty.
        kind: text, number, lines, choice or check.
        choices: Of a choice; the first stands for an empty field.
    """

    name: str
    label: str
    about: str
    text: str
    default: str
    kind: str
    choices: tuple[str, ...] = ()


def form(
    service: Guarded, caller: Token, filled: Mapping[str, str], key: str = ""
) -> dict[str, Any]:
    """The form.

    Args:
        service: The service.
        caller: Who fills it in.
        filled: The text of each field.
        key: Identifies the form (`key_of`); by default a new key.
    """
    left_out = {*SIMULATED, *(OPERATED if caller.role is Role.TENANT else ())}
    grouped = {name for names in BY_KIND.values() for name in names}
    groups = BY_KIND | {
        "How it is scheduled": [n for n in JobFile.model_fields if n not in grouped]
    }
    return {
        "groups": {
            title: [_field(name, filled.get(name, "")) for name in names if name not in left_out]
            for title, names in groups.items()
        },
        "models": sorted({model for model, *_ in service.desk.header.throughputs.rates}),
        "hands_in": caller.role is not Role.READER,
        "most": MOST_FIELD,
        "key": key or uuid4().hex,
        "rows": None,
    }


def _field(name: str, text: str) -> Field:
    declared = JobFile.model_fields[name]
    label, about = LABELS.get(name, name.replace("_", " ")), declared.description or ""
    kind, choices, annotation = "text", tuple[str, ...](), declared.annotation
    of = {*get_args(annotation)} or {annotation}
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        kind, choices = "choice", ("", *(choice.value for choice in annotation))
    elif annotation is bool:
        kind = "check"
    elif name == "environment":
        kind = "lines"
    elif of & {int, float}:
        kind = "number"
    default = f"{declared.default:g}" if kind == "number" and declared.default is not None else ""
    return Field(name, label, about, text, default, kind, choices)


def filled_in(fields: Mapping[str, str]) -> JobFile:
    """The job of a form.

    Args:
        fields: Texts by field; empty fields count as missing.

    Raises:
        InputError: A field is invalid; the error names it.
    """
    values: dict[str, Any] = {}
    for name in JobFile.model_fields:
        text = fields.get(name, "")
        text = text if name == "environment" else text.strip()
        if len(text) > MOST_FIELD:
            problem = f"has more than {MOST_FIELD:,} characters"
            raise InputError(f"job: {name}", problem, "hand it in with shockwave submit")
        if text.strip():
            values[name] = _value(name, text)
    return job_of(Path("job"), values, texts=True)


def key_of(fields: Mapping[str, str]) -> str:
    """The idempotency key of a form and its content; empty if the form has none.

    A form that is sent twice hands in one job; if it is edited in between, two.
    """
    if not (key := fields.get("key", "")):
        return ""
    asked = [key, *(fields.get(name, "") for name in JobFile.model_fields)]
    return sha256(json.dumps(asked).encode()).hexdigest()


def _value(name: str, text: str) -> Any:
    if name == "environment":
        lines = (line.lstrip() for line in re.split(r"\r\n|\r|\n", text))
        return variables("job: environment", [line for line in lines if line])
    if name not in LISTS:
        return text
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"job: {name}", f"is refused: {error}", "close it") from None


def expected_rows(service: Guarded, caller: Token, fields: Mapping[str, str]) -> dict[str, Any]:
    """When the jobs that the caller sees would end with this job; nothing is handed in."""
    job = filled_in(fields)
    rows = service.forecast(caller, WhatIf(submit=[job]))
    tasks = len(tasks_of(job.array)) if job.array else 1
    return {"rows": rows, "new": [row.job_id for row in rows[-tasks:]]}
