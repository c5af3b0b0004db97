"""Write docs/cli.md from the declarations of the commands.

    python tools/reference.py

A test fails while the page differs from what this writes.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

PAGE = ROOT / "docs" / "cli.md"
SHARED_BY = 3
"""Commands that have the same option from which on it is documented once."""

Option = tuple[str, str, str]
"""Name, default and meaning, as a row of a table."""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The text of the page."""
    import typer

    from flows.cli.app import application
    from flows.cli.commands import COMMANDS, EVERYDAY, GROUPS

    group: Any = typer.main.get_command(application())
    commands = {name: find(group, name) for name in COMMANDS}
    rows = {name: dict(options(command)) for name, command in commands.items()}
    count = Counter(row for of in rows.values() for row in of.values())
    shared = [row for row in count if count[row] >= SHARED_BY and row[0].startswith("`--")]
    parts = [HEAD, table(("Command", "What it does"), summaries(COMMANDS, EVERYDAY, GROUPS))]
    parts += [SHARED, table(("Option", "Default", "Meaning"), shared)]
    for name, command in commands.items():
        parts.append(f"## {name}\n\n    {usage(name, command)}\n\n{text_of(command)}")
        own = [row for row in rows[name].values() if row not in shared]
        if own:
            parts.append(table(("Option", "Default", "Meaning"), own))
        names = [row[0] for row in rows[name].values() if row in shared]
        if names:
            parts.append(f"Shared options: {', '.join(names)}.")
    return "\n\n".join(parts) + "\n"


HEAD = """# The command line

This page is written by `python tools/reference.py` from the same declarations as `--help`.
`shockwave --version` prints the version. Every command reads and writes `var/warehouse` unless
`--warehouse` or `SHOCKWAVE_WAREHOUSE` names another folder.

Tables on stdout fit the terminal: columns without room are left out, and numbers are never cut.
A file or a pipe gets the whole table. `--json` prints one JSON object per line. Progress and
errors go to stderr. Exit codes:

| Code | Meaning |
| ---: | --- |
| 0 | The command succeeded. |
| 1 | A check failed: an audit, a replay, a conformance test, or cells of a campaign. |
| 2 | The input was wrong; one line names the place, the problem and the remedy. |
| 130 | Interrupted. What was recorded is kept. |

## Commands"""

SHARED = """## Shared options

Options that several commands have, with the same meaning and default."""


def find(group: Any, name: str) -> Any:
    """The command of a name such as `run list`."""
    for word in name.split():
        group = group.commands[word]
    return group


def summaries(
    commands: Mapping[str, tuple[str, str]],
    everyday: Mapping[str, object],
    groups: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    """Rows of the table of commands: everyday commands first, then group by group."""
    for name in everyday:
        yield link(name), commands[name][1]
    for group, about in groups.items():
        yield f"**{group}**", about
        for name, (_, summary) in commands.items():
            if name.startswith(f"{group} "):
                yield link(name), summary


def link(name: str) -> str:
    """A link to a command's section."""
    return f"[`{name}`](#{name.replace(' ', '-')})"


def options(command: Any) -> Iterator[tuple[str, Option]]:
    """The rows of a command's arguments and options, by parameter."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            names, words = f"`{parameter.name.upper()}`", parameter.help or ""
            default = "required" if parameter.required else plain(parameter.default)
        else:
            names = ", ".join(f"`{option}`" for option in parameter.opts)
            words = parameter.help or ""
            default = "required" if parameter.required else plain(parameter.default)
            if parameter.multiple:
                words += "" if "repeat" in words else " Can be repeated."
            if parameter.envvar:
                words += f" Environment: `{parameter.envvar}`."
        yield parameter.name, (names, default, words.replace("|", "\\|"))


def plain(default: Any) -> str:
    """A default as text; a dash for none."""
    if default is None or default is False or default == "" or callable(default):
        return "–"
    if isinstance(default, float):
        return f"{default:g}"
    return str(getattr(default, "value", default))


def usage(name: str, command: Any) -> str:
    """The usage line."""
    arguments = [
        f"[{parameter.name.upper()}]" if not parameter.required else parameter.name.upper()
        for parameter in command.params
        if parameter.param_type_name == "argument"
    ]
    return " ".join(["shockwave", name, *arguments, "[OPTIONS]"])


def text_of(command: Any) -> str:
    """What the command does, from its docstring."""
    paragraphs = (command.help or "").split("\f")[0].strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def table(heads: tuple[str, ...], rows: Any) -> str:
    """A table in Markdown."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
