"""Errors on the command line: one line each, which names options in place of fields."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from flows.cli.commands import GROUPED, WITHOUT_RECORDS, find_command
from predictor.errors import InputError, ShockwaveError, first_line, likely, remedy_of
from warehouse import DEFAULT_WAREHOUSE

WAREHOUSE_VARIABLE = "SHOCKWAVE_WAREHOUSE"
"""Environment variable with the default warehouse of commands."""

_COMMAND = re.compile(r"shockwave ([a-z-]+)( [a-z-]+)?( \S+-\d+)?(?![\w-])")
"""A command in a remedy, and the id of its run."""


def convert_error(error: BaseException) -> ShockwaveError | None:
    """Convert an error that a user can fix; None for a defect of the program.

    Users can fix errors of this program, wrong usage, wrong settings of Prefect and errors of the
    operating system.
    """
    if isinstance(error, ShockwaveError):
        return error
    if isinstance(error, OSError):
        remedy = remedy_of(error, "make it readable and writable")
        place = next((text for text in (error.filename, error.filename2) if text), "shockwave")
        return ShockwaveError(str(place), error.strerror or first_line(error), remedy)
    if isinstance(error, MemoryError):
        return ShockwaveError("shockwave", "ran out of memory", "raise its memory limit")
    if getattr(error, "title", "") == "Settings":  # pydantic's, of Prefect's own settings
        problem = f"is refused by Prefect ({' '.join(str(error).split())})"
        return InputError("PREFECT_ setting", problem, "correct it, or unset it")
    usage = getattr(error, "format_message", None)  # Typer's classes have moved between versions
    if usage is None:
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "shockwave"
    remedy = f"see {command} --help"
    option = getattr(error, "option_name", "")
    if option and context:
        error.possibilities = ()  # type: ignore[attr-defined]
        known = [name for parameter in context.command.params for name in parameter.opts]
        remedy = likely(option, [name for name in known if name.startswith("--")]) + remedy
    if option and context and context.parent is None:
        remedy = f"options follow the command, as in shockwave COMMAND {option}; {remedy}"
    problem = first_line(usage()).rstrip(".")
    if unknown := re.fullmatch(r"No such command '(\S+)'", problem):
        remedy = _likely_commands(unknown[1]) + remedy
    return InputError(command, problem, remedy)


def _likely_commands(verb: str) -> str:
    """Suggest the commands of groups with such a name."""
    found = [f"shockwave {name}" for name in GROUPED if name.split()[1] == verb]
    return f"try {' or '.join(found)}; " if found else ""


def make_warehouse_option(warehouse: Path) -> str:
    """Return the option that selects a warehouse; empty if it is the default."""
    usual = os.environ.get(WAREHOUSE_VARIABLE) or DEFAULT_WAREHOUSE
    return "" if warehouse == Path(usual) else f" --warehouse {quote(str(warehouse))}"


def add_warehouse(remedy: str, warehouse: Path) -> str:
    """Add `--warehouse` to the commands of a remedy, if this command has it."""
    option = make_warehouse_option(warehouse)
    if not option or "--warehouse" in remedy:
        return remedy

    def complete(match: re.Match[str]) -> str:
        command = find_command(match[0].split()[1:])
        if not command or command in WITHOUT_RECORDS:
            return match[0]
        if match[2] and " " not in command:  # a word of the sentence follows the command
            return f"shockwave {command}{option}{match[2]}{match[3] or ''}"
        return match[0] + option

    return _COMMAND.sub(complete, remedy)


def name_options(remedy: str, parameters: Sequence[Any]) -> str:
    """Replace fields in a remedy by options: `scale_factors`; one word only after `set`."""
    for parameter in parameters:
        name = str(parameter.name)
        if parameter.opts[0].startswith("--"):
            before = r"\b" if "_" in name else r"\bset "
            remedy = re.sub(rf"({before}){name}\b", rf"\1{parameter.opts[0]}", remedy)
    return remedy


def escape(text: str) -> str:
    """Escape control characters, newlines included."""
    if text.isprintable():
        return text
    return "".join(
        part if part.isprintable() else part.encode("unicode_escape").decode() for part in text
    )


def convert_place(place: str, parameters: Sequence[Any]) -> str:
    """Replace a field, as place of an error, by the option of the command that sets it.

    The place may be an element of a repeatable field, such as `parameters.lateness`. Any other
    place, such as a file, is returned unchanged.
    """
    for parameter in parameters:
        options = [option for option in parameter.opts if option.startswith("--")]
        field, dot, part = place.partition(".") if parameter.multiple else (place, "", "")
        if options and (field == parameter.name or f"--{field.replace('_', '-')}" in options):
            return f"{options[0]}{' ' if dot else ''}{part}"
    return place
