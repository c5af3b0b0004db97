"""Errors on the command line: a field is reported as the option that sets it."""

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from predictor.errors import ShockwaveError


class Command(TyperCommand):
    """A command whose errors name its options."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            ShockwaveError: The error that the command raised, with the option as its place.
        """
        try:
            return super().invoke(ctx)
        except ShockwaveError as error:
            place = place_as_option(error.place, self.params)
            raise type(error)(place, error.problem, error.remedy) from error


def place_as_option(place: str, parameters: Sequence[Any]) -> str:
    """The place of an error, with a field replaced by the option that sets it.

    Args:
        place: A field such as `gpus`, or an element of a repeatable field, such as
            `parameters.lateness`. Any other place, such as a file, is returned unchanged.
        parameters: The command's parameters.
    """
    for parameter in parameters:
        options = [option for option in parameter.opts if option.startswith("--")]
        field, dot, part = place.partition(".") if parameter.multiple else (place, "", "")
        if options and (field == parameter.name or f"--{field.replace('_', '-')}" in options):
            return f"{options[0]}{' ' if dot else ''}{part}"
    return place
