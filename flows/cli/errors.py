"""Errors on the command line: one line each, in which a field is the option that sets it."""

from collections.abc import Sequence
from typing import Any

from predictor.errors import InputError, ShockwaveError, first_line, remedy_of


def reported(error: BaseException) -> ShockwaveError | None:
    """An error that a user can act on; None for a defect of the program.

    Besides the program's own errors these are wrong usage of a command, wrong settings of Prefect,
    and what the operating system refuses, whatever called it.
    """
    if isinstance(error, ShockwaveError):
        return error
    if isinstance(error, OSError):
        remedy = remedy_of(error, "let it be read and written")
        place = next((text for text in (error.filename, error.filename2) if text), "shockwave")
        return ShockwaveError(str(place), error.strerror or first_line(error), remedy)
    if isinstance(error, MemoryError):
        return ShockwaveError("shockwave", "there is not enough memory", "allow it more")
    if getattr(error, "title", "") == "Settings":  # pydantic's, of Prefect's own settings
        problem = f"is refused by Prefect ({' '.join(str(error).split())})"
        return InputError("PREFECT_ setting", problem, "correct it, or unset it")
    usage = getattr(error, "format_message", None)  # Typer's classes have moved between versions
    if usage is None:
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "shockwave"
    return InputError(command, first_line(usage()).rstrip("."), f"see {command} --help")


def printable(text: str) -> str:
    """The text with control characters escaped, newlines included."""
    if text.isprintable():
        return text
    return "".join(
        part if part.isprintable() else part.encode("unicode_escape").decode() for part in text
    )


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
