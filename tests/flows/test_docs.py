"""The docs describe all commands and policies, and what they name exists."""

import re
from pathlib import Path
from runpy import run_path

import pytest

from solver.policies import POLICIES, parameters

ROOT = Path(__file__).parents[2]
reference = run_path(str(ROOT / "tools" / "reference.py"))
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md"))]
POLICIES_PAGE = (DOCS / "policies.md").read_text(encoding="utf-8")


def test_the_reference_of_commands_is_generated() -> None:
    stored = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert reference["page"]() == stored, "write it anew: python tools/reference.py"


def test_the_tables_of_forms_are_generated() -> None:
    stored = (DOCS / "prefect.md").read_text(encoding="utf-8")
    assert reference["forms"](stored) == stored, "write it anew: python tools/reference.py"


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


LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]*))?\)")
PACKAGES = ("predictor", "solver", "containers", "tasks", "warehouse", "flows", "shockwave")
NAMED = re.compile(rf"`((?:{'|'.join(PACKAGES)})/[\w./]*)`")


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    headings = {page.resolve(): anchors(page) for page in PAGES}
    astray = []
    for page in PAGES:
        for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / path if path else page).resolve()
            if not target.exists() or (anchor and anchor not in headings.get(target, ())):
                astray.append(f"{page.name}: {path}#{anchor}")
    assert astray == []


@pytest.mark.parametrize("name", ["CONTRIBUTING", "docs/architecture", "docs/glossary"])
def test_files_that_a_page_names_exist(name: str) -> None:
    named = NAMED.findall((ROOT / f"{name}.md").read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def words(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())


def test_pages_stay_short() -> None:
    assert words(ROOT / "README.md") <= 900
    assert sum(map(words, DOCS.rglob("*.md"))) <= 65_000
    for record in (DOCS / "adr").glob("*.md"):
        assert len(record.read_text(encoding="utf-8").splitlines()) <= 60, record.name


@pytest.mark.parametrize("folder", [DOCS, DOCS / "adr"])
def test_the_index_links_to_every_page(folder: Path) -> None:
    linked = {path for path, _ in LINK.findall((folder / "README.md").read_text(encoding="utf-8"))}
    assert {page.name for page in folder.glob("*.md")} - {"README.md"} <= linked
