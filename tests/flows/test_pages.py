"""The pages for newcomers: their commands work, with the printed output."""

import re
from pathlib import Path

import pytest

from tests.documents import blocks, check_commands, commands
from tests.flows.conftest import Command

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "count"), [("ten-minutes", 6), ("own-trace", 4), ("jobs", 2)])
def test_a_page_runs_as_it_stands(
    name: str, count: int, here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(tmp_path / "warehouse"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / f"{name}.md"
    assert check_commands(page, here) == count
    asked_for = any(line.startswith("shockwave report") for line, _ in commands(page))
    assert (tmp_path / "report.html").is_file() == asked_for


def test_the_commands_of_the_readme_are_those_of_the_first_ten_minutes() -> None:
    readme = re.findall(r"^    (shockwave .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(readme) == 4
    assert {*readme} <= {line for line, _ in commands(ROOT / "docs" / "ten-minutes.md")}


def test_the_table_on_the_page_is_the_examples() -> None:
    page = ROOT / "docs" / "own-trace.md"
    (table,) = blocks(page, "csv")
    assert (ROOT / "examples" / "jobs.csv").read_text().startswith(table)
