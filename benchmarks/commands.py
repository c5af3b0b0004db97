"""Processor time of short commands and of a whole simulation, by turns with an older checkout.

    python benchmarks/commands.py [OLD] [--data DATA] [--runs 7] [--only NAME] [--json]

OLD is the `shockwave` executable of another checkout, in an environment of its own; without
it only this checkout is timed. Both run in turn, `--runs` times each. Shown are the medians
of user and system time, children included, and their ratio, with the machine's load. Each has its
own folder of bytecode, and a small warehouse that it made itself. The simulation is of the public
120-job trace on 32 GPUs; DATA is the folder with it, by default `shockwave` in the folder that the
environment variable SHOCKWAVE_DATA names; without it, the simulation is left out.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

NEW = Path(sys.executable).with_name("shockwave")
SEEDS = (0, 1, 2)


def main() -> None:
    options = parse()
    programs = [options.old, NEW] if options.old else [NEW]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        environment = own_environment(folder / "bytecode")
        asked = []
        for number, program in enumerate(programs):
            own = folder / str(number)
            runs = [made(program, own / "warehouse", seed, environment) for seed in SEEDS]
            asked.append((program, commands(own, runs[0], options.data)))
        for name in asked[0][1]:
            if options.only not in ("", name):
                continue
            both = [[str(program), *measured[name]] for program, measured in asked]
            figures = {"command": name} | by_turns(both, options.runs, environment)
            if options.json:
                print(json.dumps(figures), flush=True)
            else:
                print("  ".join(f"{key} {value}" for key, value in figures.items()), flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    folder = os.environ.get("SHOCKWAVE_DATA")
    default = Path(folder) / "shockwave" if folder else None
    parser.add_argument("old", type=Path, nargs="?", help="an older checkout's shockwave")
    parser.add_argument("--data", type=Path, default=default, help="folder of the public trace")
    parser.add_argument("--runs", type=int, default=7, help="times that each runs")
    parser.add_argument("--only", metavar="NAME", default="", help="one command, by this name")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    return parser.parse_args()


def own_environment(bytecode: Path) -> dict[str, str]:
    """This environment, so that each checkout imports its own code and keeps its bytecode."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    }
    return environment | {"PYTHONPYCACHEPREFIX": str(bytecode)}


def made(program: Path, warehouse: Path, seed: int, environment: dict[str, str]) -> str:
    """A run of eight jobs in a warehouse; returns its name."""
    knobs = ("--gpus", "8", "--jobs", "8", "--seed", str(seed), "--warehouse", str(warehouse))
    done = subprocess.run(
        [program, "simulate", *knobs, "--json"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    name: str = json.loads(done.stdout)["run"]
    return name


def commands(folder: Path, run: str, data: Path | None) -> dict[str, list[str]]:
    """The measured commands, by name."""
    kept = ["--warehouse", str(folder / "warehouse")]
    measured = {
        "--help": ["--help"],
        "sql": ["sql", "FROM run_summary", *kept],
        "recipe": ["sql", "--recipe", "policies-compared", *kept],
        "why": ["why", "0", "--run", run, *kept],
        "report": ["report", run, "--out", str(folder / "page.html"), *kept],
    }
    if data is not None:
        measured["simulate"] = [
            *("simulate", "--gpus", "32", "--warehouse", str(folder / "simulated")),
            *("--trace", str(data / "jobs120_gpus32.trace")),
            *("--profile", str(data / "tacc_throughputs.json")),
            *("--regimes", str(data / "gns_regimes.csv")),
        ]
    return measured


def by_turns(both: Sequence[list[str]], runs: int, environment: dict[str, str]) -> dict[str, float]:
    """Median processor seconds of commands, and the ratio of the last to the first."""
    seconds: list[list[float]] = [[] for _ in both]
    for turn in range(runs + 1):
        for command, taken in zip(both, seconds, strict=True):
            took = processor_seconds(command, environment)
            if turn > 0:  # in the first, bytecode is written
                taken.append(took)
    medians = [median(taken) for taken in seconds]
    figures = dict(zip(("new_s", "old_s"), map(_rounded, reversed(medians)), strict=False))
    if len(medians) > 1:
        figures["ratio"] = _rounded(medians[-1] / medians[0])
    return figures | {"load": _rounded(os.getloadavg()[0])}


def _rounded(value: float) -> float:
    return round(value, 3)


def processor_seconds(command: list[str], environment: dict[str, str]) -> float:
    """User and system time of a process and its children, in seconds."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
