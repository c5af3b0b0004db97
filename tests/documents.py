"""Blocks of code of a page, and its commands with their documented output."""

import doctest
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RUN = re.compile(r"\b([a-z][a-z-]*-)[0-9a-f]{6}-\d+")
"""The id of a run: its policy, a part of a hash that changes with any input, and a number."""


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Each command of the page's consoles, with the lines shown below it."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield command, [line for line in shown if line.strip()]


def check_python(page: Path) -> int:
    """Run the page's Python sessions, one after the other; returns how many examples it has.

    Raises:
        AssertionError: Something else comes out than the page shows.
    """
    session = "".join(blocks(page, "pycon"))
    test = doctest.DocTestParser().get_doctest(session, {}, page.name, str(page), 0)
    said: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed = doctest.DocTestRunner(optionflags=flags, verbose=False).run(test, out=said.append)
    assert not failed.failed, "".join(said)
    return failed.attempted


def check_commands(page: Path, run: Callable[..., Any]) -> int:
    """Run the page's commands of Shockwave, one after the other; returns how many it has.

    Args:
        page: The page.
        run: Takes the arguments of a command and returns its `code`, `out` and `err`.

    Raises:
        AssertionError: A command fails, or a line shown below it is not in its output.
    """
    ran, runs = 0, dict[str, str]()  # the ids of runs on the page, and those that they have here

    def here(text: str) -> str:
        return RUN.sub(lambda found: runs.get(found[0], found[0]), text)

    for command, shown in commands(page):
        if command.startswith("shockwave "):
            done = run(*shlex.split(here(command))[1:])
            assert done.code == 0, done.err
            made = {found[1]: found[0] for found in RUN.finditer(done.out)}
            named = [found for line in shown for found in RUN.finditer(line)]
            runs |= {found[0]: made[found[1]] for found in named if found[0] not in runs}
            for line in shown:
                assert squeezed(here(line)) in squeezed(done.out), command
            ran += 1
    return ran


def squeezed(text: str) -> str:
    """The text with spaces where there are several, as tables are as wide as their rows."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())
