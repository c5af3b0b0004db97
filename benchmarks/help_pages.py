"""Processor time of `shockwave --help` and of each command's, from bytecode.

    python -m benchmarks.help_pages [--runs 5] [--json]

Shown are the medians of user and system time in seconds, the dearest first.
"""

import argparse
import json
import os
from statistics import median

import typer.main

from benchmarks.commands import NEW, processor_seconds
from flows.cli.app import build_application


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="times that each runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    group = typer.main.get_command(build_application())
    pages = {"": [str(NEW), "--help"]} | {
        " ".join(words): [str(NEW), *words, "--help"] for words in commands(group)
    }
    figures = dict[str, float]()
    for name, line in pages.items():
        took = [processor_seconds(line, {**os.environ}) for _ in range(options.runs + 1)]
        figures[name] = round(median(took[1:]), 3)  # the first may write bytecode
    figures = dict(sorted(figures.items(), key=lambda item: -item[1]))
    if options.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{took:.3f}  shockwave {name}" for name, took in figures.items()))


def commands(group: object, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words of all commands below a group."""
    names = list[tuple[str, ...]]()
    for name, command in getattr(group, "commands", {}).items():
        words = (*before, name)
        names += [words, *commands(command, words)]
    return names


if __name__ == "__main__":
    main()
