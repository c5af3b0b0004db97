"""Time a campaign as its user does: 9 policies × (2 public traces and 3 generated seeds).

    python benchmarks/campaign.py [DATA] [--runner processes] [--workers 2] [--json]

DATA is the folder with the public traces, by default `shockwave` in the folder that the
environment variable SHOCKWAVE_DATA names. The campaign is started in a new warehouse, and
once more in the same: the second finds all its 45 cells finished. Prefect starts a server of
its own both times, unless PREFECT_API_URL names one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

PROGRAM = (sys.executable, "-c", "from flows.cli.main import main; main()")
PLAN = """
name = "public-and-generated"
policies = [
    "shockwave", "shockwave-published", "slack",
    "ossp", "themis", "gavel", "allox", "mst", "gandiva-fair",
]
seeds = [1, 2, 3]

[[workloads]]
name = "jobs120"
trace = "jobs120_gpus32.trace"
profile = "tacc_throughputs.json"
regimes = "gns_regimes.csv"
clusters = ["gpus32"]
seeds = [0]

[[workloads]]
name = "jobs220"
trace = "jobs220_gpus64.trace"
profile = "wisr_throughputs.json"
regimes = "gns_regimes.csv"
clusters = ["gpus64"]
seeds = [0]

[[workloads]]
name = "generated"
jobs = 120
clusters = ["gpus32"]

[[clusters]]
name = "gpus32"
gpus = 32

[[clusters]]
name = "gpus64"
gpus = 64
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    folder = os.environ.get("SHOCKWAVE_DATA")
    default = folder and Path(folder) / "shockwave"
    parser.add_argument("data", type=Path, nargs="?" if default else None, default=default)
    parser.add_argument("--runner", default="processes")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--warehouse", type=Path, help="by default one that is removed again")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        plan = Path(scratch) / "campaign.toml"
        plan.write_text(absolute(options.data.resolve()))
        warehouse = options.warehouse or Path(scratch) / "warehouse"
        command = (*PROGRAM, "campaign", "run", plan, "--runner", options.runner)
        command += ("--workers", options.workers, "--warehouse", warehouse)
        for start in ("new", "again"):
            started = perf_counter()
            done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True)
            if done.returncode:
                sys.exit(done.returncode)
            row = {"start": start, "runner": options.runner, "wall_s": perf_counter() - started}
            line = done.stdout.splitlines()[0]
            print(json.dumps(row) if options.json else f"{start:>6} {row['wall_s']:8.1f} s  {line}")


def absolute(data: Path) -> str:
    """The plan with the folder's path before the names of its files."""
    lines = PLAN.splitlines()
    for number, line in enumerate(lines):
        field, _, value = line.partition(" = ")
        if field in ("trace", "profile", "regimes"):
            lines[number] = f"{field} = {json.dumps(str(data / json.loads(value)))}"
    return "\n".join(lines)


if __name__ == "__main__":
    main()
