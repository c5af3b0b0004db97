"""Settings: title, meaning and bounds of user settings, defined once.

A group of settings is a dataclass whose fields are `Annotated` with a `Setting`. The command line
derives its options from the groups (`flows.cli.options`). Pydantic models inherit them to validate
TOML files and render Prefect's forms. This module does not import pydantic, to keep `--help` fast.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from predictor.errors import InputError


@dataclass(frozen=True)
class Setting:
    """The metadata of a field that users set.

    Attributes:
        title: Name in a form.
        meaning: A line of description: help of the option, description in the form.
        least: Inclusive lower bound.
        above: Exclusive lower bound.
        most: Inclusive upper bound.
        choices: Returns the choices, if the type does not define them.
    """

    title: str
    meaning: str
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: Callable[[], Sequence[str]] | None = None

    def check(self, name: str, value: float | None) -> None:
        """Refuse a value out of bounds; None means no value.

        Raises:
            InputError: The value is out of bounds; the error names the field.
        """
        if value is None:
            return
        if self.least is not None and not value >= self.least:
            remedy = f"give at least {self.least}"
        elif self.above is not None and not value > self.above:
            remedy = f"give more than {self.above}"
        elif self.most is not None and not value <= self.most:
            remedy = f"give at most {self.most}"
        else:
            return
        raise InputError(name, f"{value} is out of range", remedy)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Add bounds and strict types to pydantic's schema (no numbers from text or booleans)."""
        schema = handler(source)
        kind = schema["schema"] if schema["type"] == "nullable" else schema
        if kind["type"] in ("bool", "int", "float"):
            kind["strict"] = True
        for bound, value in (("ge", self.least), ("gt", self.above), ("le", self.most)):
            if value is not None:
                kind[bound] = value
        return schema

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        """Return the form's schema with title, description and choices."""
        drawn = handler(schema)
        drawn |= {"title": self.title, "description": self.meaning}
        if self.choices is not None:
            drawn["enum"] = list(self.choices())
        return drawn


def settings_in(group: type[Any]) -> Iterator[tuple[str, Any, Setting]]:
    """Yield name, type and setting of each field of a group, in the order of definition."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        annotated = hints[field.name]
        yield field.name, annotated.__origin__, annotated.__metadata__[0]


def check_bounds(group: type[Any], values: object) -> None:
    """Refuse an object with attributes out of the bounds of a group's settings.

    Raises:
        InputError: A value is out of bounds; the error names the field.
    """
    for name, _, setting in settings_in(group):
        setting.check(name, getattr(values, name))
