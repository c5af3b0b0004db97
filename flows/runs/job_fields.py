"""The fields of a job's file for command lines and forms, read from `JobFile`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from flows.runs.job_file import JobFile
from predictor.errors import InputError

OPTIONS = {
    "scale_factor": "gpus",
    "deadline_seconds": "deadline",
    "environment": "env",
    "secrets": "secret",
    "volumes": "volume",
}
"""Names of command-line options that differ from their fields."""

SIMULATED = ("regimes", "seconds")
"""Fields that only simulations use; services have no option for them."""


class FieldKind(StrEnum):
    """Kind of input for a field's value."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"
    CHOICE = "choice"
    WORDS = "words"
    VARIABLES = "variables"


KINDS = {
    "string": FieldKind.TEXT,
    "integer": FieldKind.INTEGER,
    "number": FieldKind.NUMBER,
    "boolean": FieldKind.FLAG,
    "array": FieldKind.WORDS,
    "object": FieldKind.VARIABLES,
}
"""Kinds of fields by their type in the JSON Schema."""


@dataclass(frozen=True, slots=True)
class JobField:
    """A field of a job's file.

    Attributes:
        name: Name in the file and in the API.
        title: Label in a form.
        help: Meaning, in one sentence.
        kind: Kind of input.
        default: Default; None if it depends on other fields.
        least: Smallest allowed number; None without a bound.
        most: Largest allowed number; None without a bound.
    """

    name: str
    title: str
    help: str
    kind: FieldKind
    default: Any = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None

    @property
    def option(self) -> str:
        """Its name as a parameter of a command, such as `max_seconds` for `--max-seconds`."""
        return OPTIONS.get(self.name, self.name)


@cache
def list_job_fields() -> tuple[JobField, ...]:
    """Return the fields of a job submitted to a service, in the order of `JobFile`."""
    schema = JobFile.model_json_schema()
    return tuple(
        _describe(name, about, schema["$defs"])
        for name, about in schema["properties"].items()
        if name not in SIMULATED
    )


def _describe(name: str, about: dict[str, Any], definitions: dict[str, Any]) -> JobField:
    value = next((one for one in about.get("anyOf", ()) if one["type"] != "null"), about)
    choices = definitions[value["$ref"].rpartition("/")[2]]["enum"] if "$ref" in value else ()
    least = value.get("minimum", value.get("exclusiveMinimum"))
    kind = FieldKind.CHOICE if choices else KINDS[value["type"]]
    title = JobFile.model_fields[name].title or name.replace("_", " ")
    about_it = about.get("description", ""), kind, about.get("default")
    return JobField(name, title, *about_it, tuple(choices), least, value.get("maximum"))


def parse_variables(place: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse environment variables in the form NAME=VALUE; errors name their origin, `place`.

    Raises:
        InputError: A text has another form, or a name is given twice.
    """
    variables = dict[str, str]()
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise InputError(place, f"{text[:80]!r} is not NAME=VALUE", "give one like SEED=7")
        if name in variables:
            raise InputError(place, f"{name[:80]!r} is given twice", "leave one of them out")
        variables[name] = value
    return variables
