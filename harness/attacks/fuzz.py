"""Seeded mutations of every file that the command line reads, and of its arguments.

    python -m harness.attacks.fuzz [--inputs 3000] [--seed 0] [--format NAME] [--at N] [--json]

Valid files of each format and a small warehouse are made once. For each input one file is copied
and mutated, or arguments are drawn, and commands that read it are run, each in a process that is
forked from this one. A command has to end within 10 s with an exit code that it documents: 0; 2
and one line on stderr; 1 of commands that have it. A traceback, a hang, more lines, or an end by a
signal is a defect, and exit code 1 of this program. `--at N` repeats an input and prints all.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from harness.attacks.commands import (
    BUSY_SECONDS,
    SECONDS,
    Arguments,
    Ended,
    called,
    forked,
    isolated,
    warm,
)
from harness.attacks.formats import FORMATS
from harness.attacks.mutations import BYTES, NUMBERS, TEXTS, database, packed, rows
from harness.attacks.requests import SENT, sent
from harness.attacks.specimens import make
from warehouse.store.checksums import CHECKSUMS


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / "made"
        isolated(made)
        warm()
        failed = forked(lambda: make(made), Path(place), seconds=600)
        if failed.code:
            sys.exit(f"cannot be made: {failed.err}")
        counts, defects = attack(made, Path(place) / "tried", options)
    for name in FORMATS:
        row = {"format": name} | {kind: counts[name, kind] for kind in KINDS}
        if row["inputs"]:
            print(json.dumps(row) if options.json else line(row.values()))
    total = {kind: sum(counts[name, kind] for name in FORMATS) for kind in KINDS}
    print(json.dumps(total) if options.json else line(["all", *total.values()]))
    return bool(defects)


KINDS = ("inputs", "refused", "accepted", "found", "tracebacks", "hangs", "others")


def line(values: object) -> str:
    first, *rest = values  # type: ignore[misc]
    return f"{first:16}" + "".join(f"{part:>11}" for part in rest)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=FORMATS, help="one format only")
    parser.add_argument("--at", type=int, help="one input only")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    return parser.parse_args()


def attack(
    made: Path, place: Path, options: argparse.Namespace
) -> tuple[Counter[tuple[str, str]], int]:
    """Try inputs; returns their number by format and verdict, and that of defects."""
    counts, defects = Counter[tuple[str, str]](), 0
    names = [options.format] if options.format else list(FORMATS)
    for at in range(options.inputs) if options.at is None else [options.at]:
        name = names[at % len(names)] if options.at is None else options.format or names[0]
        arguments, ended = tried(made, place, name, Random(f"{options.seed} {name} {at}"))
        verdict = ended.verdict
        if verdict == "found" and not FORMATS[name].may_find:
            verdict = "others"
        counts[name, verdict] += 1
        counts[name, "inputs"] += 1
        if verdict in KINDS[4:]:
            defects += 1
        if verdict in KINDS[4:] or options.at is not None:
            shown = " ".join(map(ascii, arguments))[:300]
            last = ended.err if options.at is not None else "".join(ended.err.splitlines(True)[-4:])
            print(f"{name} --at {at}: {verdict} ({ended.code}): {shown}\n{last}", file=sys.stderr)
    return counts, defects


def tried(made: Path, place: Path, name: str, rng: Random) -> tuple[Arguments, Ended]:
    """Try one input of a format, in a copy of all files."""
    shutil.copytree(made, place, symlinks=True)
    try:
        arguments = drawn(place, name, rng)
        for seconds in (SECONDS, BUSY_SECONDS):  # others may use the machine
            ended = forked(lambda: in_folder(place, arguments), place, seconds)
            if ended.verdict != "hangs":
                break
        return arguments, ended
    finally:
        shutil.rmtree(place)


def in_folder(place: Path, arguments: Arguments) -> int:
    os.chdir(place)
    kind, *rest = arguments
    return sent(Path(str(rest[0]))) if kind == SENT else called(arguments)


def drawn(place: Path, name: str, rng: Random) -> Arguments:
    """Mutate a file, or draw arguments; returns the command."""
    if name == "arguments":
        return random_arguments(rng)
    form = FORMATS[name]
    files = sorted(path for pattern in form.files for path in place.glob(pattern))
    file = rng.choice(files)
    if file.suffix == ".parquet" and rng.random() < 0.6:
        # Arrow's threads would not survive the next fork.
        if forked(lambda: rows_of(file, rng), place.parent, seconds=60).code:
            file.write_bytes(rng.choice(BYTES)(file.read_bytes(), rng))
    elif file.suffix == ".sqlite" and rng.random() < 0.7:
        database(file, rng)
    elif file.suffix == ".gz" and rng.random() < 0.6:
        file.write_bytes(packed(file.read_bytes(), rng, rng.choice(form.ways)))
    else:
        way = rng.choice(BYTES if file.suffix == ".parquet" else form.ways)
        file.write_bytes(way(file.read_bytes() or b"\n", rng))
        sums = file.with_name(CHECKSUMS)
        if file.suffix == ".parquet" and sums.exists() and rng.random() < 0.3:
            sums.unlink()
    before = Path.cwd()
    os.chdir(place)
    try:
        return rng.choice(form.commands(place, file))
    finally:
        os.chdir(before)


def rows_of(file: Path, rng: Random) -> int:
    rows(file, rng)
    return 0


LEFT_OUT = ("up", "down")
"""Commands that serve until they are stopped, stop a service, or take minutes."""


def random_arguments(rng: Random) -> Arguments:
    """Arguments of any command but `up` and `down`: options that it has or not, with any values."""
    import typer

    from flows.cli.app import build_application
    from flows.cli.commands import COMMANDS

    path = rng.choice([name for name in COMMANDS if name not in LEFT_OUT]).split()
    chosen = typer.main.get_command(build_application())
    for word in path:
        chosen = chosen.commands[word]
    parameters = [part for part in chosen.params if part.name not in ("help", "follow")]
    usual = {
        "gpus": "4",
        "jobs": "2",
        "warehouse": rng.choice("ws"),
        "run": "x",
        "number": "1",
        "job": "0",
        "query": "FROM run_summary",
        "file": "windows.jsonl",
        "out": "out",
        "name": "attacked",
        "round_seconds": "3600",
        "driver": "plain",
        "trace": "jobs.trace",
        "workers": "1",
        "cluster": "cluster.toml",
        "profile": "throughputs.json",
        "policies": "fifo,srtf",
        "policy": "fifo",
        "folder": ".",
    }
    words: list[str] = list(path)
    for part in parameters:
        option = next((text for text in part.opts if text.startswith("--")), None)
        wanted = option is None or part.name in ("gpus", "jobs", "warehouse", "round_seconds")
        if not wanted and rng.random() > 0.12:
            continue
        odd = rng.choice(
            [*NUMBERS, *TEXTS, "--", "-", "--all", "dir", "jobs.trace", "w", "w/records"]
        )
        text = usual.get(part.name, odd) if rng.random() < 0.6 else odd
        if part.name == "jobs" and len(text) > 3:
            text = "5"
        if getattr(part, "is_flag", False):
            words.append(str(option))
        else:
            words += (
                [text] if option is None else rng.choice([[option, text], [f"{option}={text}"]])
            )
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words) + 1), rng.choice(TEXTS + NUMBERS))
    return [text.replace("\x00", "0") for text in words]


if __name__ == "__main__":
    sys.exit(main())
