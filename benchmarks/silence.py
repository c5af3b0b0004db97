"""The longest silence of slow commands, without a terminal.

    python -m benchmarks.silence [--commands compare,campaign,report] [--busy 0] [--json]

Each command runs in a process of its own, stdout and stderr in one pipe. Shown is the longest time
between two lines of output, its start and end included, after which line, and its duration.
The queried runs are those that `compare` and `campaign` make before. `run` and `setup`
are a clone of this repository and its `make run` (installation and first comparison) or
`make setup`, which need an index of packages. `--busy` starts so many processes that compute.
Bound: no silence of more than ten seconds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from warehouse.store.folder import name_of, run_folders

ROOT = Path(__file__).parents[1]
PROGRAM = (sys.executable, "-c", "from flows.cli.main import main; main()")
MUTE_SECONDS = 10.0
"""The longest accepted silence."""

LINES = {
    "compare": "compare --warehouse w",
    "campaign": f"campaign run {ROOT}/examples/campaign.toml --warehouse c",
    "report": "report {campaign} --warehouse c",
    "sql": "sql --recipe policies-compared --warehouse c",
    "replay": "run replay {run} --warehouse w",
    "audit": "run audit --all --warehouse c",
    "whatif": "run whatif {run} --round 5 --policy fifo --warehouse w",
    "why": "why 7 --run {run} --warehouse w",
    "up": "up --detach --port 4390 --warehouse s",
    "down": "down --warehouse s",
    "views": "views --warehouse c",
    "generate": "workload generate g --jobs 20000",
}
"""By name: the arguments."""


MAKE = ("run", "setup")
"""Targets of make, each in a clone of its own."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commands", default=",".join(LINES))
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    longest = 0.0
    with tempfile.TemporaryDirectory() as temporary, computing(options.busy):
        folder = Path(temporary)
        for name in options.commands.split(","):
            row = {"command": name, **measure(command(name, folder), folder)}
            longest = max(longest, row["mute_s"])
            if options.json:
                print(json.dumps(row), flush=True)
            else:
                print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    sys.exit(longest > MUTE_SECONDS)


@contextmanager
def computing(processes: int) -> Iterator[None]:
    """So many processes that compute, within the context."""
    with ExitStack() as begun:
        for _ in range(processes):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            begun.callback(busy.wait)
            begun.callback(busy.kill)
        yield


def command(name: str, folder: Path) -> list[str]:
    """The command of a name."""
    if name in MAKE:
        return ["sh", "-c", f"git clone -q {ROOT} {name} && make -C {name} {name}"]
    known = {"run": "", "campaign": ""}
    if (folder / "w").is_dir():
        known["run"] = name_of(run_folders(folder / "w")[0])
    if (folder / "c" / "campaigns").is_dir():
        plans = (folder / "c" / "campaigns").glob("*/plan.json")
        known["campaign"] = next(plans).parent.name
    return [*PROGRAM, *LINES[name].format(**known).split()]


def measure(line: list[str], folder: Path) -> dict[str, Any]:
    """The longest silence of a command, the line before it, and the command's duration."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("SHOCKWAVE_PROGRESS", None)
    began = said = time.monotonic()
    mute, after, output = 0.0, "its start", b""
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, env=environment
    ) as process:
        assert process.stdout is not None
        while some := os.read(process.stdout.fileno(), 2**16):
            mute, after = max((mute, after), (time.monotonic() - said, last_line(output)))
            said, output = time.monotonic(), (output + some)[-2000:]
    ended = time.monotonic()
    if process.returncode:
        sys.exit(f"{' '.join(line)} failed: {output.decode(errors='replace')}")
    mute, after = max((mute, after), (ended - said, last_line(output)))
    return {
        "mute_s": round(mute, 1),
        "after": after,
        "took_s": round(ended - began, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def last_line(output: bytes) -> str:
    """The last line of the output."""
    return next(reversed(output.decode(errors="replace").split("\n")[-2:-1]), "its start").strip()


if __name__ == "__main__":
    main()
