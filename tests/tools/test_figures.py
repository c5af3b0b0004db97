"""Tables of figures in docs are what the commands beside them print."""

import pytest

from benchmarks.figures import ROOT, TABLE, commands, measured

COMMAND = "print('| a |', '| - |', '| 1 |', '', '| b |', '| - |', '| 2 |', sep=chr(10))"
PRINTS = f'python -c "{COMMAND}"'
TEXT = f"""Before.

<!-- figures: {PRINTS} #2 -->
| b |
| - |
| 7 |

| untouched |
"""


def test_a_table_is_replaced_by_the_printed_table_of_its_number() -> None:
    assert measured(TEXT) == TEXT.replace("| 7 |", "| 2 |")


def test_other_commands_are_not_run() -> None:
    assert measured(TEXT, only="another") == TEXT


def test_a_command_that_fails_changes_nothing() -> None:
    with pytest.raises(SystemExit, match="ended with 3"):
        measured(TEXT.replace(PRINTS, "python -c 'raise SystemExit(3)'"))


def test_each_mark_stands_before_a_table_and_names_a_benchmark() -> None:
    marked = set[str]()
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = file.read_text(encoding="utf-8")
        marked |= {*commands(text)}
        assert text.count("<!-- figures: ") == len(TABLE.findall(text)), file
        for command in commands(text):
            python, option, module, *_ = command.split()
            assert (python, option) == ("python", "-m")
            path = ROOT.joinpath(*module.split("."))
            assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), command
    assert len(marked) >= 2
