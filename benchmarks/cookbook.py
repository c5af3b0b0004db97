"""Ask every recipe of the cookbook of a large generated warehouse: seconds and memory, cold.

    python -m benchmarks.cookbook [--runs 100] [--rounds 500] [--slots 200]
                                  [--warehouse FOLDER] [--json]

The warehouse (`benchmarks/generated.py`) has RUNS × ROUNDS × SLOTS rows of placements, 10 million
by default. It is made once and kept where FOLDER is given. Each recipe is asked in a process of
its own. `query_s` is the time from the call of `Analytics.recipe` to its rows, `cpu_s` the
processor time of all its threads in it, `process_s` the time of the whole process with Python's
start and imports, `peak_mib` its peak memory.
Before each the files are dropped from the operating system's memory.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.generated import WHOLE, generate
from warehouse.analytics.recipes import recipe, recipes

ASKED = "shockwave-000000-1"
"""The run of recipes about a single run: a run with a market."""
ASK = """
import json, resource, sys
from pathlib import Path
from time import perf_counter, process_time
from warehouse.analytics.questions import Analytics

started, busy = perf_counter(), process_time()
_, rows = Analytics(Path(sys.argv[1])).recipe(*sys.argv[2:])
seconds, busy = perf_counter() - started, process_time() - busy
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
figures = {"rows": len(rows), "query_s": round(seconds, 3), "cpu_s": round(busy, 3)}
figures["peak_mib"] = round(peak)
print(json.dumps({"recipe": sys.argv[2]} | figures))
"""


def main() -> None:
    options = parser_of(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.warehouse or Path(temporary)
        if not (folder / WHOLE).exists():
            generate(folder, options.runs, options.rounds, options.slots)
        for figures in (in_a_process(folder, recipe.name) for recipe in recipes()):
            if options.json:
                print(json.dumps(figures), flush=True)
            else:
                print("  ".join(f"{name} {value}" for name, value in figures.items()), flush=True)


def parser_of(doc: str) -> argparse.ArgumentParser:
    """The options of a benchmark on such a warehouse, by its description."""
    parser = argparse.ArgumentParser(description=doc.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=500, help="in which every slot is busy")
    parser.add_argument("--slots", type=int, default=200, help="jobs that run at once")
    parser.add_argument("--warehouse", type=Path, help="where to make it, and to keep it")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    return parser


def in_a_process(folder: Path, name: str) -> dict[str, Any]:
    """Ask a recipe in a process of its own, from its start to its end."""
    forget(folder)
    started = perf_counter()
    run = [ASKED] if recipe(name).of_one_run else []
    command = [sys.executable, "-c", ASK, str(folder), name, *run]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output) | {"process_s": round(perf_counter() - started, 3)}


def forget(folder: Path) -> None:
    """Drop the files from the operating system's page cache."""
    for path in folder.rglob("*.parquet"):
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)  # dirty pages would stay
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


if __name__ == "__main__":
    main()
