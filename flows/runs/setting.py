"""What a user may set, said once: its title, its meaning, its bounds.

A group of settings is a dataclass whose fields are `Annotated` with a `Setting`. The command
line makes options of them (`flows.cli.options`). Pydantic models that inherit the group read
TOML files and draw Prefect's forms; nothing here imports pydantic, so that `--help` does not.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from predictor.errors import InputError


@dataclass(frozen=True)
class Setting:
    """What a field means to the user who sets it.

    Attributes:
        title: Its name in a form.
        meaning: A line that says what it is: help of the option, description in the form.
        least: The least value.
        above: What the value must be above.
        most: The largest value.
        choices: Gives what can be chosen, where the type does not say it.
    """

    title: str
    meaning: str
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: Callable[[], Sequence[str]] | None = None

    def check(self, name: str, value: float | None) -> None:
        """Refuse a value out of bounds; None is a value that was not given.

        Raises:
            InputError: It is; names the field.
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
        """For pydantic: the bounds; and a number is no text, nor yes or no."""
        schema = handler(source)
        kind = schema["schema"] if schema["type"] == "nullable" else schema
        if kind["type"] in ("bool", "int", "float"):
            kind["strict"] = True
        for bound, value in (("ge", self.least), ("gt", self.above), ("le", self.most)):
            if value is not None:
                kind[bound] = value
        return schema

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        """For pydantic: title, description and choices of the field in a form."""
        drawn = handler(schema)
        drawn |= {"title": self.title, "description": self.meaning}
        if self.choices is not None:
            drawn["enum"] = list(self.choices())
        return drawn


def settings_in(group: type[Any]) -> Iterator[tuple[str, Any, Setting]]:
    """Name, type and setting of each field of a group, in its order."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        annotated = hints[field.name]
        yield field.name, annotated.__origin__, annotated.__metadata__[0]


def check_bounds(group: type[Any], values: object) -> None:
    """Refuse values out of the bounds of a group's settings.

    Args:
        group: Whose bounds.
        values: Has an attribute for each of the group's fields.

    Raises:
        InputError: One is out of bounds; names the field.
    """
    for name, _, setting in settings_in(group):
        setting.check(name, getattr(values, name))
