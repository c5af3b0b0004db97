"""Measure the tables of README and docs anew, and write them there.

    python -m benchmarks.figures [FILE …] [--only TEXT] [--list]

A table of figures stands after a comment that names the command that prints it as Markdown:

    <!-- figures: python -m benchmarks.loads --gpus 16 --markdown #1 -->
    | Load | Policy | …

Each command runs once, in the project's folder; the printed table of that number replaces the table
after the comment. Without FILE, all tables of README.md and docs/ are measured,
which takes hours; `--only` takes those whose command contains TEXT, and `--list` prints the
commands. A file is written when all its commands have succeeded.
"""

import argparse
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"<!-- figures: (?P<command>.+?) #(?P<number>\d+) -->\n(?P<table>(?:\|.*\n)+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path, default=files)
    parser.add_argument("--only", metavar="TEXT", default="", help="commands that contain this")
    parser.add_argument("--list", action="store_true", help="print the commands, run nothing")
    options = parser.parse_args()
    for file in options.files:
        text = file.read_text(encoding="utf-8")
        if options.list:
            for command in commands(text, options.only):
                print(f"{file.relative_to(ROOT)}: {command}")
            continue
        written = measured(text, options.only)
        if written != text:
            file.write_text(written, encoding="utf-8")
            print(f"{file}: written")


def commands(text: str, only: str = "") -> list[str]:
    """The commands of a text's tables, in order."""
    commands = (match["command"] for match in TABLE.finditer(text))
    return [command for command in dict.fromkeys(commands) if only in command]


def measured(text: str, only: str = "") -> str:
    """The text with its tables replaced by the new output of their commands."""

    def table(match: re.Match[str]) -> str:
        if only not in match["command"]:
            return match[0]
        return match[0].replace(match["table"], _tables(match["command"])[int(match["number"]) - 1])

    return TABLE.sub(table, text)


@cache
def _tables(command: str) -> list[str]:
    """The Markdown tables that a command prints."""
    print(f"$ {command}", flush=True)
    program, *arguments = shlex.split(command)
    path = Path(sys.executable).with_name(program)
    ran = subprocess.run([path, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        sys.exit(f"error: {command} ended with {ran.returncode}; nothing of this file was written")
    return re.findall(r"(?:^\|.*\n)+", ran.stdout, re.MULTILINE)


if __name__ == "__main__":
    main()
