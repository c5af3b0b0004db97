"""Write docs/cli.md, and the tables of docs/prefect.md, from the declarations in the code.

    python tools/reference.py

Tests fail while the pages differ from what this writes.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

PAGE = ROOT / "docs" / "cli.md"
FORMS = ROOT / "docs" / "prefect.md"
SHARED_BY = 3
"""Commands that have the same argument or option from which on it is documented once."""

WAREHOUSE = "`--warehouse`"
"""Option that the page describes at its top."""

FIRST, LAST = "`--trace`", "`--seed`"
"""First and last option of a workload, in the order of the table of shared options."""

Option = tuple[str, str, str]
"""Name, default and meaning, as a row of a table."""


def main() -> None:
    """Write the pages."""
    PAGE.write_text(page(), encoding="utf-8")
    FORMS.write_text(forms(FORMS.read_text(encoding="utf-8")), encoding="utf-8")


def page() -> str:
    """The text of the page."""
    import typer

    from flows.cli.app import build_application
    from flows.cli.commands import COMMANDS

    group: Any = typer.main.get_command(build_application())
    commands = {name: find(group, name) for name in COMMANDS}
    rows = {name: dict(options(command)) for name, command in commands.items()}
    count = Counter(row for of in rows.values() for row in of.values())
    shared = [row for row in count if count[row] >= SHARED_BY]
    parts = [HEAD, SHARED, table(("Option", "Default", "Meaning"), shared)]
    for name, command in commands.items():
        shown = [f"## {name}", usage(name, command), text_of(command)]
        parts.append("\n\n".join(filter(None, shown)))
        own = [row for row in rows[name].values() if row not in shared]
        if own:
            parts.append(table(("Option", "Default", "Meaning"), own))
        names = [row[0] for row in rows[name].values() if row in shared and row[0] != WAREHOUSE]
        if names:
            parts.append(f"Shared: {', '.join(join_workload(names))}.")
    return "\n\n".join(parts) + "\n"


HEAD = """# The command line

This page is written by `python tools/reference.py` from the same declarations as `--help`.
`shockwave --version` prints the version. Every command reads and writes `var/warehouse` unless
`--warehouse` or `SHOCKWAVE_WAREHOUSE` names another folder.

Tables on stdout fit the terminal: columns without room are left out, and numbers are never cut.
A file or a pipe gets the whole table. `--json` prints one JSON object per line. Progress and
errors go to stderr: a bar on a terminal, else a line every five seconds. `SHOCKWAVE_PROGRESS` sets
these seconds; 0 turns progress off. Exit codes:

| Code | Meaning |
| ---: | --- |
| 0 | The command succeeded. |
| 1 | A check failed: an audit, a replay, a check of hosts, or cells of a campaign. |
| 2 | The input was wrong; one line names the place, the problem and the remedy. |
| 130 | Interrupted. What was recorded is kept. |"""

SHARED = """## Shared options

Arguments and options that several commands have, with the same meaning and default."""


def join_workload(names: list[str]) -> list[str]:
    """The options of a command, with those of a workload, which stand together, as one."""
    if {FIRST, LAST} <= {*names}:
        first, last = names.index(FIRST), names.index(LAST)
        return [*names[:first], f"{FIRST} to {LAST}", *names[last + 1 :]]
    return names


def find(group: Any, name: str) -> Any:
    """The command of a name such as `run list`."""
    for word in name.split():
        group = group.commands[word]
    return group


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
    """The usage line of a command with several arguments, whose order matters; else empty."""
    arguments = [
        f"[{parameter.name.upper()}]" if not parameter.required else parameter.name.upper()
        for parameter in command.params
        if parameter.param_type_name == "argument"
    ]
    return f"    shockwave {name} {' '.join(arguments)}" if len(arguments) > 1 else ""


def text_of(command: Any) -> str:
    """What the command does, from its docstring."""
    paragraphs = (command.help or "").split("\f")[0].strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def table(heads: tuple[str, ...], rows: Any) -> str:
    """A table in Markdown."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def forms(text: str) -> str:
    """The page of deployments with the tables of their forms, as Prefect draws them."""
    from flows.deployments.deployments import read_deployments

    for deployment in read_deployments():
        before, heading, rest = text.partition(f"\n### {deployment.name}\n")
        old = re.search(r"^\| Field .*\n(\|.*\n)*", rest, re.MULTILINE)
        assert heading, deployment.name
        assert old, deployment.name
        new = table(("Field", "Default", "Bounds", "Meaning"), fields(deployment)) + "\n"
        text = before + heading + rest[: old.start()] + new + rest[old.end() :]
    return text


def fields(deployment: Any) -> Iterator[tuple[str, str, str, str]]:
    """The rows of a deployment's table, from the schema that Prefect checks.

    Fields that are options of the command of the same name are left out.
    """
    module, _, function = deployment.entrypoint.rpartition(".")
    schema = getattr(import_module(module), function).parameters.model_dump_for_openapi()
    models, form = schema.get("definitions", {}), schema
    if "form" in schema["properties"]:
        form = models[schema["properties"]["form"]["$ref"].rpartition("/")[2]]
    known = find_options(deployment.name)
    for name, field in form["properties"].items():
        default, meaning = format_default(name, field, form), find_meaning(field, models)
        if name != "warehouse" and (name, meaning) not in known:  # which all forms have
            yield f"`{name}`", default, format_bounds(field, models), meaning


def find_options(name: str) -> set[tuple[str, str]]:
    """Fields and meanings of the options of a command; none if there is no such command."""
    import typer

    from flows.cli.app import build_application
    from flows.cli.commands import COMMANDS

    if name not in COMMANDS:
        return set()
    command = find(typer.main.get_command(build_application([name])), name)
    return {(parameter.name, parameter.help or "") for parameter in command.params}


def find_meaning(field: dict[str, Any], models: dict[str, Any]) -> str:
    """The description of a field, in one line."""
    found: str = field.get("description") or resolve(field, models)["description"]
    return found.partition("\n")[0]


def resolve(field: dict[str, Any], models: dict[str, Any]) -> dict[str, Any]:
    """The definition that a field refers to."""
    field = field.get("allOf", [field])[0]
    found: dict[str, Any] = models[field["$ref"].rpartition("/")[2]] if "$ref" in field else field
    return found


def format_default(name: str, field: dict[str, Any], asked: dict[str, Any]) -> str:
    """The default of a field as text."""
    if name in asked.get("required", []):
        return "required"
    value = field.get("default")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "empty" if value in (None, "") else f"{value:,g}" if type(value) is float else f"{value}"


def format_bounds(field: dict[str, Any], models: dict[str, Any]) -> str:
    """The values that a field may have."""
    if "anyOf" in field:
        field = next(choice for choice in field["anyOf"] if choice.get("type") != "null")
    field = resolve(field, models)
    if "enum" in field:
        return ", ".join(f"`{choice}`" for choice in field["enum"])
    bounds = [
        f"{word} {format_number(field[bound])}"
        for bound, word in (
            ("exclusiveMinimum", "above"),
            ("minimum", "at least"),
            ("maximum", "at most"),
        )
        if bound in field
    ]
    if field.get("type") == "string" and field.get("minLength"):
        bounds = [f"{field['minLength']} to {field['maxLength']} characters"]
    elif "maxLength" in field:
        bounds = [f"at most {field['maxLength']} characters"]
    kind = {"boolean": "yes or no", "object": "[a campaign](campaigns.md#the-file)"}
    return ", ".join(bounds) or kind.get(field["type"], "any")


def format_number(bound: float) -> str:
    """A bound as text."""
    return f"{int(bound):,}"


if __name__ == "__main__":
    main()
