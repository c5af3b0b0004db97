"""Errors in the words of the command line: a field is named as the option that gave it."""

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from predictor.errors import ShockwaveError


class Command(TyperCommand):
    """A command whose errors name its options."""

    def invoke(self, ctx: Any) -> Any:
        """Run it.

        Raises:
            ShockwaveError: As the command raised it, but for its place.
        """
        try:
            return super().invoke(ctx)
        except ShockwaveError as error:
            place = place_as_option(error.place, self.params)
            raise type(error)(place, error.problem, error.remedy) from error


def place_as_option(place: str, parameters: Sequence[Any]) -> str:
    """Where an error happened, with the option in place of the field that it gave.

    Args:
        place: A field such as `gpus`; a part of one that can be repeated, such as
            `parameters.lateness`; anything else, such as a file, stays as it is.
        parameters: The command's.
    """
    for parameter in parameters:
        options = [option for option in parameter.opts if option.startswith("--")]
        field, dot, part = place.partition(".") if parameter.multiple else (place, "", "")
        if options and (field == parameter.name or f"--{field.replace('_', '-')}" in options):
            return f"{options[0]}{' ' if dot else ''}{part}"
    return place
