"""The docs describe the whole command line and all policies; all that they name exists."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from flows.cli import runs
from flows.cli.app import application
from solver.policies import POLICIES, parameters

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md"))]
PAGE = (DOCS / "cli.md").read_text(encoding="utf-8")
POLICIES_PAGE = (DOCS / "policies.md").read_text(encoding="utf-8")
GROUP: Any = typer.main.get_command(application())


def section(command: str) -> str:
    """The text below a command's heading."""
    _, found, rest = PAGE.partition(f"\n## {command}\n")
    assert found, f"docs/cli.md has no section on {command}"
    return rest.partition("\n## ")[0]


SHARED = section("Options that several commands share")
PARAMETERS = [
    pytest.param(name, parameter, id=f"{name}-{parameter.name}")
    for name, command in GROUP.commands.items()
    for part in (command, *getattr(command, "commands", {}).values())
    for parameter in part.params
]


@pytest.mark.parametrize("command", GROUP.commands)
def test_every_command_is_there_with_an_example(command: str) -> None:
    assert f"| [`{command}`](#{command}) |" in PAGE
    assert f"\n    shockwave {command}" in section(command)


@pytest.mark.parametrize(("command", "parameter"), PARAMETERS)
def test_every_option_and_argument_is_there(command: str, parameter: Any) -> None:
    if parameter.param_type_name == "argument":
        assert f"| `{parameter.name.upper()}` |" in section(command)
    else:
        for option in parameter.opts:
            assert f"| `{option}` |" in SHARED + section(command), f"{command} {option}"


@pytest.mark.parametrize(("command", "parameter"), PARAMETERS)
def test_every_default_is_there(command: str, parameter: Any) -> None:
    default = parameter.default
    if type(default) in (int, float, str):
        rows = [
            row
            for row in (SHARED + section(command)).splitlines()
            if row.startswith(f"| `{parameter.opts[0]}` |")
        ]
        row = rows[-1]  # what the command's own section says comes first
        shown = f"{default:g}" if isinstance(default, float) else str(default)
        assert shown in row


def test_no_option_is_made_up() -> None:
    known = {option for parameter in PARAMETERS for option in parameter.values[1].opts}
    written = {
        cell.strip().strip("`")
        for line in PAGE.splitlines()
        if line.startswith("| `--")
        for cell in line.split("|")[1:2]
    }
    assert written == {option for option in known if option.startswith("--")} | {"--help"}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_there_with_its_parameters(name: str) -> None:
    policy = POLICIES[name]
    row = next(line for line in POLICIES_PAGE.splitlines() if line.startswith(f"| `{name}` | "))
    _, _, summary, source, settable, _ = (cell.strip() for cell in row.split("|"))
    assert (summary, source) == (policy.summary, policy.source)
    assert settable == ", ".join(f"`{key}` {value:g}" for key, value in parameters(policy).items())


def test_every_parameter_is_explained_with_its_default() -> None:
    table = POLICIES_PAGE.partition("\n## Parameters\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    explained = []
    for line in lines:
        name, policies, default, unit, meaning = (cell.strip() for cell in line.split("|")[1:-1])
        assert unit, line
        assert meaning, line
        explained += [(name, policy.strip(), default) for policy in policies.split(",")]
    assert sorted(explained) == sorted(
        (f"`{parameter}`", f"`{name}`", f"{default:g}")
        for name, policy in POLICIES.items()
        for parameter, default in parameters(policy).items()
    )


def test_every_field_of_a_run_is_there() -> None:
    for field in runs.SIMULATE_FIELDS:
        assert f"`{field}`" in section("simulate")


LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]*))?\)")
PACKAGES = ("predictor", "solver", "containers", "tasks", "warehouse", "flows", "shockwave")
NAMED = re.compile(rf"`((?:{'|'.join(PACKAGES)})/[\w./]*)`")


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    for path, anchor in links:
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("name", ["CONTRIBUTING", "docs/architecture", "docs/glossary"])
def test_files_that_a_page_names_exist(name: str) -> None:
    named = NAMED.findall((ROOT / f"{name}.md").read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
