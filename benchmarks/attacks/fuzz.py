"""Seeded mutations of every file that the command line reads, and of its arguments.

    python -m benchmarks.attacks.fuzz [--inputs 3000] [--seed 0] [--format NAME] [--at N] [--json]

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.attacks.commands import (
    BUSY_SECONDS,
    SECONDS,
    Arguments,
    Ended,
    called,
    forked,
    isolated,
    warm,
)
from benchmarks.attacks.mutations import BYTES, JSON, LINES, NUMBERS, TEXT, TEXTS, Mutation, rows
from benchmarks.attacks.specimens import make
from warehouse.store.checksums import CHECKSUMS

Commands = Callable[[Path, Path], Sequence[Arguments]]
"""Commands, each as its arguments, by the folder of all files and the mutated one."""


@dataclass(frozen=True)
class Format:
    """A format: its files, how they are mutated, and which commands read them.

    Attributes:
        files: Patterns of valid files, in the folder that `make` fills.
        ways: Mutations of their bytes; Parquet files have their rows mutated as well.
        commands: Commands that read them; one is drawn.
        may_find: Whether exit code 1 is documented for one of them.
    """

    files: tuple[str, ...]
    ways: tuple[Mutation, ...]
    commands: Commands
    may_find: bool = False


def generated(trace: str, profile: str, regimes: str) -> Arguments:
    given = ("--trace", trace, "--profile", profile, "--regimes", regimes)
    return ("generate", "out", "--overwrite", *given)


def tables(folder: Path, file: Path) -> Sequence[Arguments]:
    columns = "arrival=at,duration=seconds,gpus=gpus,tenant=user,model=model"
    by_name: dict[str, tuple[str, ...]] = {
        "tiresias.csv": ("--format", "tiresias"),
        "table.csv": ("--format", "table", "--columns", columns),
        "philly.csv": ("--format", "philly"),
    }
    asked = ("--trace", file, *by_name[file.name])
    return [
        ("generate", "out", "--overwrite", *asked),
        *([] if file.name == "tiresias.csv" else [("generate", "out", *asked, "--skip-unusable")]),
    ]


def of_warehouse(folder: Path, file: Path) -> Sequence[Arguments]:
    place = ("--warehouse", "w")
    runs = sorted(path.name[4:] for path in Path("w/records").glob("*/run=[a-z]*"))
    run = next((part[4:] for part in file.parts if part.startswith("run=s")), runs[0])
    return [
        ("audit", run, *place),
        ("audit", "--all", *place),
        ("sql", "SELECT * FROM run_summary", *place, "--json"),
        ("sql", "SELECT * FROM records", *place),
        ("sql", "SELECT * FROM campaign_cells", *place),
        ("sql", "--recipe", "worst-jobs", *place),
        ("replay", run, *place),
        ("why", 0, "--run", run, *place),
        ("resume", run, *place),
        ("whatif", run, "--round", 2, "--gpus", 8, *place),
        *([("audit", run, *place), ("audit", "--all", *place), ("replay", run, *place)] * 2),
        ("views", *place),
        ("report", "attacked", *place),
        ("simulate", "--gpus", 4, "--jobs", 1, "--history", run, *place),
    ]


WAREHOUSE = {
    "headers": ("w/records/*/run=*/header.parquet",),
    "workloads": ("w/records/*/run=*/workload.parquet",),
    "rounds": ("w/records/*/run=*/round=*.parquet",),
    "checksums": ("w/records/*/run=*/SHA256SUMS",),
    "campaigns": ("w/campaigns/*/*.json", "w/campaigns/*/cells.parquet"),
    "marts": ("w/marts/*/*.parquet", "w/marts/current.json"),
    "ledger": ("w/ledger.jsonl",),
    "notes": ("w/.verified.json", "w/.views", "w/analytics.duckdb"),
}

FORMATS: dict[str, Format] = {
    "traces": Format(
        ("jobs.trace",), TEXT, lambda d, f: [generated(str(f), "throughputs.json", "regimes.csv")]
    ),
    "profiles": Format(
        ("throughputs.json",), JSON, lambda d, f: [generated("jobs.trace", str(f), "regimes.csv")]
    ),
    "regimes": Format(
        ("regimes.csv",), TEXT, lambda d, f: [generated("jobs.trace", "throughputs.json", str(f))]
    ),
    "tables": Format(("tiresias.csv", "table.csv", "philly.csv"), TEXT, tables),
    "cluster specs": Format(
        ("spec.csv",),
        TEXT,
        lambda d, f: [("simulate", "--cluster", f, "--jobs", 1, "--round-seconds", 3600)],
    ),
    "cluster files": Format(
        ("cluster.toml",),
        TEXT,
        lambda d, f: [
            ("cluster", "check", f),
            ("run", "--cluster", f, "--trace", "jobs.trace", "--profile", "throughputs.json"),
            (
                "profile",
                "--cluster",
                f,
                "--out",
                "p.json",
                "--models",
                "conv-small",
                "--batch-sizes",
                "32",
            ),
        ],
        may_find=True,
    ),
    "campaign files": Format(
        ("campaign.toml",), TEXT, lambda d, f: [("campaign", f, "--runner", "threads")], True
    ),
    "jobs to add": Format(
        ("job.toml",),
        TEXT,
        lambda d, f: [
            ("whatif", of_warehouse(d, f)[0][1], "--round", 2, "--with", f, "--warehouse", "w")
        ],
    ),
    "window problems": Format(
        ("windows.jsonl",), LINES, lambda d, f: [("solve", f, "--backend", "lagrangian")]
    ),
    **{
        name: Format(
            patterns,
            LINES if name == "ledger" else JSON if name == "campaigns" else BYTES,
            of_warehouse,
            may_find=True,
        )
        for name, patterns in WAREHOUSE.items()
    },
    "arguments": Format((), (), lambda d, f: [], may_find=True),
}


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
    return called(arguments)


def drawn(place: Path, name: str, rng: Random) -> Arguments:
    """Mutate a file, or draw arguments; returns the command."""
    if name == "arguments":
        return random_arguments(rng)
    form = FORMATS[name]
    found = sorted(path for pattern in form.files for path in place.glob(pattern))
    file = rng.choice(found)
    if file.suffix == ".parquet" and rng.random() < 0.6:
        # Arrow's threads would not survive the next fork.
        if forked(lambda: rows_of(file, rng), place.parent, seconds=60).code:
            file.write_bytes(rng.choice(BYTES)(file.read_bytes(), rng))
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


def random_arguments(rng: Random) -> Arguments:
    """Arguments of any command but `up`: options that it has or has not, with any values."""
    import typer

    from flows.cli.app import application
    from flows.cli.commands import COMMANDS

    group = typer.main.get_command(application())
    command = rng.choice([name for name in COMMANDS if name not in ("up", "conformance")])
    found = group.commands[command]
    path = [command]
    if hasattr(found, "commands"):
        part = rng.choice(sorted(found.commands))
        found, path = found.commands[part], [command, part]
    parameters = [part for part in found.params if part.name != "help"]
    usual = {
        "gpus": "4",
        "jobs": "2",
        "warehouse": "w",
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
    given: list[str] = list(path)
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
            given.append(str(option))
        else:
            given += (
                [text] if option is None else rng.choice([[option, text], [f"{option}={text}"]])
            )
    if rng.random() < 0.1:
        given.insert(rng.randrange(len(given) + 1), rng.choice(TEXTS + NUMBERS))
    return [text.replace("\x00", "0") for text in given]


if __name__ == "__main__":
    sys.exit(main())
