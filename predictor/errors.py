"""Errors that a user can act on.

    ShockwaveError
    ├── InputError        a file, line or field is wrong
    ├── WarehouseError    the warehouse cannot be read or written
    │   └── WarehouseBusy     a transient failure: a full disk, a lock held elsewhere
    ├── SolverError       no back end could solve the window
    ├── PluginError       code of another distribution failed
    └── Interrupted       the user stopped it; exit code 130

Each error has a place and a remedy. The command line prints it as a single line and exits
with the error's `exit_code`, 2 by default.
"""

import errno
import os
import re
from collections.abc import Iterable
from typing import ClassVar


class ShockwaveError(Exception):
    """A failure with a place and a remedy.

    Args:
        place: The file, line or field at fault.
        problem: What is wrong.
        remedy: What the user can do about it.
    """

    exit_code: ClassVar[int] = 2
    """Exit code of the command line."""

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem}; {remedy}")
        self.place = place
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["ShockwaveError"], tuple[str, str, str]]:
        """Pickle by the three parts, so that the error crosses process boundaries."""
        return type(self), (self.place, self.problem, self.remedy)


class InputError(ShockwaveError):
    """A file, line or field is wrong."""


class WarehouseError(ShockwaveError):
    """The warehouse cannot be read or written."""


class WarehouseBusy(WarehouseError):
    """A transient failure that is worth a retry: a full disk, a run locked elsewhere."""


class SolverError(ShockwaveError):
    """No back end could solve the window."""


class PluginError(ShockwaveError):
    """Code of another distribution failed, or returned an invalid value."""


class Interrupted(ShockwaveError):
    """The user stopped the program; a run can be resumed."""

    exit_code = 130
    """The shell's exit code for a program ended by SIGINT: 128 + 2."""


def remedy_of(error: BaseException, usual: str) -> str:
    """Return the usual remedy, or how to raise the limit of open files if the error reports it."""
    lacking = os.strerror(errno.EMFILE) in str(error) or os.strerror(errno.ENFILE) in str(error)
    return "allow more open files (ulimit -n)" if lacking else usual


ALIKE, SHORTEST = 0.75, 3
"""Least similarity (difflib) of a suggested name, and least length of a prefix that suggests one.
Chosen by hand; no sweep is recorded."""


_ENDING = re.compile("(ies|y|s)$")


def meant(text: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name: the most similar known name, and all known names."""
    names = list(known)
    return f"{likely(text, names)}choose from {', '.join(names)}"


def likely(text: str, names: Iterable[str]) -> str:
    """Suggest the name most similar to an unknown one, as a question; empty if none is similar."""
    from difflib import get_close_matches

    given, ordered = _ordered(text), {_ordered(name): name for name in names}
    within = [name for name in ordered if _within(given, name) or _within(name, given)]
    like = get_close_matches(given, within or ordered, 1, 0.0 if within else ALIKE)
    return f"did you mean {ordered[like[0]]}? " if like else ""


def _ordered(name: str) -> str:
    """Return the words of a name in alphabetical order."""
    return "-".join(sorted(re.split("[-_. ]+", name.lower().strip("-_. "))))


def _within(short: str, long: str) -> bool:
    """Return whether a name has all words of another, plural or not, or begins with it."""
    words, others = ({_ENDING.sub("", word) for word in name.split("-")} for name in (short, long))
    return words <= others or (len(short) >= SHORTEST and long.startswith(short))


def first_line(error: BaseException | str) -> str:
    """Return the first line of an error; its class if it has no message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def check_plain(text: str) -> str:
    """Return the text of a number, for `int` or `float`, which also accept 1_000 and other digits.

    Raises:
        ValueError: The text has an underscore or a character outside ASCII.
    """
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return text
